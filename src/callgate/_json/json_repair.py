"""Repair JSON that is complete but malformed, if it has only one possible meaning.

The text is split into tokens, and the tokens are written as JSON, which the strict parser then reads; it refuses duplicate keys, missing
values and numbers out of range as usual. The time is proportional to the size of the text. Repair libraries were measured and are not used:
they complete truncated text, merge objects and treat prose as values, and one of them needed five seconds for 16 KB of quotes. Pure. Used
only if the host enables it.

The rules are closed: `docs/reference/malformed-calls.md` lists each of them with the reason why it has one meaning only, and what is
refused because it has several. Everything else is refused, above all what would have to be completed.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import NamedTuple

from callgate._engine_limits import Limits
from callgate._json import strict_value
from callgate._json.unquoted_words import is_plain_word, key_as_json, quoted_as_json, value_as_json
from callgate.errors import ArgumentsMalformed, ArgumentsTruncated

__all__ = ["repair_text"]

_TOKEN = re.compile(
    r"""(?P<blank>\s+)
    | (?P<comment>/\*.*?(?:\*/|\Z) | //[^\r\n\u2028\u2029]* | \#(?=\s)[^\r\n\u2028\u2029]*)
    | (?P<invisible>[\ufeff\u200b\u200c\u200d\u2060]+)
    | (?P<escaped>(?:\\[nrt])+)
    | (?P<fence>```(?:json5?\b|\w+(?=\s))? | `)
    | (?P<gap>\.\.\.(?!\w))
    | (?P<open>[\[{]) | (?P<close>[\]}]) | (?P<comma>, | ;(?=[\s`]*\Z)) | (?P<colon>:)
    | (?P<quoted>"[^"\\]*(?:\\.[^"\\]*)*" | '[^'\\]*(?:\\.[^'\\]*)*' | “[^“”]*” | \u2018[^\u2018\u2019]*\u2019)
    | (?P<key>[\w$.-]+"(?=\s*:))
    | (?P<bare>\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?(?![\w:])
      | [A-Za-z][\w+.-]*+://[^\s,;<>(){}\[\]"'`\\]++(?=\s*[\]}]|,[\s"{\[])
      | (?:[-+.$@]|/(?![/*]))*\w(?:[\w.$@+-]|/(?![/*]))*)
    | (?P<broken>.)""",
    re.DOTALL | re.VERBOSE,
)
_INVISIBLE = frozenset("\ufeff\u200b\u200c\u200d\u2060")
_ESCAPED_SPACES = frozenset({r"\n", r"\r", r"\t"})
_SKIPPED = frozenset({"blank", "comment", "invisible", "escaped"})
_WORDS = frozenset({"quoted", "key", "bare", "gap"})
_CLOSER = {"[": "]", "{": "}"}
_QUOTES_ONLY = re.compile(r'\\(.)|"', re.DOTALL)


class Token(NamedTuple):
    """A word or a punctuation mark, and what stands between the previous token and it."""

    kind: str
    text: str
    before: str = ""
    """White space and comments before the token. A line break may be escaped."""
    unclear: bool = False
    """Whether a comment, an invisible character or an escaped line break is in `before`."""


def repair_text(text: str, limits: Limits) -> tuple[bool, object]:
    """Return whether `text` has exactly one meaning as JSON, and the value that it means.

    Truncated and empty text have none.
    """
    try:
        value = strict_value(text, limits)
        return value not in (None, "") or text.strip() == "null", value
    except (ArgumentsMalformed, ArgumentsTruncated) as error:
        if error.code not in ("invalid_json", "truncated") or len(text.encode()) > limits.repair_bytes:
            return False, None
    if '\\"' in text and (inner := _read_escaped_object(text, limits)) is not None:
        return True, inner
    tokens = _split_tokens(text)
    written = _write_tokens(tokens) if tokens else None
    if written is None:
        return False, None
    try:
        return True, strict_value(written, limits)
    except (ArgumentsMalformed, ArgumentsTruncated):
        return False, None


def _read_escaped_object(text: str, limits: Limits) -> object:
    r"""Return the object in text whose quotation marks are all escaped; None if there is none.

    The text may be the inside of a JSON string, or an object of which only the quotation marks were escaped. If it is both, both must
    give the same object.
    """
    if any(match.group() == '"' for match in _QUOTES_ONLY.finditer(text)):
        return None
    found: list[object] = []
    for inner in (_decode_string_content(text), text.replace('\\"', '"')):
        try:
            value = None if inner is None else strict_value(inner, limits)
        except (ArgumentsMalformed, ArgumentsTruncated):
            continue
        if isinstance(value, dict) and value not in found:
            found.append(value)
    return found[0] if len(found) == 1 else None


def _decode_string_content(text: str) -> str | None:
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return None


def _split_tokens(text: str) -> list[Token] | None:
    """Return the tokens of `text` without the code fences around it; None if it contains anything else."""
    found: list[Token] = []
    before, unclear = "", False
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind == "broken" or (kind == "comment" and match.group().count('"') % 2):  # it may be text that lost a quotation mark
            return None
        if kind in _SKIPPED:
            before, unclear = before + match.group(), unclear or kind != "blank"
            continue
        found.append(Token(kind, match.group(), before, unclear))
        before, unclear = "", False
    found.append(Token("end", "", before, unclear))
    return _strip_fences(found)


def _strip_fences(tokens: list[Token]) -> list[Token] | None:
    begin, end = 0, len(tokens) - 1
    while tokens[begin].kind == "fence":
        begin += 1
    while end > begin and tokens[end - 1].kind == "fence":
        end -= 1
    inner = tokens[begin:end]
    if len(inner) > 4 and [one.kind for one in (inner[0], inner[1], inner[-2], inner[-1])] == ["open", "fence", "fence", "close"]:
        inner = inner[2:-2]
    return None if any(one.kind == "fence" for one in inner) else [*inner, tokens[-1]]


def _write_tokens(tokens: list[Token]) -> str | None:
    """Return the tokens as JSON, or None if they do not have exactly one meaning."""
    if any(_is_torn(one, following) for one, following in pairwise(tokens)):
        return None
    texts = [one.text for one in tokens[:-1]]
    if texts[:2] == ["{", "{"] and texts[-2:] == ["}", "}"]:
        return _Writer([*tokens[1:-2], tokens[-1]]).write(most_roots=1) or _Writer(_halve_doubled_braces(tokens)).write(most_roots=1)
    return _Writer(tokens).write()


def _halve_doubled_braces(tokens: list[Token]) -> list[Token]:
    """Return the tokens with one brace for two, as in the text that a template makes; without any change if a brace is alone."""
    found: list[Token] = []
    position = 0
    while position < len(tokens):
        one = tokens[position]
        if one.text in ("{", "}"):
            position += 1
            if tokens[position].text != one.text or tokens[position].before:
                return tokens
        found.append(one)
        position += 1
    return found


def _is_torn(one: Token, following: Token) -> bool:
    """Return whether the border between two tokens may be inside a text of the model.

    This is so if two words touch, or if a comment, an invisible character or an escaped line break touches unquoted text.
    """
    if one.kind in _WORDS and following.kind in _WORDS and not following.before:
        return True
    touches = following.before[-1:] in _INVISIBLE or following.before[-2:] in _ESCAPED_SPACES
    return (following.unclear and _is_unquoted_text(one)) or (touches and _is_unquoted_text(following))


def _is_unquoted_text(token: Token) -> bool:
    """Return whether the token is an unquoted word that is neither a number nor a constant."""
    return token.kind == "bare" and (value_as_json(token.text) or '"').startswith('"')


class _Container:
    """An open list or object while it is written."""

    def __init__(self, opener: str) -> None:
        self.opener = opener
        self.state = "key" if opener == "{" else "item"
        """What comes next: a `key`, `colon`, `value` or `item`, or `next`: a comma or the end."""
        self.values = 0
        self.gaps = 0
        self.comma = False
        self.strings = 0
        """The strings of a list since its last comma or line break."""


class _Writer:
    """Writes tokens as JSON, with exactly one comma between values."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._out: list[str] = []
        self._open: list[_Container] = []
        self._roots = 0
        self._after_close = False
        """Whether a comma is missing behind a closing bracket, which may then be an additional one."""

    def write(self, *, most_roots: int | None = None) -> str | None:
        """Return the tokens as text, or None if a token is in the wrong place."""
        position = 0
        while self._tokens[position].kind != "end" and not self._is_tail(position):
            taken = self._write_token(position)
            if not taken:
                return None
            position += taken
        if self._tokens[position].kind == "end" and self._open:
            return None
        if not all(self._close_container() for _ in list(self._open)):
            return None
        if not self._roots or (most_roots is not None and self._roots > most_roots):
            return None
        written = "".join(self._out)
        return f"[{written}]" if self._roots > 1 else written

    def _is_tail(self, position: int) -> bool:
        """Return whether a wrong or additional bracket begins here, and only brackets follow, as many as are open or behind the root.

        Then the value is the same, whichever bracket closes what. With more inside the root, an opening bracket may be missing.
        """
        token = self._tokens[position]
        if token.kind != "close" or (self._open and token.text == _CLOSER[self._open[-1].opener]) or self._roots != 1:
            return False
        if self._after_close and not self._open:
            return False
        rest = self._tokens[position:]
        if any(one.unclear for one in rest):  # a comment may be the rest of a text that lost its quotation mark
            return False
        return all(one.kind == "close" for one in rest[:-1]) and (not self._open or len(rest) - 1 == len(self._open))

    def _write_token(self, position: int) -> int:
        """Write the token and return how many tokens were used; 0 if it is in the wrong place."""
        token, following = self._tokens[position], self._tokens[position + 1]
        if not self._open:
            return self._write_root(token, following)
        match token.kind:
            case "comma":
                return self._write_comma(self._open[-1])
            case "gap":
                return self._skip_gap(self._open[-1], following)
            case "colon":
                return self._write_colon(self._open[-1])
            case "close":
                return token.text == _CLOSER[self._open[-1].opener] and self._close_container()
            case _:
                return self._write_word(position)

    def _write_root(self, token: Token, following: Token) -> int:
        if token.kind == "comma":
            return self._roots > 0 and following.kind in ("open", "end")
        if token.kind != "open":
            return 0
        if self._roots:
            self._out.append(",")
        self._roots += 1
        return self._open_container(token.text)

    def _open_container(self, opener: str) -> int:
        self._out.append(opener)
        self._open.append(_Container(opener))
        return 1

    def _write_comma(self, into: _Container) -> int:
        leading = into.opener == "{" and not into.values and not into.gaps and not into.comma and into.state == "key"
        if into.state != "next" and not leading:
            return 0
        into.state, into.comma, into.strings = "key" if into.opener == "{" else "item", True, 0
        return 1

    def _skip_gap(self, into: _Container, following: Token) -> int:
        if into.state not in ("key", "item") or following.kind not in ("comma", "close"):
            return 0
        into.gaps += 1
        into.state, into.comma = "next", False
        return 1

    def _write_colon(self, into: _Container) -> int:
        if into.state != "colon":
            return 0
        self._out.append(":")
        into.state = "value"
        return 1

    def _close_container(self) -> int:
        closed = self._open.pop()
        is_whole = closed.state in ("next", "key", "item")
        if not is_whole or (not closed.values and (closed.gaps or closed.comma)):
            return 0
        self._out.append(_CLOSER[closed.opener])
        if self._open:
            self._open[-1].state = "next"
        return 1

    def _write_word(self, position: int) -> int:
        into, token, following = self._open[-1], self._tokens[position], self._tokens[position + 1]
        if into.state == "colon" or (into.state == "next" and not self._may_lack_comma(position)):
            return 0
        self._after_close = self._after_close or (into.state == "next" and self._tokens[position - 1].kind == "close")
        if into.opener == "{" and into.state != "value":
            return self._write_key(into, token, following, self._tokens[position - 1])
        if into.opener == "[" and following.kind == "colon":
            return 0
        return self._write_value(into, position)

    def _write_key(self, into: _Container, token: Token, following: Token, previous: Token) -> int:
        if following.kind != "colon" or token.kind == "open" or (token.kind == "key" and previous.text not in ("{", ",")):
            return 0
        written = key_as_json(token.text) if token.kind == "bare" else _convert_token(token)
        if written is None:
            return 0
        self._out += (",", written) if into.values else (written,)
        into.values += 1
        into.state, into.comma = "colon", False
        return 1

    def _write_value(self, into: _Container, position: int) -> int:
        token = self._tokens[position]
        if into.opener == "[":
            if into.values:
                self._out.append(",")
            into.values += 1
            into.strings += token.kind == "quoted"
            into.comma = False
        into.state = "next"
        if token.kind == "open":
            return self._open_container(token.text)
        count = self._count_words(position) if into.opener == "{" else 1
        written = (
            _convert_token(token) if count == 1 else json.dumps(" ".join(one.text for one in self._tokens[position : position + count]))
        )
        if written is None:
            return 0
        self._out.append(written)
        return count

    def _count_words(self, position: int) -> int:
        """Return how many tokens from here on are one text: plain words with one space between them."""
        end = position + 1
        if self._tokens[position].kind != "bare" or not is_plain_word(self._tokens[position].text):
            return 1
        while self._tokens[end].kind == "bare" and self._tokens[end].before == " " and is_plain_word(self._tokens[end].text):
            end += 1
        return end - position

    def _may_lack_comma(self, position: int) -> bool:
        """Return whether a value or key certainly begins at this token, although no comma is before it."""
        previous, token, into = self._tokens[position - 1], self._tokens[position], self._open[-1]
        if previous.kind == "gap":
            return False
        has_break = "\n" in token.before or "\r" in token.before
        if has_break:
            into.strings = 0
        if into.opener == "{":
            return token.kind == "quoted" or (token.kind == "bare" and (has_break or previous.kind == "close"))
        if token.kind == "quoted" and into.strings:
            return False
        if previous.kind == "close" or token.kind == "open":
            return True
        if _is_unquoted_text(previous) or _is_unquoted_text(token):
            return False
        return has_break or (previous.kind == "quoted") != (token.kind == "quoted")


def _convert_token(token: Token) -> str | None:
    if token.kind == "key":
        return json.dumps(token.text[:-1])
    return quoted_as_json(token.text[1:-1]) if token.kind == "quoted" else value_as_json(token.text)
