"""Show the command or the address of a server without the credentials in it.

What is recognised: passwords and queries of addresses, and the values of options, variables and headers whose name says
that they are secret. A reference to a variable, such as `${TOKEN}`, stays.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

__all__ = ["shown_command", "shown_word"]

_SECRET_NAME: Final = r"[\w-]*(?:key|token|secret|passw|auth|credential)[\w-]*"
_SECRET: Final = re.compile(rf"(-{{0,2}}{_SECRET_NAME}\s*[:=]\s*)(\S.*)", re.IGNORECASE | re.DOTALL)
_SECRET_OPTION: Final = re.compile(rf"-{{1,2}}{_SECRET_NAME}", re.IGNORECASE)
_CREDENTIALS: Final = re.compile(r"(\w://)[^/@\s]+@")
_ADDRESS: Final = re.compile(r"(\w+://[^?#\s]*)([?#].*)", re.DOTALL)
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
