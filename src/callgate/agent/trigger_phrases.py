"""Trigger phrases: decide whether a message asks for a tool.

A tool declares phrases, and the planner in `deliberate_mode` compares them with a message. Text and phrases are normalised, so that case,
width and white space do not matter. Regular expressions run on an engine whose time is linear in the text. Pure: uses tool names only in
errors.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any, Literal, assert_never

from msgspec import Struct

from callgate._schema.regex_patterns import cost
from callgate.errors import UsageError

__all__ = ["MOST_CHARS", "MOST_TEXT", "MOST_TRIGGERS", "Trigger", "Wording", "compile_triggers", "first_match"]

MOST_TRIGGERS = 32
"""The maximum number of triggers of one tool."""
MOST_CHARS = 200
"""The maximum length of one trigger, in characters."""
MOST_TEXT = 20_000
"""The maximum number of characters of a message that are searched: half from its beginning, half from its end."""
_MOST_COST = 400
_SIZE_LIMIT = 2_000_000
_REGEX = re.compile(r"/(.*)/i?", re.DOTALL)
_WITHOUT_SPACES = re.compile(
    r"[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u312f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    r"\ua9e0-\ua9ff\uaa60-\uaa7f\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff]"
)
"""Thai, Lao, Tibetan, Myanmar, Khmer, Kana, Bopomofo, Han: scripts without spaces between words, so a phrase may begin and end anywhere."""


class Wording(Struct, frozen=True):
    """A message, normalised for the comparison with triggers."""

    plain: str
    """For regular expressions: the text in one Unicode normalisation form."""
    folded: str
    """For phrases: case-folded, with single spaces instead of white space."""

    @classmethod
    def of(cls, text: str) -> Wording:
        if len(text) > MOST_TEXT:
            text = f"{text[: MOST_TEXT // 2]}\n{text[-MOST_TEXT // 2 :]}"
        text = text.encode("utf-8", "replace").decode()
        return cls(unicodedata.normalize("NFKC", text), _fold(text))


class Trigger(Struct, frozen=True, kw_only=True):
    """One compiled trigger phrase."""

    text: str
    """The phrase as it was declared."""
    kind: Literal["literal", "stem", "regex", "always"]
    phrase: str = ""
    """The folded words of a literal or a stem."""
    regex: Any = None

    def matches(self, wording: Wording) -> bool:
        """Return whether the message matches this phrase."""
        match self.kind:
            case "always":
                return True
            case "regex":
                return bool(self.regex.is_valid(wording.plain))
            case "literal" | "stem":
                return _contains(self.phrase, wording.folded, open_end=self.kind == "stem")
            case unknown:
                assert_never(unknown)


def compile_triggers(triggers: object, owner: str) -> tuple[Trigger, ...]:
    """Compile a tool's declared phrases.

    Args:
        triggers: `literal`, `stem*`, `/regex/` or `^`; see `Tool.triggers`.
        owner: Their owner, for error messages, such as "tool 'search' (crm.py:12)".

    Raises:
        UsageError: They are not a tuple of texts, too many, or one can never match, would always match, or would take too much work.
    """
    if not isinstance(triggers, (tuple, list)) or not all(isinstance(one, str) for one in triggers):
        raise UsageError(f"{owner} has triggers={triggers!r}; it must be a tuple of texts.")
    if len(triggers) > MOST_TRIGGERS:
        raise UsageError(f"{owner} has {len(triggers)} triggers; {MOST_TRIGGERS} is the limit. Put several into one as /one|two|three/.")
    return tuple(_compile(one, owner) for one in triggers)


def first_match(triggers: Sequence[Trigger], wording: Wording) -> Trigger | None:
    """Return the first of a tool's triggers that the message matches."""
    return next((trigger for trigger in triggers if trigger.matches(wording)), None)


def _compile(text: str, owner: str) -> Trigger:
    if len(text) > MOST_CHARS:
        raise UsageError(f"A trigger of {owner} has {len(text)} characters ({text[:40]!r}...); {MOST_CHARS} is the limit. Shorten it.")
    if text == "^":
        return Trigger(text=text, kind="always")
    regex = _REGEX.fullmatch(text)
    if regex is not None:
        return Trigger(text=text, kind="regex", regex=_expression(regex[1], text, owner))
    stem = text.endswith("*")
    phrase = _fold(text.removesuffix("*") if stem else text)
    if not phrase:
        raise UsageError(f"Trigger {text!r} of {owner} has nothing to look for. Write a phrase, or '^' for always.")
    return Trigger(text=text, kind="stem" if stem else "literal", phrase=phrase)


def _expression(pattern: str, text: str, owner: str) -> Any:
    import jsonschema_rs

    if cost(pattern) > _MOST_COST:
        raise UsageError(f"Trigger {text!r} of {owner} takes too much work for each character. Use smaller repeats.")
    try:
        options: Any = jsonschema_rs.RegexOptions(size_limit=_SIZE_LIMIT)
        regex = jsonschema_rs.validator_for({"pattern": f"(?i){pattern}"}, pattern_options=options, offline=True)
    except ValueError as error:
        raise UsageError(
            f"Trigger {text!r} of {owner} is not a regular expression that runs in linear time. Correct it; look-around and"
            " back-references cannot be used."
        ) from error
    if regex.is_valid(""):
        raise UsageError(f"Trigger {text!r} of {owner} matches the empty text, and so every message. Write '^' if that is meant.")
    return regex


def _contains(phrase: str, text: str, *, open_end: bool) -> bool:
    """Return whether the text contains the phrase as whole words; with `open_end`, as the beginning of words."""
    start = text.find(phrase)
    while start >= 0:
        end = start + len(phrase)
        if not _is_inside_word(text, start) and (open_end or not _is_inside_word(text, end)):
            return True
        start = text.find(phrase, start + 1)
    return False


def _is_inside_word(text: str, place: int) -> bool:
    """Return whether the characters before and after this index belong to the same word."""
    return 0 < place < len(text) and _is_word_char(text[place - 1]) and _is_word_char(text[place])


def _is_word_char(char: str) -> bool:
    """Return whether the character is part of a word.

    Letters, digits, combining marks, `_` and `-` are, in scripts with spaces between words.
    """
    return (unicodedata.category(char)[0] in "LNM" or char in "_-") and _WITHOUT_SPACES.match(char) is None


def _fold(text: str) -> str:
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(text.split())
