"""A position in text that still arrives, and the operations that move it.

Every operation is a generator that waits while the text so far does not determine its result. A dialect is therefore
written as if the text were complete, and its result does not depend on how the stream was cut. The text that a
candidate call has consumed can be given back. Each piece of text is scanned a bounded number of times. Knows no dialect
and no tool.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from functools import lru_cache
from typing import TypeVar

__all__ = ["MAX_CANDIDATE_CHARS", "Incremental", "NotACall", "TextCursor"]

T = TypeVar("T")
Incremental = Generator[None, None, T]
"""A generator that yields whenever it needs more text, and returns a T."""

MAX_CANDIDATE_CHARS = 1_048_576
"""Maximum length of a call in characters; longer text is not a call."""
_MAX_NESTING = 200
_LOOK_AHEAD_CHARS = 64
_SPACE = re.compile(r"\s*")
_BRACKET_OR_QUOTE, _BRACKET_QUOTE_OR_TAG = re.compile(r"""[\[\](){}"']"""), re.compile(r"""[\[\](){}"'<]""")
_CLOSING_BRACKET = {"[": "]", "{": "}", "(": ")"}
_STRING_END = {'"': re.compile(r'["\\]'), "'": re.compile(r"['\\]")}


class NotACall(Exception):
    """The text at the cursor is not the kind of call that was tried. Always caught inside this package."""


@lru_cache(maxsize=256)
def _compile_any(markers: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(marker) for marker in sorted(markers, key=len, reverse=True)))


