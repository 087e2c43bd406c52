"""Compare a recorded run with its repetition, and return one sentence per difference. Pure.

Calls made by a tool's own code are left out, because the replacements of the tools have no code. A rule that only moved
within its file counts as the same rule.
"""

from __future__ import annotations

from collections.abc import Iterable

from callgate._json import canonical
from callgate.replay import Decision, Replay, ReplayedCall
from callgate.replay.judge_again import change_between

__all__ = ["compare_calls", "compare_ends", "compare_messages"]

_MOST_CHARS = 200
_SAME_BEHAVIOUR = ("", "rule")
_OPEN = "open"
"""How a call ended whose process ended before it: the record has nothing to compare with."""


def compare_calls(then: Replay, now: Replay, *, ends_open: bool = False) -> Iterable[str]:
    """Yield a sentence for each difference between the calls.

    Args:
        ends_open: The record ends before the run did; calls that it does not have any more are not a difference.
    """
    before, after = _own_calls(then), _own_calls(now)
    for old, new in zip(before, after, strict=False):
        yield from _compare_call(old, new)
    for old in before[len(after) :]:
        yield f"Call {old.short} of {old.tool} was not made."
    for new in after[len(before) :] if not ends_open else ():
        yield f"Call {new.short} of {new.tool} is new."


def _own_calls(replay: Replay) -> list[ReplayedCall]:
    return [call for call in replay.calls if not call.parent]


def _compare_call(then: ReplayedCall, now: ReplayedCall) -> Iterable[str]:
    which = f"Call {then.short} of {then.tool}"
    if (then.raw.name, then.raw.arguments) != (now.raw.name, now.raw.arguments):
        yield f"{which} is another call now: {now.tool}."
        return
    if then.decision is not None and now.decision is not None:
        change = change_between(then.decision, now.decision)
        if change not in _SAME_BEHAVIOUR:
            yield f"{which}: {change}: {_describe_decision(then.decision)}, now {_describe_decision(now.decision)}"
    elif then.decision is not now.decision and not (then.decision is None and then.ended == _OPEN):
        yield f"{which}: {_describe_decision(then.decision)}, now {_describe_decision(now.decision)}"
    old, new = _describe_end(then), _describe_end(now)
    if old != new and then.ended != _OPEN:
        yield f"{which} ended {old}, now {new}."


def _describe_end(call: ReplayedCall) -> str:
    code = call.result.code if call.result is not None else None
    return f"{call.ended} ({code})" if code else call.ended


def _describe_decision(decision: Decision | None) -> str:
    if decision is None:
        return "not decided"
    by = decision.rule or decision.code
    shown = decision.arguments[:_MOST_CHARS].decode(errors="replace") if decision.arguments else decision.said[:_MOST_CHARS]
    return f"{decision.word}{f' ({by})' if by else ''}{f' {shown}' if shown else ''}"


def compare_messages(then: Replay, now: Replay) -> Iterable[str]:
    """Yield a sentence about the first message that differs, or about different numbers of messages."""
    before, after = _comparable_messages(then), _comparable_messages(now)
    for number, (old, new) in enumerate(zip(before, after, strict=False), 1):
        if old != new:
            yield f"Message {number} was {old[:_MOST_CHARS]!r} and is {new[:_MOST_CHARS]!r} now."
            return
    if len(before) != len(after):
        yield f"The conversation had {len(before)} messages and has {len(after)} now."


def _comparable_messages(replay: Replay) -> list[str]:
    """Return each message as text, with each rule replaced by its id, without file and line."""
    decided = (call.decision for call in replay.calls)
    rules = {(one.rule, one.rule_id) for one in decided if one is not None and one.rule}
    plain = []
    for message in replay.messages:
        text = canonical(message).decode()
        for rule, name in rules:
            text = text.replace(rule, name)
        plain.append(text)
    return plain


def compare_ends(then: Replay, now: Replay) -> Iterable[str]:
    """Yield a sentence if the runs ended differently."""
    old, new = (one.end.turn_status or one.end.status for one in (then, now))
    if old != new:
        why = f": {now.end.reason[:_MOST_CHARS]}" if now.end.reason else ""
        yield f"The run ended `{old}`, and ends `{new}` now{why}."
