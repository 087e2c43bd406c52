"""A place in text that is still arriving, and the few ways to move it.

Every way to move is a generator: it waits where the text so far does not decide, so a dialect reads as if the text were whole and its
result cannot depend on where a stream was cut. What a candidate has read can be given back. Each piece of text is looked at a bounded
number of times, however it arrives. Knows no dialect and no tool.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from functools import lru_cache
from typing import TypeVar

__all__ = ["MAX_CANDIDATE_CHARS", "Incremental", "NotACall", "TextCursor"]

T = TypeVar("T")
Incremental = Generator[None, None, T]
"""Yields whenever it needs more text, and returns a T."""

MAX_CANDIDATE_CHARS = 1_048_576
"""What a call may take up, in characters. What is longer is text."""
_MAX_DEPTH = 200
_LOOK_AHEAD = 64
_WHITE = re.compile(r"\s*")
_MARK, _MARK_OR_END = re.compile(r"""[\[\](){}"']"""), re.compile(r"""[\[\](){}"'<]""")
_CLOSER = {"[": "]", "{": "}", "(": ")"}
_STRING_STOP = {'"': re.compile(r'["\\]'), "'": re.compile(r"['\\]")}


class NotACall(Exception):
    """What was tried is not what stands here. Never leaves the reader."""


@lru_cache(maxsize=256)
def _any_of(marks: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(mark) for mark in sorted(marks, key=len, reverse=True)))