class TextCursor:
    """Reads text that arrives in pieces."""

    def __init__(self) -> None:
        self.text = ""
        """Text that has arrived. `pos` is the cursor's index in it, and `base` the index of its first character in
        the message.
        """
        self.pos = 0
        self.final = False
        """Whether no text follows what has arrived."""
        self.truncated = False
        """Whether the message ended early."""
        self.ran_out = False
        """Whether the candidate needed more text than there is."""
        self.base = 0
        self.version = 0
        """Changes with `text`: a position is valid for one version only."""
        self.pause_at = 0
        """The value of `work` at which the cursor pauses, so that the caller can do other work."""
        self.paused = False
        """Whether the last yield was a pause at `pause_at`, with text left to read."""
        self._arrived: list[str] = []
        self._consumed: list[str] = []
        self._candidate_pos = 0
        self._candidate_start = 0
        self.work = 0
        """Characters scanned in total, for tests of linear cost."""

    def feed(self, text: str) -> None:
        """Append the next piece."""
        if text:
            self._arrived.append(text)

    @property
    def offset(self) -> int:
        """Position of the cursor in the whole message."""
        return self.base + self.pos

    @property
    def candidate_chars(self) -> int:
        """Number of characters that the candidate has consumed."""
        return self.offset - self._candidate_start

    def start_candidate(self) -> None:
        """Start a candidate at the cursor."""
        self._consumed.clear()
        self._candidate_pos, self._candidate_start, self.ran_out = self.pos, self.offset, False

    def rewind(self, offset: int | None = None) -> None:
        """Go back to the start of the candidate, or to a later `offset` in it."""
        if self._consumed:
            self.text = "".join(self._consumed) + self.text[self._candidate_pos :]
            self.work += len(self.text)
            self.version += 1
            self._consumed.clear()
            self._candidate_pos, self.base = 0, self._candidate_start
        self.pos = self._candidate_pos if offset is None else offset - self.base

    def shorten_candidate(self, chars: int) -> None:
        """Remove this many characters from the start of the candidate. The position of the cursor does not change."""
        rest = self.candidate_text()[chars:]
        self._consumed[:] = [rest] if rest else []
        self._candidate_start += chars
        self._candidate_pos, self.ran_out = self.pos, self.ran_out and rest != ""

    def candidate_text(self) -> str:
        """Return the text that the candidate has consumed."""
        return "".join(self._consumed) + self.text[self._candidate_pos : self.pos]

    def wait_more(self) -> Incremental[bool]:
        """Wait for more text; return False if there is none."""
        self._check_candidate_size()
        while not self._arrived:
            if self.final:
                self.ran_out = True
                return False
            yield
        self._consumed.append(self.text[self._candidate_pos : self.pos])
        self.base += self.pos
        self.text = "".join((self.text[self.pos :], *self._arrived))
        self.work += len(self.text)
        self.version += 1
        self.pos = self._candidate_pos = 0
        self._arrived.clear()
        return True

    def pause(self) -> Incremental[None]:
        """Yield to the caller if `work` has reached `pause_at`."""
        if self.work >= self.pause_at:
            self.paused = True
            yield

    def _check_candidate_size(self) -> None:
        if self.candidate_chars > MAX_CANDIDATE_CHARS:
            raise NotACall

    def _move(self, pos: int) -> None:
        self.work += pos - self.pos
        self.pos = pos
        self._check_candidate_size()

    def at(self, literal: str) -> Incremental[bool]:
        """Return whether `literal` comes next."""
        if self.work >= self.pause_at:
            yield from self.pause()
        while True:
            self.work += 1
            if self.text.startswith(literal, self.pos):
                return True
            have = self.text[self.pos : self.pos + len(literal)]
            if len(have) == len(literal) or not literal.startswith(have) or not (yield from self.wait_more()):
                return False

    def at_any(self, *literals: str) -> Incremental[bool]:
        """Return whether one of `literals` comes next."""
        found = yield from self.take(*literals)
        self.give_back(found)
        return bool(found)

    def take(self, *literals: str) -> Incremental[str]:
        """Consume and return the first of `literals` that comes next; return an empty string if none does."""
        for literal in literals:
            if (yield from self.at(literal)):
                self._move(self.pos + len(literal))
                return literal
        return ""

    def expect(self, *literals: str) -> Incremental[str]:
        """Consume and return the one of `literals` that comes next.

        Raises:
            NotACall: None of them does.
        """
        found = yield from self.take(*literals)
        if not found:
            raise NotACall
        return found

    def skip_space(self) -> Incremental[None]:
        """Skip white space, if any."""
        yield from self.take_while(_SPACE)

    def take_while(self, pattern: re.Pattern[str]) -> Incremental[str]:
        """Consume the longest run that `pattern`, a character class with a star, matches."""
        parts: list[str] = []
        while True:
            found = pattern.match(self.text, self.pos)
            end = found.end() if found else self.pos
            parts.append(self.text[self.pos : end])
            self._move(end)
            if end < len(self.text) or not (yield from self.wait_more()):
                return "".join(parts)

    def peek(self) -> Incremental[str]:
        """Return the next character; an empty string at the end of the message."""
        while self.pos >= len(self.text):
            if not (yield from self.wait_more()):
                return ""
        return self.text[self.pos]

    def is_followed_by(self, marker: str, *literals: str) -> Incremental[bool]:
        """Return whether white space and one of `literals`, or the end of a complete message, follow `marker`. Consumes nothing."""
        while True:
            window = self.ahead(len(marker) + _LOOK_AHEAD_CHARS)
            self.work += len(window)
            rest = window[len(marker) :].lstrip()
            if rest.startswith(literals):
                return True
            if len(window) == len(marker) + _LOOK_AHEAD_CHARS or not any(literal.startswith(rest) for literal in literals):
                return False
            if not (yield from self.wait_more()):
                return not rest and not self.truncated

    def give_back(self, literal: str) -> None:
        """Give back what was consumed last."""
        self.pos -= len(literal)

    def ahead(self, limit: int) -> str:
        """Return the text that has arrived after the cursor, at most `limit` characters."""
        return self.text[self.pos : self.pos + limit]

    def peek_until(self, marker: str, limit: int) -> Incremental[str]:
        """Return the text before `marker` if it comes within `limit` characters, else an empty string. Consumes nothing."""
        while True:
            before, found, _ = self.ahead(limit).partition(marker)
            if found or len(before) >= limit or not (yield from self.wait_more()):
                return before if found else ""

    def peek_first(self, limit: int, *markers: str) -> Incremental[str]:
        """Return the first of `markers` within the next `limit` characters, or an empty string. Consumes nothing."""
        pattern, overlap, scanned = _compile_any(markers), max(map(len, markers)) - 1, 0
        while True:
            window = self.ahead(limit)
            self.work += len(window) - scanned
            found = pattern.search(window, scanned)
            if found or len(window) == limit:
                return found.group() if found else ""
            scanned = max(0, len(window) - overlap)
            if not (yield from self.wait_more()):
                return ""

    def read_until(self, *markers: str, end: bool = False, limit: int = MAX_CANDIDATE_CHARS) -> Incremental[tuple[str, str]]:
        """Consume the text up to and including the first of `markers`; return the text and the marker.

        With `end`, the end of a complete message counts as an empty marker.

        Raises:
            NotACall: There is none of the markers, or more than `limit` characters come before it.
        """
        start = self.offset
        pattern, overlap = _compile_any(markers), max(map(len, markers)) - 1
        parts: list[str] = []
        while True:
            found = pattern.search(self.text, self.pos)
            stop = found.start() if found else len(self.text) if self.ended else max(self.pos, len(self.text) - overlap)
            parts.append(self.text[self.pos : stop])
            self._move(stop)
            if self.offset - start > limit:
                raise NotACall
            if found and not self._may_be_longer(markers, overlap):
                self._move(found.end())
                return "".join(parts), found.group()
            if not (yield from self.wait_more()) and not found:
                if not end or self.truncated:
                    raise NotACall
                parts.append(self.text[self.pos :])
                self._move(len(self.text))
                self.ran_out = False
                return "".join(parts), ""

    def _may_be_longer(self, markers: tuple[str, ...], overlap: int) -> bool:
        """Whether the text after the cursor ends within one of `markers`."""
        rest = self.ahead(overlap + 1)
        return not self.ended and len(rest) <= overlap and any(marker.startswith(rest) and marker != rest for marker in markers)

    @property
    def ended(self) -> bool:
        """Whether all of the message has arrived."""
        return self.final and not self._arrived

    def read_bracketed(self, *ends: str) -> Incremental[str]:
        """Consume one bracketed value, JSON or Python, up to its closing bracket. The content is not checked.

        If the brackets do not match, the value ends at the first of `ends`, which begin with an angle bracket. Without any, there is no
        value.
        """
        parts: list[str] = []
        closers: list[str] = []
        pattern = _BRACKET_QUOTE_OR_TAG if ends else _BRACKET_OR_QUOTE
        while True:
            if self.work >= self.pause_at:
                yield from self.pause()
            found = pattern.search(self.text, self.pos)
            marker = found.group() if found else ""
            stop = len(self.text) if found is None else found.start() if marker == "<" else found.end()
            parts.append(self.text[self.pos : stop])
            self._move(stop)
            if not marker:
                if not (yield from self.wait_more()):
                    raise NotACall
            elif marker == "<":
                if (yield from self.at_any(*ends)):
                    return "".join(parts)
                parts.append((yield from self.expect(marker)))
            elif marker in _STRING_END:
                parts.append((yield from self._read_string(marker)))
            elif marker in _CLOSING_BRACKET:
                closers.append(_CLOSING_BRACKET[marker])
            elif not closers or closers.pop() != marker:
                return "".join(parts) + (yield from self._read_mismatched(ends))
            if len(closers) > _MAX_NESTING:
                raise NotACall
            if marker and not closers:
                return "".join(parts)

    def _read_mismatched(self, ends: tuple[str, ...]) -> Incremental[str]:
        """Consume the rest of a value whose brackets do not match."""
        if not ends:
            raise NotACall
        rest, end = yield from self.read_until(*ends)
        self.give_back(end)
        return rest

    def _read_string(self, quote: str) -> Incremental[str]:
        """Consume the rest of a string, with its closing quote."""
        parts: list[str] = []
        while True:
            found = _STRING_END[quote].search(self.text, self.pos)
            stop = found.start() if found else len(self.text)
            if found and found.group() == "\\" and stop + 1 >= len(self.text):
                found = None
            elif found:
                stop += 2 if found.group() == "\\" else 1
            parts.append(self.text[self.pos : stop])
            self._move(stop)
            if found is None:
                if not (yield from self.wait_more()):
                    raise NotACall
            elif found.group() == quote:
                return "".join(parts)
