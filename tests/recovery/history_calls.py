"""Calls as the state machines make them: the tool, its argument, and the id or key that identifies a repeat."""

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
"""What identifies a repeat of a call: nothing, the model's id, or the host's key."""
RUNS = ("one", "two")


class Asked(Struct, frozen=True):
    """A call to make."""

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
        """Return what identifies a repeat of this call, or an empty tuple if nothing does."""
        kind = self.handle.partition(":")[0]
        if not kind or (kind == "id" and TOOLS[self.tool] == "none"):
            return ()
        return (self.run, self.tool, self.handle) if kind == "key" else (self.run, self.tool, self.handle, self.what)


def one_message(several: Sequence[Asked]) -> list[Asked]:
    """Return the calls as those of one message, in the run of the first call."""
    return [replace(asked, run=several[0].run) for asked in several]


CALLS = st.builds(
    Asked, tool=st.sampled_from(list(TOOLS)), what=st.sampled_from(WHATS), handle=st.sampled_from(HANDLES), run=st.sampled_from(RUNS)
)
