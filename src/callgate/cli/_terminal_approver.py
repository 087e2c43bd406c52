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
"""The maximum number of characters of the arguments that are shown without being asked for."""
_END = 1_000
"""How many of them are the last ones."""


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

    async def ask(self, tool: str, question: str, arguments: dict[str, object]) -> bool | None:
        """Ask whether to run the call and return the answer; None at the end of input.

        Input that was typed before the question was shown is discarded.
        """
        self._keyboard.forget_typed()
        say(f"A human has to decide: {question}", "cyan")
        text = printable(json.dumps(arguments, ensure_ascii=False, indent=2 if len(arguments) > 1 else None))
        is_long = len(text) > _SHOWN
        say(f"  {one_line(tool)} {_without_middle(text) if is_long else text}")
        while True:
            console().print(Text("Run it? [y/N, a: show all arguments] " if is_long else "Run it? [y/N] "), end="")
            said = await self._keyboard.line()
            if said is None:
                return None
            if (word := said.strip().lower()) in ("y", "yes", "n", "no", ""):
                return word in ("y", "yes")
            say(text if is_long and word in ("a", "all") else "Answer y or n.")


def _without_middle(text: str) -> str:
    """Return the beginning and the end of a long text, and how many characters are missing between them."""
    return f"{text[: _SHOWN - _END]}\n… {len(text) - _SHOWN:,} characters are not shown here …\n{text[-_END:]}"
