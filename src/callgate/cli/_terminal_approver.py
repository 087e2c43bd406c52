"""Ask the person at the terminal and read their answers.

Stores the final arguments of each call, because the person decides on these. The engine applies the answer.
"""

from __future__ import annotations

import json

from rich.text import Text

from callgate._terminal_text import one_line, printable
from callgate.cli._console import console, say
from callgate.cli._keyboard import Keyboard
from callgate.protocols import Allow, Verdict
from callgate.stage_types import ValidatedCall

__all__ = ["TerminalApprover"]

_SHOWN = 4_000


class TerminalApprover:
    """The person at the terminal.

    Also the first policy of the run: it stores each call's final arguments and allows the call.

    Args:
        here: Whether a person can be asked.
    """

    never_waits = True

    def __init__(self, *, here: bool) -> None:
        self.here = here
        self._keyboard = Keyboard()
        self._final: dict[str, dict[str, object]] = {}

    async def decide(self, call: ValidatedCall) -> Verdict:
        self._final[call.uid] = call.arguments
        return Allow()

    def final_arguments(self, uid: str) -> dict[str, object]:
        """Return the arguments that the call's tool would get."""
        return self._final.get(uid, {})

    def forget(self) -> None:
        """Delete the stored arguments of the calls of the previous message."""
        self._final.clear()

    async def says(self) -> str:
        """Return the person's next message; empty at the end of input."""
        while True:
            console().print(Text("\nyou> ", style="bold"), end="")
            said = await self._keyboard.line()
            if said is None:
                console().print()
                return ""
            if said.strip():
                return said.strip()

    async def asked(self, tool: str, question: str, arguments: dict[str, object]) -> bool | None:
        """Ask whether to run the call and return the answer; None at the end of input.

        Input that was typed before the question was shown is discarded.
        """
        self._keyboard.forget_typed()
        say(f"A human has to decide: {question}", "cyan")
        say(f"  {one_line(tool)} {_as_text(arguments)}")
        while True:
            console().print(Text("Run it? [y/N] "), end="")
            said = await self._keyboard.line()
            if said is None:
                return None
            if (word := said.strip().lower()) in ("y", "yes", "n", "no", ""):
                return word in ("y", "yes")
            say("Answer y or n.")


def _as_text(arguments: dict[str, object]) -> str:
    """Return the arguments as text. Arguments of more than 4,000 characters are cut."""
    text = printable(json.dumps(arguments, ensure_ascii=False, indent=2 if len(arguments) > 1 else None))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text) - _SHOWN:,} more characters)"