class TextCursor:
    """Reads text that arrives in pieces."""

    def __init__(self) -> None:
        self.text = ""
        """What has arrived and is not yet read, from some point on."""
        self.pos = 0
        self.final = False
        """Whether no text follows what has arrived."""
        self.truncated = False
        """Whether the message did not end well."""
        self.ran_out = False
        """Whether the candidate wanted more text than there is."""
        self.base = 0
        self.version = 0
        """Changes with `text`: a position in it means something for one version only."""
        self.pause_at = 0
        """How much work may be done before whoever drives the reading gets the turn."""
        self.paused = False
        """Whether the last yield was such a pause: there is more to read than was read."""
        self._arrived: list[str] = []
        self._taken: list[str] = []
        self._mark = 0
        self._start = 0
        self.work = 0
        """Characters looked at in all, for those who check that this is linear."""

    def feed(self, text: str) -> None:
        """Take in the next piece."""
        if text:
            self._arrived.append(text)

    @property
    def offset(self) -> int:
        """Where the cursor stands in the whole message."""
        return self.base + self.pos

    @property
    def candidate_chars(self) -> int:
        """How many characters the candidate has read."""
        return self.offset - self._start

    def start_candidate(self) -> None:
        """Start a candidate here."""
        self._taken.clear()
        self._mark, self._start, self.ran_out = self.pos, self.offset, False

    def rewind(self) -> None:
        """Go back to where the candidate began."""
        if self._taken:
            self.text = "".join(self._taken) + self.text[self._mark :]
            self.work += len(self.text)
            self.version += 1
            self._taken.clear()
            self._mark, self.base = 0, self._start
        self.pos = self._mark

    def candidate_text(self) -> str:
        """What the candidate has read."""
        return "".join(self._taken) + self.text[self._mark : self.pos]

    def wait_more(self) -> Incremental[bool]:
        """Wait for more text; False if there is none."""
        self._bounded()
        while not self._arrived:
            if self.final:
                self.ran_out = True
                return False
            yield
        self._taken.append(self.text[self._mark : self.pos])
        self.base += self.pos
        self.text = "".join((self.text[self.pos :], *self._arrived))
        self.work += len(self.text)
        self.version += 1
        self.pos = self._mark = 0
        self._arrived.clear()
        return True

    def pause(self) -> Incremental[None]:
        """Give whoever drives the reading the turn, if much was read since."""
        if self.work >= self.pause_at:
            self.paused = True
            yield

    def _bounded(self) -> None:
        if self.candidate_chars > MAX_CANDIDATE_CHARS:
            raise NotACall

    def _move(self, pos: int) -> None:
        self.work += pos - self.pos
        self.pos = pos
        self._bounded()

    def at(self, literal: str) -> Incremental[bool]:
        """Whether `literal` comes next."""
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
        """Whether one of `literals` comes next."""
        found = yield from self.take(*literals)
        self.give_back(found)
        return bool(found)

    def take(self, *literals: str) -> Incremental[str]:
        """The first of `literals` that comes next, read; nothing if none does."""
        for literal in literals:
            if (yield from self.at(literal)):
                self._move(self.pos + len(literal))
                return literal
        return ""

    def expect(self, *literals: str) -> Incremental[str]:
        """The same, where one of them has to come."""
        found = yield from self.take(*literals)
        if not found:
            raise NotACall
        return found

    def skip_space(self) -> Incremental[None]:
        """Read white space, if any."""
        yield from self.take_while(_WHITE)

    def take_while(self, pattern: re.Pattern[str]) -> Incremental[str]:
        """Read the longest run of one class of characters; `pattern` is that class with a star."""
        parts: list[str] = []
        while True:
            found = pattern.match(self.text, self.pos)
            end = found.end() if found else self.pos
            parts.append(self.text[self.pos : end])
            self._move(end)
            if end < len(self.text) or not (yield from self.wait_more()):
                return "".join(parts)

    def peek(self) -> Incremental[str]:
        """The next character; nothing at the end of the message."""
        while self.pos >= len(self.text):
            if not (yield from self.wait_more()):
                return ""
        return self.text[self.pos]

    def is_followed_by(self, mark: str, *literals: str) -> Incremental[bool]:
        """Whether one of `literals`, or the end of a message that was not cut off, comes behind `mark` and white space. Nothing is read."""
        while True:
            window = self.ahead(len(mark) + _LOOK_AHEAD)
            self.work += len(window)
            rest = window[len(mark) :].lstrip()
            if rest.startswith(literals):
                return True
            if len(window) == len(mark) + _LOOK_AHEAD or not any(literal.startswith(rest) for literal in literals):
                return False
            if not (yield from self.wait_more()):
                return not rest and not self.truncated

    def give_back(self, literal: str) -> None:
        """Give back what was read last."""
        self.pos -= len(literal)

    def ahead(self, limit: int) -> str:
        """What comes next as far as it has arrived, at most `limit` characters."""
        return self.text[self.pos : self.pos + limit]

    def peek_until(self, mark: str, limit: int) -> Incremental[str]:
        """What comes before `mark`, if that comes within `limit` characters; nothing if not. Nothing is read."""
        while True:
            before, found, _ = self.ahead(limit).partition(mark)
            if found or len(before) >= limit or not (yield from self.wait_more()):
                return before if found else ""

    def read_until(self, *marks: str, end: bool = False) -> Incremental[tuple[str, str]]:
        """Read up to the first of `marks` and over it: what came before it, and which it was.

        With `end`, the end of a message that was not cut off is a mark, too: the empty one.
        """
        pattern, overlap = _any_of(marks), max(map(len, marks)) - 1
        parts: list[str] = []
        while True:
            found = pattern.search(self.text, self.pos)
            stop = found.start() if found else len(self.text) if self.ended else max(self.pos, len(self.text) - overlap)
            parts.append(self.text[self.pos : stop])
            self._move(stop)
            if found:
                self._move(found.end())
                return "".join(parts), found.group()
            if not (yield from self.wait_more()):
                if not end or self.truncated:
                    raise NotACall
                parts.append(self.text[self.pos :])
                self._move(len(self.text))
                return "".join(parts), ""

    @property
    def ended(self) -> bool:
        """Whether all of the message has arrived."""
        return self.final and not self._arrived

    def read_bracketed(self, *ends: str) -> Incremental[str]:
        """Read one bracketed value, JSON or Python, up to the bracket that closes it. What it holds is for others to judge.

        Where brackets do not match, it goes up to the first of `ends`, marks that begin with an angle bracket; without any, it is no value.
        """
        parts: list[str] = []
        closers: list[str] = []
        pattern = _MARK_OR_END if ends else _MARK
        while True:
            if self.work >= self.pause_at:
                yield from self.pause()
            found = pattern.search(self.text, self.pos)
            mark = found.group() if found else ""
            stop = len(self.text) if found is None else found.start() if mark == "<" else found.end()
            parts.append(self.text[self.pos : stop])
            self._move(stop)
            if not mark:
                if not (yield from self.wait_more()):
                    raise NotACall
            elif mark == "<":
                if (yield from self.at_any(*ends)):
                    return "".join(parts)
                parts.append((yield from self.expect(mark)))
            elif mark in _STRING_STOP:
                parts.append((yield from self._string(mark)))
            elif mark in _CLOSER:
                closers.append(_CLOSER[mark])
            elif not closers or closers.pop() != mark:
                return "".join(parts) + (yield from self._broken(ends))
            if len(closers) > _MAX_DEPTH:
                raise NotACall
            if mark and not closers:
                return "".join(parts)

    def _broken(self, ends: tuple[str, ...]) -> Incremental[str]:
        """The rest of a value whose brackets do not match."""
        if not ends:
            raise NotACall
        rest, end = yield from self.read_until(*ends)
        self.give_back(end)
        return rest

    def _string(self, quote: str) -> Incremental[str]:
        """Read the rest of a string, with its closing quote."""
        parts: list[str] = []
        while True:
            found = _STRING_STOP[quote].search(self.text, self.pos)
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
