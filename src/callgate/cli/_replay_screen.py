"""Format a replay: tables for people, JSON objects for programs. Decides nothing."""

from __future__ import annotations

import msgspec
from rich.text import Text

from callgate._terminal_text import one_line
from callgate.cli._console import grid, output, say, status_text
from callgate.replay import ComparedVerdict, Decision, JudgedRun, ModelComparison, Replay

__all__ = ["asked_json", "judged_json", "made_json", "show_asked", "show_judged", "show_made"]

_STYLES = {"allow": "green", "ask": "cyan", "deny": "red", "refused": "red"}
_WORDS = 160


def show_made(made: Replay) -> None:
    """Print a run as rebuilt from its journal."""
    table = grid("call", "tool", "decided", "rule", "ended")
    for call in made.calls:
        decided = call.decision
        rule = one_line((decided.rule or decided.code) if decided is not None else call.undecided, 60)
        table.add_row(one_line(call.short), one_line(call.tool, 40), _word(decided), rule, status_text(call.ended))
    if made.calls:
        output().print(table, soft_wrap=False)
    for difference in made.differences[:1]:
        say(f"The run cannot be rebuilt from its journal. {difference}", "red")
    if not made.differences:
        what = f"{_plural(len(made.passes), 'pass', 'passes')}, {_plural(len(made.messages), 'message')}, " if made.passes else ""
        ended = f" {made.end.status}" if made.end.turn_status else ""
        say(f"Run {one_line(made.run)}{ended}: {what}{_plural(len(made.calls), 'call')}, made again from the record alone.", "green")


def made_json(made: Replay) -> dict[str, object]:
    return {
        "run": made.run,
        "same": not made.differences,
        "differences": [str(difference) for difference in made.differences],
        "gaps": list(made.gaps),
        "end": made.end,
        "passes": len(made.passes),
        "calls": [
            {"call": call.uid, "tool": call.tool, "decided": _as_json(call.decision), "ended": call.ended, "undecided": call.undecided}
            for call in made.calls
        ],
        "messages": msgspec.to_builtins(made.messages),
    }


def show_judged(judged: JudgedRun) -> None:
    """Print each call with its recorded and its new decision."""
    if judged.changed:
        say(f"Changed since the run was recorded: {one_line(', '.join(judged.changed), 200)}.", "yellow")
    table = grid("", "call", "tool", "then", "now", "rule", "")
    for one in judged.calls:
        mark = Text("≠", style="bold yellow") if one.differs else Text("·" if one.now is not None else "-", style="dim")
        now = one.now
        why = one_line((now.rule or now.code) if now is not None else one.unjudged, 60)
        table.add_row(
            mark, one_line(one.call.short), one_line(one.call.tool, 40), _word(one.call.decision), _word(now), why, _describe_change(one)
        )
    output().print(table, soft_wrap=False)
    for one in judged.differences:
        if one.now is not None and one.now.said:
            say(f"{one.call.short} now: {one_line(one.now.said, _WORDS)}", "dim")
    differ, unjudged = len(judged.differences), sum(one.now is None for one in judged.calls)
    if unjudged:
        say(f"{unjudged} of {_plural(len(judged.calls), 'call')} were not judged again; the table shows why.", "dim")
    if differ:
        say(f"{differ} of {_plural(len(judged.calls), 'call')} would have been decided differently. {judged.follows}", "yellow")
    else:
        say(f"{_plural(len(judged.calls) - unjudged, 'call')} would have been decided as before.", "green")


def _describe_change(one: ComparedVerdict) -> Text:
    words = {"rule": "by another rule", "words": "in other words", "arguments": "other arguments"}.get(one.change, "")
    return Text(" · ".join(filter(None, (words, "after the first difference" if one.beyond else ""))), style="dim")


def judged_json(judged: JudgedRun) -> dict[str, object]:
    return {
        "run": judged.run,
        "differs": bool(judged.differences),
        "follows": judged.follows,
        "changed_tools": list(judged.changed),
        "calls": [
            {
                "call": one.call.uid,
                "tool": one.call.tool,
                "then": _as_json(one.call.decision),
                "now": _as_json(one.now),
                "change": one.change,
                "differs": one.differs,
                "unjudged": one.unjudged,
                "after_first_difference": one.beyond,
            }
            for one in judged.calls
        ],
    }


def show_asked(asked: ModelComparison) -> None:
    """Print the calls of each pass: those of the recorded model beside those of the model that is compared."""
    table = grid("", "pass", one_line(asked.recorded_model, 40), one_line(asked.model, 40))
    for one in asked.answers:
        mark = Text("·", style="dim") if one.same else Text("≠", style="bold yellow")
        then, now = (
            ", ".join(f"{call.name}({call.arguments})" for call in calls) or f"“{text}”"
            for calls, text in ((one.recorded, one.recorded_text), (one.calls, one.text))
        )
        table.add_row(mark, str(one.iteration + 1), one_line(then, 60), one_line(now, 60))
    if asked.answers:
        output().print(table, soft_wrap=False)
    if asked.ended:
        say(one_line(asked.ended, 600), "red" if asked.failed else "yellow")
    else:
        say(f"It asks for the same calls in {_plural(len(asked.answers), 'pass', 'passes')}. Nothing of it was started.", "green")


def asked_json(asked: ModelComparison) -> dict[str, object]:
    fields: dict[str, object] = msgspec.to_builtins(asked)
    return fields | {"differs": asked.differs}


def _plural(count: int, one: str, several: str = "") -> str:
    return f"{count} {one if count == 1 else several or one + 's'}"


def _word(decision: Decision | None) -> Text:
    return Text(decision.word, style=_STYLES[decision.word]) if decision is not None else Text("-", style="dim")


def _as_json(decision: Decision | None) -> dict[str, object] | None:
    if decision is None:
        return None
    return {
        "word": decision.word,
        "rule": decision.rule,
        "said": decision.said,
        "code": decision.code,
        "arguments": msgspec.json.decode(decision.arguments) if decision.arguments else None,
        "notes": [note.text for note in decision.notes],
    }
