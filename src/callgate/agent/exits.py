"""Exit tools: which calls are theirs, and what those say.

Beside `intake`, because such a call never reaches the engine: it is recorded and changes nothing. Its name is taken as any tool's is: where
it is almost right, and only one tool or exit tool can be meant, that one is meant. Must not know schemas.
"""

from __future__ import annotations

from collections.abc import Iterable

from callgate._json import decode
from callgate._pipeline.resolve import almost
from callgate.agent.results import Signal
from callgate.messages import ToolCall

__all__ = ["Exits", "as_signal"]


class Exits:
    """The exit tools of one turn.

    Args:
        names: Of the exit tools.
        others: Names of the tools that there are beside them, which a name may mean as well.
    """

    __slots__ = ("_names", "_others")

    def __init__(self, names: Iterable[str] = (), others: Iterable[str] = ()) -> None:
        self._names = frozenset(names)
        self._others = frozenset(others) if self._names else frozenset()

    def __bool__(self) -> bool:
        return bool(self._names)

    def meant(self, name: str) -> str | None:
        """The exit tool that a call of this name is for; None where it is for none."""
        if name in self._names:
            return name
        if not self._names or name in self._others:
            return None
        found = almost(name, [*self._names, *self._others])
        return found if found in self._names else None


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
