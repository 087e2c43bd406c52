"""Show the command, the address or the output of a server without the credentials in it.

What is recognised: passwords and queries of addresses, and the values of options, variables and headers whose name says
that they are secret. A reference to a variable, such as `${TOKEN}`, stays.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

__all__ = ["secrets_of", "shown_command", "shown_text", "shown_word"]

_SECRET_NAME: Final = r"[\w-]*(?:key|token|secret|passw|auth|credential)[\w-]*"
_SECRET: Final = re.compile(rf"(-{{0,2}}{_SECRET_NAME}\s*[:=]\s*)(\S.*)", re.IGNORECASE | re.DOTALL)
_SECRET_OPTION: Final = re.compile(rf"-{{1,2}}{_SECRET_NAME}", re.IGNORECASE)
_CREDENTIALS: Final = re.compile(r"(\w://)[^/@\s]+@")
_ADDRESS: Final = re.compile(r"(\w+://[^?#\s]*)([?#].*)", re.DOTALL)
_QUERY_VALUE: Final = re.compile(r"=([^&#\s]+)")
_USER: Final = re.compile(r"\w://([^/@\s]+)@")
_SECRET_IN_TEXT: Final = re.compile(
    r"((?:api[_-]?key|access[_-]?key|token|secret|passw(?:or)?d|authorization)[\w-]{0,40}['\"]?\s{0,3}[:=]\s{0,3}['\"]?(?:bearer |basic )?"
    r"|bearer )[^\s'\"&,;]{4,}",
    re.IGNORECASE,
)
_LEAST_SECRET_CHARS: Final = 4
"""A shorter text is in too many words to be left out of all of them."""
_IS_VARIABLE: Final = re.compile(r"(?:\w+ )?\$\{[^{}]*\}")


def shown_word(word: str) -> str:
    """Return a word of a command, or an address, without the credentials in it."""
    word = _CREDENTIALS.sub(r"\1***@", word)
    if address := _ADDRESS.match(word):
        word = f"{address[1]}?***" if address[2] else word
    found = _SECRET.match(word)
    return f"{found[1]}***" if found and not _IS_VARIABLE.fullmatch(found[2]) else word


def shown_command(words: Sequence[str]) -> str:
    """Return a command for a person, without the credentials in it."""
    shown = list[str]()
    for before, word in pairwise(("", *words)):
        secret = _SECRET_OPTION.fullmatch(before) and not word.startswith("-") and not _IS_VARIABLE.fullmatch(word)
        shown.append("***" if secret else shown_word(word))
    return shlex.join(shown)


def secrets_of(words: Sequence[str], values: Iterable[str]) -> tuple[str, ...]:
    """Return the texts to leave out of what a server writes, the longest first: these values, and the credentials in its command."""
    found = list(values)
    for before, word in pairwise(("", *words)):
        if _SECRET_OPTION.fullmatch(before) and not word.startswith("-"):
            found.append(word)
        if named := _SECRET.match(word):
            found += [named[2], *named[2].split()]
        if address := _ADDRESS.match(word):
            found += _QUERY_VALUE.findall(address[2])
        for user in _USER.findall(word):
            found += [user, *user.split(":")]
    lines = (line.strip() for text in found for line in (text, *text.splitlines()))
    return tuple(sorted({line for line in lines if len(line) >= _LEAST_SECRET_CHARS}, key=len, reverse=True))


def shown_text(text: str, secrets: Iterable[str]) -> str:
    """Return what a server has written without these texts, and without what looks like a credential."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return _SECRET_IN_TEXT.sub(r"\1***", _CREDENTIALS.sub(r"\1***@", text))
