"""The person in front of a run: their answers to its questions, and what they said no to.

A no becomes a denial that the model reads; the same question from a later message is asked anew. Also keeps the final arguments of each
call that may be asked about, because those are what the person decides on.
"""

from __future__ import annotations

import json
import sys
from collections import Counter

from rich.text import Text

from callgate._printable import one_line, printable
from callgate.cli._consoles import console, say
from callgate.messages import ToolCall
from callgate.protocols import Allow, Deny, Verdict
from callgate.route import ValidatedCall

__all__ = ["NO", "Person"]

NO = "The person at the terminal said no. Do not try it again; go on without it, or say what you would need it for."
_SHOWN = 4_000
_Key = tuple[str, str, str]


class Person:
    """The first policy of a run: it allows everything but what the person refused; what else is allowed, the others say.

    Args:
        here: Whether somebody can be asked.
    """

    never_waits = True

    def __init__(self, *, here: bool) -> None:
        self.here = here
        self._refused: Counter[_Key] = Counter()
        self._final: dict[str, dict[str, object]] = {}

    async def decide(self, call: ValidatedCall) -> Verdict:
        key = _key(call.raw.id, call.raw.name, call.raw.arguments)
        if self._refused[key]:
            self._refused[key] -= 1
            return Deny(reason=NO, rule="the person at the terminal")
        self._final[call.uid] = call.arguments
        return Allow()

    def final_arguments(self, uid: str) -> dict[str, object]:
        """What the tool of this call would get."""
        return self._final.get(uid, {})

    def forget(self) -> None:
        """The message is over: nothing of it can be asked about any more."""
        self._final.clear()

    def refuse(self, call: ToolCall) -> None:
        """Deny this call when it is handed in again, once."""
        arguments: object = {"input": call.arguments} if call.custom else call.arguments
        self._refused[_key(call.id, call.name, arguments)] += 1

    def says(self) -> str:
        """What they say next; empty where they are done."""
        try:
            while True:
                console().print(Text("\nyou> ", style="bold"), end="")
                said = sys.stdin.readline()
                if not said or said.strip():
                    break
        except KeyboardInterrupt:
            said = ""
        if not said:
            console().print()
        return said.strip()

    def asked(self, tool: str, question: str, arguments: dict[str, object]) -> bool | None:
        """Put the question; None where they interrupt or go away instead of answering."""
        try:
            said = _answer(question, f"{one_line(tool)} {_shown(arguments)}")
        except KeyboardInterrupt:
            said = None
        if said is None:
            console().print()
        return said


def _answer(question: str, call: str) -> bool | None:
    say(f"A human has to decide: {question}", "cyan")
    say(f"  {call}")
    while True:
        console().print(Text("Run it? [y/N] "), end="")
        said = sys.stdin.readline()
        if not said:
            return None
        if (word := said.strip().lower()) in ("y", "yes", "n", "no", ""):
            return word in ("y", "yes")
        say("Answer y or n.")


def _shown(arguments: dict[str, object]) -> str:
    """All of it: nobody can decide on what they do not see."""
    text = printable(json.dumps(arguments, ensure_ascii=False, indent=2 if len(arguments) > 1 else None))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text) - _SHOWN:,} more characters)"


def _key(id: str, name: str, arguments: object) -> _Key:
    return id, name, arguments if isinstance(arguments, str) else repr(arguments)
