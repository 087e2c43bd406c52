"""The person in front of a run: what they are asked, and what they say.

Keeps the final arguments of each call that may be asked about, because those are what the person decides on. What their answer does is the
engine's business.
"""

from __future__ import annotations

import json

from rich.text import Text

from callgate._terminal_text import one_line, printable
from callgate.cli._console import console, say
from callgate.cli._keyboard import Keyboard
from callgate.protocols import Allow, Verdict
from callgate.route import ValidatedCall

__all__ = ["TerminalApprover"]

_SHOWN = 4_000


class TerminalApprover:
    """The first policy of a run: it allows everything, and looks at it; what is allowed, the others say.

    Args:
        here: Whether somebody can be asked.
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
        """What the tool of this call would get."""
        return self._final.get(uid, {})

    def forget(self) -> None:
        """The message is over: nothing of it can be asked about any more."""
        self._final.clear()

    async def says(self) -> str:
        """What they say next; empty where they are done."""
        while True:
            console().print(Text("\nyou> ", style="bold"), end="")
            said = await self._keyboard.line()
            if said is None:
                console().print()
                return ""
            if said.strip():
                return said.strip()

    async def asked(self, tool: str, question: str, arguments: dict[str, object]) -> bool | None:
        """Put the question; None where they go away instead of answering.

        What they typed before they saw it counts for nothing.
        """
        self._keyboard.forget_typed()
        say(f"A human has to decide: {question}", "cyan")
        say(f"  {one_line(tool)} {_shown(arguments)}")
        while True:
            console().print(Text("Run it? [y/N] "), end="")
            said = await self._keyboard.line()
            if said is None:
                return None
            if (word := said.strip().lower()) in ("y", "yes", "n", "no", ""):
                return word in ("y", "yes")
            say("Answer y or n.")


def _shown(arguments: dict[str, object]) -> str:
    """All of it: nobody can decide on what they do not see."""
    text = printable(json.dumps(arguments, ensure_ascii=False, indent=2 if len(arguments) > 1 else None))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text) - _SHOWN:,} more characters)"
