"""What a running call may ask of the policies: whether a file that it comes across, or an address that it is sent on to, is allowed, too.

The gate judged the arguments. What a tool meets on its way is judged here, by the same policies and with the same call; nothing that was
refused to the call itself becomes possible. Starts nothing and records nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from msgspec.structs import replace

from callgate._pipeline.gate import Gate, Judge, refusal
from callgate.protocols import PathFilter, PathPolicy
from callgate.route import ValidatedCall

__all__ = ["Rejudge"]


class Rejudge:
    """The policies, for one call that runs; see `ToolContext.may_visit` and `ToolContext.refusal`."""

    def __init__(self, call: ValidatedCall, deps: Gate) -> None:
        self._call = call
        self._deps = deps

    @cached_property
    def _filters(self) -> tuple[PathFilter, ...]:
        return tuple(_filters(self._call, self._deps.policies))

    def may_visit(self, path: str, size_bytes: int) -> bool:
        return all(allows(path, size_bytes) for allows in self._filters)

    async def refusal(self, changed: Mapping[str, object]) -> str:
        return await refusal(replace(self._call, arguments={**self._call.arguments, **changed}), self._deps)


def _filters(call: ValidatedCall, policies: Iterable[Judge]) -> Iterable[PathFilter]:
    for policy in policies:
        if isinstance(policy, PathPolicy):
            allows = policy.path_filter(call)
            if allows is not None:
                yield allows
