"""A rule that denies the built-in file tools to write some files of a workspace: those that configure what may run.

Without it, a model could write the rules that judge its calls, the list of accepted tools, and the commands of servers. Commands are not
restricted. Reads no file but to resolve links.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from callgate.policy.rule_conditions import as_condition
from callgate.policy.rule_matching import Rule
from callgate.policy.rules_policy import Rules

__all__ = ["rules_against_writing"]


def rules_against_writing(files: Iterable[str | os.PathLike[str]], *, workspace: str, reason: str, where: str) -> tuple[Rules, ...]:
    """Return the rule as a policy; none if no file is in the workspace.

    Args:
        files: The files, which need not exist.
        workspace: The workspace of all calls that are judged.
        reason: What the model reads if it is denied.
        where: The command that the files configure.
    """
    root = os.path.realpath(workspace)
    real = {os.path.relpath(os.path.realpath(file), root) for file in files}
    inside = sorted(path for path in real if path.split(os.sep)[0] != os.pardir)
    if not inside:
        return ()
    rule = Rule(
        id="configuration",
        verdict="deny",
        tools=("write_file", "edit_file"),
        conditions=(as_condition("layer", "builtin", where), as_condition("path", inside, where)),
        reason=reason,
        where=where,
        optional=True,
    )
    return (Rules((rule,)),)
