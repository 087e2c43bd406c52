"""Replace the advice in the library's errors by advice for the command line.

The new advice names options and variables instead of Python arguments.

The library's errors address Python developers. A table maps their phrases to phrases for the command line. A test
checks that the library's errors contain these phrases.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["ADVICE", "RECORD_FAILURE", "at_terminal"]

RECORD_FAILURE: Final = re.compile(
    r"The record could not be (?:written|made durable) \(.*\)\. Nothing is run until [^;]*; tell the operator\."
)
"""Matches the engine's error about a failed journal; a test of `callgate run` compares it with the engine's text."""


ADVICE = {
    ", or give api_key.": ".",
    "Give base_url, or set": "Give --base-url, or set",
    ": model('openai-compatible:NAME', base_url=...)": ", give its URL with --base-url",
    " base_url (--base-url at a terminal)": " --base-url",
    "Set base_url to its target": "Set --base-url to its target",
    "recorded by this engine": "recorded",
    "what it recorded last": "what was recorded last",
    "Put the file back or take another one": "Put the file back, or give another with --journal",
    "Make room on it": "Make room on it, or give another file with --journal",
    "Raise that limit (ulimit -f)": "Raise that limit (ulimit -f), or give another file with --journal",
    ", then make a new engine": ", and try again",
    "Make a new engine once the server answers": "Try again once the server answers",
    "Nothing is run until it can be; tell the operator.": "No call runs without its record.",
    "Nothing is run until then; tell the operator.": "No call runs without its record.",
    "It is written as soon as it can be; tell the operator.": "It is written as soon as it can be.",
    "Do not repeat the call; tell the operator.": "Check what it did before you repeat it.",
    "Do not send it again; tell the operator.": "Check that before you repeat it.",
    " Tell the operator.": "",
    "It may be sent again; tell the operator.": "It may be repeated.",
}
"""Maps a phrase of the library's errors to the phrase for the command line."""


def at_terminal(text: str) -> str:
    """Return the text with advice that fits the command line."""
    for library, terminal in ADVICE.items():
        text = text.replace(library, terminal)
    return text
