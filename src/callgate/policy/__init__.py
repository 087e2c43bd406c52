"""Policies decide which calls may run. This package has rules from a TOML file, and the facts that they use.

A policy is anything with `async decide(call) -> Verdict`; see `callgate.protocols.Policy`.

`rules_policy` decides with the rules of a file, which `rule_file` reads and `rule_checks` compares with the registered tools.
`rule_matching` is one rule and `rule_conditions` its conditions; `condition_satisfiability` knows which can never hold. `call_facts`
computes the facts of a call, with `ignored_paths` and `commands`. `rules_for_found_paths` applies the rules to files that a call finds.
`default_rules` are those of `callgate run`, and `protected_files` keeps file tools from writing the files that configure it.
"""

from __future__ import annotations

from callgate.policy.default_rules import careful
from callgate.policy.rules_policy import Rules
from callgate.protocols import Allow, Ask, Deny, Modify, Policy, Verdict

__all__ = ["Allow", "Ask", "Deny", "Modify", "Policy", "Rules", "Verdict", "careful"]
