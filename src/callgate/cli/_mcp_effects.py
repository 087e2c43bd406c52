"""Read the effects that the operator accepts: from `--effect`, or as answers at the terminal."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast, get_args

from rich.text import Text

from callgate._terminal_text import one_line
from callgate.calls import Effect
from callgate.cli._console import console, say, terminal
from callgate.cli._keyboard import Keyboard
from callgate.errors import UsageError

__all__ = ["ask_effects", "ask_yes", "check_names", "effects_of", "person_is_here"]

_EFFECTS: Final = get_args(Effect)
_QUESTIONS: Final[Mapping[Effect, str]] = {
    "none": "Which tools only read, so that a call may be repeated, cached or run beside others?",
    "idempotent": "Which tools may be called again with the same arguments without a further effect?",
}


def effects_of(given: Iterable[str]) -> dict[str, Effect]:
    """Return the effects of `--effect none=a,b` by the name of the tool, which may be unknown.

    Raises:
        UsageError: A word has another form, an effect is unknown, or a tool is named twice.
    """
    found = dict[str, Effect]()
    for word in given:
        effect, sign, names = word.partition("=")
        if not sign or effect not in _EFFECTS:
            raise UsageError(f"--effect {one_line(word, 80)}: write EFFECT=TOOL,TOOL; the effects are {', '.join(_EFFECTS)}.")
        for name in filter(None, (name.strip() for name in names.split(","))):
            if name in found:
                raise UsageError(f"--effect names '{one_line(name, 80)}' twice. Give it one effect.")
            found[name] = cast(Effect, effect)
    return found


def check_names(names: Iterable[str], tools: Sequence[str]) -> None:
    """Raise for a name that no tool has.

    Raises:
        UsageError: The message gives the closest name, and all.
    """
    for name in names:
        if name not in tools:
            near = difflib.get_close_matches(name[:100], tools, n=1)
            meant = f" Did you mean '{one_line(near[0], 128)}'?" if near else ""
            offered = one_line(", ".join(tools), 1_000) or "none"
            raise UsageError(f"The server has no tool '{one_line(name, 80)}'.{meant} It has: {offered}.")


def person_is_here(*, as_json: bool) -> bool:
    """Return whether a person at a terminal can be asked, even if the output goes elsewhere."""
    if as_json or not sys.stdin.isatty():
        return False
    with terminal() as screen:
        return screen is not None


async def ask_effects(tools: Sequence[str]) -> dict[str, Effect]:
    """Ask the person at the terminal for the effects of the tools."""
    keyboard, found = Keyboard(), dict[str, Effect]()
    keyboard.forget_typed()
    say("Every tool is taken as one whose call must not be repeated (once), unless you know better.", "cyan")
    for effect, question in _QUESTIONS.items():
        while True:
            _print_question(f"{question} Names, or Enter for none: ")
            names = (await keyboard.line() or "").replace(",", " ").split()
            try:
                check_names(names, tools)
                found |= effects_of([f"{effect}={','.join(names)}"])
                break
            except UsageError as error:
                say(str(error), "red")
    return found


async def ask_yes(question: str) -> bool:
    """Ask the person at the terminal; the end of input is a no."""
    keyboard = Keyboard()
    keyboard.forget_typed()
    while True:
        _print_question(f"{question} [y/N] ")
        said = await keyboard.line()
        if said is None or (word := said.strip().lower()) in ("", "n", "no"):
            return False
        if word in ("y", "yes"):
            return True
        say("Answer y or n.")


def _print_question(question: str) -> None:
    with terminal() as screen:
        (screen or console()).print(Text(question), end="")
