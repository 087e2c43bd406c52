"""Ask the policies about what a running call meets, such as a file that it finds or an address that it is redirected to.

Beside the gate, which has judged the arguments. Nothing that was refused to the call itself becomes possible.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from callgate._pipeline.combined_verdict import GateParts, ask_all
from callgate._pipeline.validate import ModifiedCall
from callgate.errors import CallDenied
from callgate.protocols import Ask, PathFilter, PathPolicy
from callgate.stage_types import ValidatedCall

__all__ = ["PolicyRecheck"]


async def _refusal(call: ValidatedCall, parts: GateParts) -> str:
    """Return why the policies would not allow this call unchanged and without a human; empty if they would."""
    try:
        combined = await ask_all(call, parts, started=True)
    except CallDenied as error:
        return str(error)
    if isinstance(combined, ModifiedCall):
        return "a policy would change its arguments."
    verdict = combined.verdict
    return f"a human has to decide about it first: {parts.host.cut(verdict.question)}" if isinstance(verdict, Ask) else ""


class PolicyRecheck(Struct, dict=True, eq=False):
    """Asks the policies about resources that a running call meets, such as a file that it finds or an address it is
    redirected to.

    The same policies judge the resource, as part of the same call. See `ToolContext.may_visit` and `ToolContext.refusal`.
    """

    call: ValidatedCall
    parts: GateParts

    @cached_property
    def _filters(self) -> tuple[PathFilter, ...]:
        filters = (policy.path_filter(self.call) for policy in self.parts.policies if isinstance(policy, PathPolicy))
        return tuple(allows for allows in filters if allows is not None)

    def may_visit(self, path: str, size_bytes: int) -> bool:
        return all(allows(path, size_bytes) for allows in self._filters)

    async def refusal(self, changed: Mapping[str, object]) -> str:
        return await _refusal(replace(self.call, arguments={**self.call.arguments, **changed}), self.parts)
