"""Exit tools: which calls are theirs, and what those say.

Beside `intake`, because such a call never reaches the engine: it is recorded and changes nothing. Its name is taken as any tool's is: where
it is almost right, and only one tool or exit tool can be meant, that one is meant. Must not know schemas.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from callgate._json import decode
from callgate._pipeline.resolve import almost
from callgate.agent.results import Signal
from callgate.messages import ToolCall
from callgate.tools import ToolRegistry

__all__ = ["Exits", "as_signal"]


class Exits:
    """The exit tools of one agent.

    Args:
        names: Of the exit tools.
        tools: The others, which a name may mean as well.
    """

    __slots__ = ("_names", "_tools")

    def __init__(self, names: Collection[str] = (), tools: ToolRegistry | None = None) -> None:
        self._names = frozenset(names)
        self._tools = tools

    def __bool__(self) -> bool:
        return bool(self._names)

    def meant(self, name: str) -> str | None:
        """The exit tool that a call of this name is for; None where it is for none."""
        if name in self._names or not self._names:
            return name if self._names else None
        if self._tools is None or name in self._tools:
            return None
        found = almost(name, [*self._names, *self._tools.names()])
        return found if found in self._names else None

    def renamed(self, calls: Iterable[ToolCall]) -> dict[str, str]:
        """Which exit tools are meant, by the call's place, where the name was only almost right."""
        if not self._names:
            return {}
        meant = ((place, call.name, self.meant(call.name)) for place, call in enumerate(calls))
        return {str(place): name for place, written, name in meant if name is not None and name != written}


def as_signal(call: ToolCall, iteration: int, name: str = "") -> Signal:
    """What an exit call says.

    Args:
        call: As the model wrote it.
        iteration: Of its message.
        name: The exit tool that is meant; empty: the one that is called.
    """
    try:
        value = decode(call.arguments) if call.arguments.strip() else {}
    except (ValueError, RecursionError):
        value = None
    said = call.name if name and name != call.name else ""
    arguments = value if isinstance(value, dict) else None
    return Signal(name=name or call.name, arguments=arguments, raw=call.arguments, iteration=iteration, said=said)
