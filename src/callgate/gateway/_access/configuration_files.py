"""A rule that denies the built-in file tools to write the files of a gateway's configuration.

The workspace of a gateway is the folder of its configuration, if no other is named: without this rule, a model could write the rules that
judge its calls, the list of accepted tools, and the commands of servers. Commands are not restricted. Reads no file but to resolve links.
"""

from __future__ import annotations

import os

from callgate.gateway.config import GatewayConfig
from callgate.policy import Rules
from callgate.policy.rule_conditions import as_condition
from callgate.policy.rule_matching import Rule

__all__ = ["configuration_rules"]

_WHERE = "callgate serve"


def configuration_rules(config: GatewayConfig) -> tuple[Rules, ...]:
    """Return the rule as a policy; none if no file of the configuration is in the workspace, or there are no Python tools."""
    root = os.path.realpath(config.workspace)
    real = {os.path.relpath(os.path.realpath(file), root) for file in (*config.files, *config.rules)}
    inside = sorted(path for path in real if path.split(os.sep)[0] != os.pardir)
    if not (inside and config.tools):
        return ()
    rule = Rule(
        id="configuration",
        verdict="deny",
        tools=("write_file", "edit_file"),
        conditions=(as_condition("layer", "builtin", _WHERE), as_condition("path", inside, _WHERE)),
        reason="This file belongs to the configuration of the gateway, which only its operator changes.",
        where=_WHERE,
        optional=True,
    )
    return (Rules((rule,)),)
