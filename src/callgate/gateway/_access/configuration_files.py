"""A rule that denies the built-in file tools to write the files of a gateway's configuration.

The workspace of a gateway is the folder of its configuration, if no other is named.
"""

from __future__ import annotations

from callgate.gateway.config import GatewayConfig
from callgate.policy import Rules
from callgate.policy.protected_files import rules_against_writing

__all__ = ["configuration_rules"]

_REASON = "This file belongs to the configuration of the gateway, which only its operator changes."


def configuration_rules(config: GatewayConfig) -> tuple[Rules, ...]:
    """Return the rule as a policy; none if no file of the configuration is in the workspace, or there are no Python tools."""
    files = (*config.files, *config.rules) if config.tools else ()
    return rules_against_writing(files, workspace=config.workspace, reason=_REASON, where="callgate serve")
