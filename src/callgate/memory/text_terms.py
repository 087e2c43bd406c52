"""Split text into words, in the same way for storing and for searching.

In scripts without spaces between words (Chinese, Japanese, Thai and others) each character is a word, so that any part
of a text is found. Symbols such as emoji are words too. A question is plain text without a query syntax. Pure.
"""

from __future__ import annotations

import re
import unicodedata

__all__ = ["MARK", "MOST_WORDS", "TOKENIZER", "asked_words", "match_expression", "plain", "spaced", "tokens"]

MARK = "\ue000"
"""The separator around each character that is a word of its own. It is removed from input."""
MOST_WORDS = 32
_MOST_CHARS = 64
_PREFIX_CHARS = 3
TOKENIZER = "unicode61 remove_diacritics 2 categories 'L* N* So'"
_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff])"
)
_BETWEEN = re.compile(r"[\s,:;(){}\[\]\"'<>|!?*^+=/\\]+")
"""The separators of words in a question. Dots, dashes and underscores are part of words."""
_WORD = re.compile(r"[^\W_]+")


def plain(text: str) -> str:
    """Return the text in a form that a store can hold: NUL, lone surrogates and the separator are replaced."""
    return text.replace("\0", " ").replace(MARK, " ").encode("utf-8", "replace").decode()


def spaced(text: str) -> str:
    """Return the text with separators around each character that is a word of its own."""
    return _UNSPACED.sub(f"{MARK}\\1{MARK}", plain(text))


def asked_words(text: str) -> list[str]:
    """Return the first words of a question, without duplicates, at most `MOST_WORDS`."""
    return list(dict.fromkeys(word[:_MOST_CHARS] for word in _BETWEEN.split(plain(text)) if word))[:MOST_WORDS]


def match_expression(text: str) -> str:
    """Return a full-text query for SQLite that matches any word of the question.

    Return an empty text if there are no words.
    """
    return " OR ".join(f'"{_quote(word)}"{"*" if _may_begin(word) else ""}' for word in asked_words(text))


def _quote(word: str) -> str:
    return spaced(word).replace('"', '""')


def _may_begin(word: str) -> bool:
    """Return whether the word also matches longer words that begin with it."""
    return len(word) >= _PREFIX_CHARS and word[-1].isalnum()


def tokens(text: str) -> list[str]:
    """Return the words of a text in lower case and without accents, for comparison."""
    return [_fold(one) for piece in spaced(text).split(MARK) for one in _pieces(piece)]


def _pieces(text: str) -> list[str]:
    signs = [char for char in text if unicodedata.category(char) == "So"] if not text.isascii() else []
    return _WORD.findall(text) + signs


def _fold(word: str) -> str:
    return "".join(char for char in unicodedata.normalize("NFKD", word.lower()) if unicodedata.category(char) != "Mn")
