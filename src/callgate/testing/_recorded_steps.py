"""Read from a run's events what happened between its calls: what humans said, where the run was resumed, and which passes were cut off.

Pure. Several processes may have worked on the run; the repetition takes these steps in one engine, in the recorded order.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from callgate._run_state.event_bodies import decode_reason
from callgate.agent import Settings
from callgate.agent.run_recorder import BlobReader, RunBeganBody, read_body
from callgate.engine import Engine
from callgate.errors import UsageError
from callgate.events import Event
from callgate.replay import Replay

__all__ = ["FAILED", "HumanSteps", "Resumption", "of_last_run", "record_ends_open", "resumptions", "without_lost_passes"]


FAILED: Final = "failed"
"""The status of a pass without an answer in which the model failed."""


class _HumanAnswer(Struct, frozen=True, kw_only=True):
    """An answer to an approval, or what an operator said of a call whose outcome was unknown."""

    position: int
    about: str
    """The uid of the approval or the call, as recorded."""
    yes: bool
    """Whether the call may run; of a settled call, whether it happened."""
    settles: bool
    by: str
    reason: str
    arguments: dict[str, object] | None = None


class HumanSteps:
    """What humans said during a run, to be repeated at the same point of its repetition.

    Args:
        events: The events of the run.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self._remaining = [answer for event in events if (answer := _read_human_answer(event)) is not None]
        self._uids: dict[str, str] = {}

    def note_id(self, recorded: str, uid: str) -> None:
        """Note the id that a recorded call or approval has in the repetition."""
        self._uids[recorded] = uid

    async def give_answers(self, engine: Engine, before: int) -> None:
        """Give the answers that were given before this position of the record.

        Answers to questions that the repetition does not have are left out.
        """
        while self._remaining and self._remaining[0].position < before:
            answer = self._remaining.pop(0)
            with suppress(UsageError):
                await _give_answer(engine, answer, self._uids.get(answer.about, answer.about))


def _read_human_answer(event: Event) -> _HumanAnswer | None:
    if event.kind not in ("approval.answered", "fact.settled"):
        return None
    body = decode_reason(event.body)
    details = body.details or {}
    settles = event.kind == "fact.settled"
    arguments = details.get("arguments")
    return _HumanAnswer(
        position=event.position,
        about=event.call,
        yes=body.status == ("happened" if settles else "allowed"),
        settles=settles,
        by=str(details.get("by", "")) if settles else body.reason,
        reason=body.reason if settles else str(details.get("reason", "")),
        arguments=arguments if isinstance(arguments, dict) else None,
    )


async def _give_answer(engine: Engine, answer: _HumanAnswer, about: str) -> None:
    if answer.settles:
        await engine.settle(about, happened=answer.yes, by=answer.by, reason=answer.reason)
    elif answer.yes:
        await engine.approve(about, by=answer.by, reason=answer.reason, arguments=answer.arguments)
    else:
        await engine.deny(about, by=answer.by, reason=answer.reason)


def of_last_run(events: Iterable[Event]) -> list[Event]:
    """Return the events since an agent's run began; all events if there is none."""
    found = list(events)
    begins = [index for index, event in enumerate(found) if event.kind == "run.began"]
    return found[begins[-1] :] if begins else found


class Resumption(Struct, frozen=True, kw_only=True):
    """The continuation of a run that had ended or waited."""

    position: int
    settings: Settings
    """The settings of the loop from then on."""


def resumptions(events: Iterable[Event], blobs: BlobReader) -> list[Resumption]:
    """Return where the run was resumed after it had ended or waited.

    Left out is a run resumed after its process had ended: its repetition is not interrupted there.
    """
    found, ended = list[Resumption](), False
    for event in events:
        if event.kind == "run.ended":
            ended = True
        elif event.kind == "run.resumed":
            if ended:
                body = msgspec.json.decode(read_body(event.body, blobs), type=RunBeganBody)
                found.append(Resumption(position=event.position, settings=body.settings))
            ended = False
    return found


def record_ends_open(replay: Replay) -> bool:
    """Return whether the record of an agent's run ends before the run did, as it does if its process was killed and it was not resumed."""
    return replay.began is not None and replay.end.status == "open"


def without_lost_passes(replay: Replay, events: Iterable[Event]) -> Replay:
    """Return the run without the passes whose answer is not recorded, because their process ended, and without the calls of these passes.

    The last pass stays: there the record ends. So does a pass in which the model failed, which ended the run until it
    was resumed.
    """
    events = list(events)
    failed = _failed_passes(events)
    lost = {one.position for one in replay.passes if not one.status} - failed
    calls = {event.call for event in events if event.kind == "call.received" and event.parents and event.parents[0] in lost}
    passes = tuple(one for one in replay.passes if one.position not in lost or one is replay.passes[-1])
    passes = tuple(replace(one, status=FAILED) if one.position in failed and one is not passes[-1] else one for one in passes)
    return replace(replay, passes=passes, calls=tuple(call for call in replay.calls if call.uid not in calls))


def _failed_passes(events: Iterable[Event]) -> set[int]:
    """Return the positions of the passes without an answer after which the run ended."""
    found, latest = set[int](), 0
    for event in events:
        if event.kind == "phase.began":
            latest = event.position
        elif event.kind == "run.ended" and latest:
            found.add(latest)
        elif event.kind in ("phase.answered", "run.resumed"):
            latest = 0
    return found
