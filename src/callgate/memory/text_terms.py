"""Text as words, for keeping and for asking: the same on both sides.

Scripts that put no spaces between words (Chinese, Japanese, Thai and others) are taken a character at a time, so that any piece of such
text is found; signs such as emoji are words too. A question has no syntax: what a person or a model wrote can ask for nothing but words.
Pure.
"""

from __future__ import annotations

import re
import unicodedata

__all__ = ["MARK", "MOST_WORDS", "TOKENIZER", "asked_words", "match_expression", "plain", "spaced", "tokens"]

MARK = "\ue000"
"""Stands between characters that are words of their own; taken out of whatever comes in."""
MOST_WORDS = 32
_MOST_CHARS = 64
_PREFIX_CHARS = 3
TOKENIZER = "unicode61 remove_diacritics 2 categories 'L* N* So'"
_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff])"
)
_BETWEEN = re.compile(r"[\s,:;(){}\[\]\"'<>|!?*^+=/\\]+")
"""What separates the words of a question; dots, dashes and underscores hold a name together."""
_WORD = re.compile(r"[^\W_]+")


def plain(text: str) -> str:
    """Text that a store can hold: no NUL, no lone surrogate, no mark of ours."""
    return text.replace("\0", " ").replace(MARK, " ").encode("utf-8", "replace").decode()


def spaced(text: str) -> str:
    """The text with a mark on both sides of each character that is a word of its own."""
    return _UNSPACED.sub(f"{MARK}\\1{MARK}", plain(text))


def asked_words(text: str) -> list[str]:
    """What a question asks for: its first words, each once."""
    return list(dict.fromkeys(word[:_MOST_CHARS] for word in _BETWEEN.split(plain(text)) if word))[:MOST_WORDS]


def match_expression(text: str) -> str:
    """The question in the syntax of SQLite's full-text search: any of the words, each quoted. Empty where there is none."""
    return " OR ".join(f'"{_quoted(word)}"{"*" if _may_begin(word) else ""}' for word in asked_words(text))


def _quoted(word: str) -> str:
    return spaced(word).replace('"', '""')


def _may_begin(word: str) -> bool:
    """Whether longer words count too."""
    return len(word) >= _PREFIX_CHARS and word[-1].isalnum()


def tokens(text: str) -> list[str]:
    """The words of a text as they are compared: without case and accents."""
    return [_folded(one) for piece in spaced(text).split(MARK) for one in _pieces(piece)]


def _pieces(text: str) -> list[str]:
    signs = [char for char in text if unicodedata.category(char) == "So"] if not text.isascii() else []
    return _WORD.findall(text) + signs


def _folded(word: str) -> str:
    return "".join(char for char in unicodedata.normalize("NFKD", word.lower()) if unicodedata.category(char) != "Mn")
