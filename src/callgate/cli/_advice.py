"""What an error advises, in the words of the command line: an option or a variable where the library names an argument.

The library's errors speak to whoever writes Python. They are put into other words here, at the border, by a table; a test holds it against
what the library says.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["ADVICE", "RECORD_FAILURE", "at_terminal"]

RECORD_FAILURE: Final = re.compile(
    r"The record could not be (?:written|made durable) \(.*\)\. Nothing is run until [^;]*; tell the operator\."
)
"""What an engine says of a journal that failed; a test of `callgate run` holds it against what the engine says."""


ADVICE = {
    ", or give api_key.": ".",
    "Give base_url, or set": "Give --base-url, or set",
    ": model('openai-compatible:NAME', base_url=...)": ", give its URL with --base-url",
    " base_url (--base-url at a terminal)": " --base-url",
    "Set base_url to the address": "Set --base-url to the address",
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
    "It may be sent again; tell the operator.": "It may be repeated.",
}
"""By what the library says, what a command says."""


def at_terminal(text: str) -> str:
    """The same text with the advice that a command line can follow."""
    for library, terminal in ADVICE.items():
        text = text.replace(library, terminal)
    return text
