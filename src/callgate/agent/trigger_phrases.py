"""Trigger phrases: whether a message asks for a tool.

A tool declares them, a planner (`deliberate`) reads them. Text and phrases are compared in one form, so that case, width and white space
do not matter; expressions run on an engine whose time is linear in the text. Pure: knows no tools beyond their names in error messages.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any, Literal, assert_never

from msgspec import Struct

from callgate._schema.patterns import cost
from callgate.errors import UsageError

__all__ = ["MOST_CHARS", "MOST_TEXT", "MOST_TRIGGERS", "Trigger", "Wording", "compile_triggers", "first_match"]

MOST_TRIGGERS = 32
"""Of one tool."""
MOST_CHARS = 200
"""Of one trigger."""
MOST_TEXT = 20_000
"""Characters of a message that are looked at: half of them from its beginning, half from its end."""
_MOST_COST = 400
_SIZE_LIMIT = 2_000_000
_REGEX = re.compile(r"/(.*)/i?", re.DOTALL)
_WITHOUT_SPACES = re.compile(
    r"[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u312f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    r"\ua9e0-\ua9ff\uaa60-\uaa7f\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff]"
)
"""Thai, Lao, Tibetan, Myanmar, Khmer, Kana, Bopomofo, Han: words stand in a row, so a phrase may begin and end anywhere."""


class Wording(Struct, frozen=True):
    """A message as triggers see it."""

    plain: str
    """For expressions: as written, in one Unicode form."""
    folded: str
    """For phrases: without case, with one space where white space was."""

    @classmethod
    def of(cls, text: str) -> Wording:
        if len(text) > MOST_TEXT:
            text = f"{text[: MOST_TEXT // 2]}\n{text[-MOST_TEXT // 2 :]}"
        text = text.encode("utf-8", "replace").decode()
        return cls(unicodedata.normalize("NFKC", text), _folded(text))


class Trigger(Struct, frozen=True, kw_only=True):
    """One phrase, ready to be looked for."""

    text: str
    """As it was declared."""
    kind: Literal["literal", "stem", "regex", "always"]
    phrase: str = ""
    """The folded words of a literal or a stem."""
    regex: Any = None

    def matches(self, wording: Wording) -> bool:
        """Whether the message asks by this phrase."""
        match self.kind:
            case "always":
                return True
            case "regex":
                return bool(self.regex.is_valid(wording.plain))
            case "literal" | "stem":
                return _found(self.phrase, wording.folded, open_end=self.kind == "stem")
            case unknown:
                assert_never(unknown)


def compile_triggers(triggers: object, owner: str) -> tuple[Trigger, ...]:
    """Make a tool's declared phrases ready.

    Args:
        triggers: `literal`, `stem*`, `/regex/` or `^`; see `Tool.triggers`.
        owner: Whose they are, for messages: "tool 'search' (crm.py:12)".

    Raises:
        UsageError: They are no tuple of texts, too many, or one of them can never match, would always match or takes too much work.
    """
    if not isinstance(triggers, (tuple, list)) or not all(isinstance(one, str) for one in triggers):
        raise UsageError(f"{owner} has triggers={triggers!r}; it must be a tuple of texts.")
    if len(triggers) > MOST_TRIGGERS:
        raise UsageError(f"{owner} has {len(triggers)} triggers; {MOST_TRIGGERS} is the limit. Put several into one as /one|two|three/.")
    return tuple(_compiled(one, owner) for one in triggers)


def first_match(triggers: Sequence[Trigger], wording: Wording) -> Trigger | None:
    """The first of a tool's triggers that the message matches."""
    return next((trigger for trigger in triggers if trigger.matches(wording)), None)


def _compiled(text: str, owner: str) -> Trigger:
    if len(text) > MOST_CHARS:
        raise UsageError(f"A trigger of {owner} has {len(text)} characters ({text[:40]!r}...); {MOST_CHARS} is the limit. Shorten it.")
    if text == "^":
        return Trigger(text=text, kind="always")
    regex = _REGEX.fullmatch(text)
    if regex is not None:
        return Trigger(text=text, kind="regex", regex=_expression(regex[1], text, owner))
    stem = text.endswith("*")
    phrase = _folded(text.removesuffix("*") if stem else text)
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
            f"Trigger {text!r} of {owner} is no regular expression that runs in linear time. Correct it; look-around and"
            " back-references cannot be used."
        ) from error
    if regex.is_valid(""):
        raise UsageError(f"Trigger {text!r} of {owner} matches the empty text, and so every message. Write '^' if that is meant.")
    return regex


def _found(phrase: str, text: str, *, open_end: bool) -> bool:
    """Whether the phrase stands in the text as words of its own; with an open end, as the beginning of words."""
    start = text.find(phrase)
    while start >= 0:
        end = start + len(phrase)
        if not _joined(text, start) and (open_end or not _joined(text, end)):
            return True
        start = text.find(phrase, start + 1)
    return False


def _joined(text: str, place: int) -> bool:
    """Whether the characters before and after this place are of one word."""
    return 0 < place < len(text) and _binds(text[place - 1]) and _binds(text[place])


def _binds(char: str) -> bool:
    """A letter, a digit, a mark that belongs to one, `_` or `-`; of a script that writes words apart."""
    return (unicodedata.category(char)[0] in "LNM" or char in "_-") and _WITHOUT_SPACES.match(char) is None


def _folded(text: str) -> str:
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(text.split())
