"""The default rules of `callgate run`: allow calls that only read, ask about all others."""

from __future__ import annotations

from typing import Final

from callgate.policy.rules_policy import Rules

__all__ = ["CAREFULLY", "careful"]

CAREFULLY: Final = "without --rules"
"""The name that is shown instead of a file name for decisions by these rules."""

_TEXT: Final = """
# The default rules of `callgate run`: allow calls that only read, ask about all others.
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
    """Return the default rules of `callgate run`."""
    return Rules.parse(_TEXT, where=CAREFULLY)
