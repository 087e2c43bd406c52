"""The words by which a model says that it shows a call, and does not make it.

Lines of prose only, one at a time; what stands around them is for others to know. Words of examples are known in some languages, those of
instructions in English.
"""

from __future__ import annotations

import re

__all__ = ["announces_example", "discusses_calls"]

_WORD = r"(?:examples?|beispiele?|exemples?|ejemplos?|exemplos?|esempio|esempi)"
_PHRASE = rf"(?:\b(?:for instance|(?:for|zum|par|por|per) {_WORD})\b|\be\.g\.|\bz\. ?b\.)"
_FIRST = rf"^\W*(?:here(?:'s|\u2019s| is| are) )?(?:(?:an?|another|one|some|the following) )?(?:\w+ )?{_WORD}\b"
_SENTENCE = r"(?:(?![.!?]\s+(?-i:[A-Z])).)*$"
"""The rest of one sentence."""
_EXAMPLE = re.compile(rf"(?:{_PHRASE}|{_FIRST}){_SENTENCE}|\b{_WORD}\W*$|例如|比如|举例|示例|例えば", re.IGNORECASE)
_CALL = r"(?:call|use|invoke|run|try|write|send|emit|put|type)"
_TALK = re.compile(rf"{_PHRASE}|\b(?:{_CALL}s?|called|used|written|wrote|forms?|formats?|syntax|tags?|markers?)\b", re.IGNORECASE)
_TOLD = re.compile(
    rf"\byou (?:can|could|may|might|must|should|would|need to|have to) (?:\w+ )?{_CALL}\b"
    r"|\blooks? (?:like (?:this|that|so)|so|as follows)\W*$"
    rf"|(?:^[\W\d]*|[.!?]\s+)(?:in order )?to (?:\w+ )?{_CALL}\b[^:]*, (?:\w+ )?(?:{_CALL}|respond|reply|answer|return|output)\b",
    re.IGNORECASE,
)
"""Tells somebody else how a call is made."""
_SELF = re.compile(r"\b(?:[Ii](?!\.e\b)|[Ww]e|[Ll]et)\b")
_DOING = re.compile(r"\W*(?:[Nn]ow )?[A-Z]?[a-z]+ing\b")
_SENTENCE_END = re.compile(r"(?<!\be\.g)[.!?:]\s+(?=[^a-z]|$)")
_COLON = re.compile(r"[:\uff1a][*_`\s]*$")
"""A line that ends so and has such words announces an example."""


def announces_example(line: str) -> bool:
    """Whether a line announces an example, or what somebody else has to write."""
    return bool(_COLON.search(line)) and bool(_EXAMPLE.search(line) or (_TOLD.search(line) and not _SELF.search(line)))


def discusses_calls(line: str) -> bool:
    """Whether a line ends in the middle of a sentence about calls, and nobody says in it what he does himself."""
    sentence = _SENTENCE_END.split(line)[-1]
    return bool(_TALK.search(sentence)) and not _SELF.search(sentence) and not _DOING.match(sentence)
