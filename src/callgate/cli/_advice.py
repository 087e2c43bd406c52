"""What an error advises, in the words of the command line: an option or a variable where the library names an argument.

The library's errors speak to whoever writes Python. They are put into other words here, at the border, by a table; a test holds it against
what the library says.
"""

from __future__ import annotations

__all__ = ["ADVICE", "at_terminal"]

ADVICE = {
    ", or give api_key.": ".",
    "Give base_url, or set": "Give --base-url, or set",
    ": model('openai-compatible:NAME', base_url=...)": ", give its URL with --base-url",
    " base_url (--base-url at a terminal)": " --base-url",
    "Set base_url to the address": "Set --base-url to the address",
}
"""By what the library says, what a command says."""


def at_terminal(text: str) -> str:
    """The same text with the advice that a command line can follow."""
    for library, terminal in ADVICE.items():
        text = text.replace(library, terminal)
    return text
