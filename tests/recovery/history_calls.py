"""Calls as a history hands them in: to which tool, about what, under which name they are known again."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from callgate import RawCall, Scope
from tests.engine_calls import call
from tests.recovery.simulated_world import TOOLS, WHATS

__all__ = ["CALLS", "HANDLES", "Asked", "one_message"]

HANDLES = ("", "id:a", "id:b", "key:k", "key:l")
"""How a call is known again: not at all, by the model's id, by the host's key."""
RUNS = ("one", "two")


class Asked(Struct, frozen=True):
    """A call that is handed in."""

    tool: str
    what: str
    handle: str
    run: str

    @property
    def fact(self) -> tuple[str, str, str]:
        return self.run, self.tool, self.what

    def raw(self) -> RawCall:
        kind, _, word = self.handle.partition(":")
        return call(self.tool, id=word if kind == "id" else "", key=f"{word} of {self.run}" if kind == "key" else None, what=self.what)

    def scope(self) -> Scope:
        return Scope(run=self.run, conversation=self.run)

    @property
    def identity(self) -> tuple[str, ...]:
        """Under what it is known again; empty where it is not."""
        kind = self.handle.partition(":")[0]
        if not kind or (kind == "id" and TOOLS[self.tool] == "none"):
            return ()
        return (self.run, self.tool, self.handle) if kind == "key" else (self.run, self.tool, self.handle, self.what)


def one_message(several: Sequence[Asked]) -> list[Asked]:
    """The calls as those of one message of the first one's run."""
    return [replace(asked, run=several[0].run) for asked in several]


CALLS = st.builds(
    Asked, tool=st.sampled_from(list(TOOLS)), what=st.sampled_from(WHATS), handle=st.sampled_from(HANDLES), run=st.sampled_from(RUNS)
)
