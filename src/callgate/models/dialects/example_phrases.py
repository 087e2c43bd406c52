"""Phrases with which a model announces an example of a call, or writes about calls.

Examines one line of prose at a time. Knows the words for "example" in several languages, and instructions in English.
"""

from __future__ import annotations

import re

__all__ = ["announces_example", "discusses_calls"]

_EXAMPLE_WORD = r"(?:examples?|beispiele?|exemples?|ejemplos?|exemplos?|esempio|esempi)"
_EXAMPLE_PHRASE = rf"(?:\b(?:for instance|(?:for|zum|par|por|per) {_EXAMPLE_WORD})\b|\be\.g\.|\bz\. ?b\.)"
_LINE_START = rf"^\W*(?:here(?:'s|\u2019s| is| are) )?(?:(?:an?|another|one|some|the following) )?(?:\w+ )?{_EXAMPLE_WORD}\b"
_REST_OF_SENTENCE = r"(?:(?![.!?]\s+(?-i:[A-Z])).)*$"
"""The rest of one sentence."""
_EXAMPLE = re.compile(
    rf"(?:{_EXAMPLE_PHRASE}|{_LINE_START}){_REST_OF_SENTENCE}|\b{_EXAMPLE_WORD}\W*$|例如|比如|举例|示例|例えば", re.IGNORECASE
)
_CALL_VERB = r"(?:call|use|invoke|run|try|write|send|emit|put|type)"
_CALL_TERMS = re.compile(
    rf"{_EXAMPLE_PHRASE}|\b(?:{_CALL_VERB}s?|called|used|written|wrote|forms?|formats?|syntax|tags?|markers?)\b", re.IGNORECASE
)
_INSTRUCTION = re.compile(
    rf"\byou (?:can|could|may|might|must|should|would|need to|have to) (?:\w+ )?{_CALL_VERB}\b"
    r"|\blooks? (?:like (?:this|that|so)|so|as follows)\W*$"
    rf"|(?:^[\W\d]*|[.!?]\s+)(?:in order )?to (?:\w+ )?{_CALL_VERB}\b[^:]*, (?:\w+ )?(?:{_CALL_VERB}|respond|reply|answer|return|output)\b",
    re.IGNORECASE,
)
"""Matches text that tells the reader how to make a call."""
_FIRST_PERSON = re.compile(r"\b(?:[Ii](?!\.e\b)|[Ww]e|[Ll]et)\b")
_PROGRESSIVE = re.compile(r"\W*(?:[Nn]ow )?[A-Z]?[a-z]+ing\b")
_SENTENCE_END = re.compile(r"(?<!\be\.g)[.!?:]\s+(?=[^a-z]|$)")
_FINAL_COLON = re.compile(r"[:\uff1a][*_`\s]*$")
"""Matches a line that ends with a colon; with one of the phrases above, such a line announces an example."""


def announces_example(line: str) -> bool:
    """Whether a line announces an example, or text that the reader is told to write."""
    return bool(_FINAL_COLON.search(line)) and bool(_EXAMPLE.search(line) or (_INSTRUCTION.search(line) and not _FIRST_PERSON.search(line)))


def discusses_calls(line: str) -> bool:
    """Whether a line ends within a sentence about calls that is not about the model's own actions."""
    sentence = _SENTENCE_END.split(line)[-1]
    return bool(_CALL_TERMS.search(sentence)) and not _FIRST_PERSON.search(sentence) and not _PROGRESSIVE.match(sentence)
