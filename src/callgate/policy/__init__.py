"""Policies decide which calls may run. This package has rules from a TOML file, and the facts that they use.

A policy is anything with `async decide(call) -> Verdict`; see `callgate.protocols.Policy`.
"""

from __future__ import annotations

from callgate.policy.default_rules import careful
from callgate.policy.rules_policy import Rules
from callgate.protocols import Allow, Ask, Deny, Modify, Policy, Verdict

__all__ = ["Allow", "Ask", "Deny", "Modify", "Policy", "Rules", "Verdict", "careful"]
