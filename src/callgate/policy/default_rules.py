"""The rules of a run at a terminal that is given none: reading is free, the rest is asked about."""

from __future__ import annotations

from typing import Final

from callgate.policy.rules import Rules

__all__ = ["CAREFULLY", "careful"]

CAREFULLY: Final = "without --rules"
"""What decisions by these rules name in the place of a file."""

_TEXT: Final = """
# Rules of a run that is given none: reading is free, the rest is asked about.
default = "ask"

[[rule]]
id = "reads"
verdict = "allow"
when = { effect = "none" }

[[rule]]
id = "pages"
verdict = "ask"
tool = "fetch_url"
optional = true
reason = "Ask the network for this address?"
"""


def careful() -> Rules:
    """The rules that `callgate run` goes by where it is given none."""
    return Rules.parse(_TEXT, where=CAREFULLY)
