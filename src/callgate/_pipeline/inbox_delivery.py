"""Deliver messages of other processes to the runs of one engine: answers to questions, statements about calls, stops and kills.

Each message is recorded once, before it takes effect. Knows no leases and no route.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from callgate._abort_signals import Control
from callgate._pipeline.approval_answers import ANSWERS, EDIT, convert_answer, read_answer, record_answer
from callgate._pipeline.call_state import CallState
from callgate._pipeline.run_states import RunStates, Work
from callgate._pipeline.running_calls import RunningCalls
from callgate._run_state.approvals import Approvals
from callgate._run_state.event_bodies import Reason
from callgate._run_state.recorder import Recorder
from callgate._run_state.settlements import SETTLEMENTS, Settlement
from callgate.errors import RecordFailed, UsageError
from callgate.events import Draft
from callgate.protocols import InboxMessage
from callgate.tools import ToolRegistry

__all__ = ["InboxDelivery"]

_ENDS = {"stop": "stopped", "kill": "killed"}


class InboxDelivery:
    """Delivers messages of other processes to runs: an answer to a question, a stop, a kill.

    Each message is recorded once; an invalid one is recorded with the reason for its refusal. A message that arrives while its run is not
    being worked on is delivered when work on the run begins.

    Args:
        work: The engine's current work, by run.
        running: The running calls.
        run_states: The states of runs.
        approvals: The questions asked in the runs.
        tools: The engine's tools, which check the arguments of humans.
        coerce: Whether to convert arguments of humans; a tool's own setting takes precedence.
    """

    def __init__(
        self,
        recorder: Recorder,
        control: Control,
        work: Mapping[str, Work],
        running: RunningCalls,
        run_states: RunStates,
        approvals: Approvals,
        tools: ToolRegistry,
        *,
        coerce: bool,
    ) -> None:
        self._recorder = recorder
        self._control = control
        self._work = work
        self._running = running
        self._run_states = run_states
        self._approvals = approvals
        self._tools = tools
        self._coerce = coerce
        self._messages: dict[str, dict[int, InboxMessage]] = {}
        """Messages that wait until their run is known, or begins; by run and id."""

    def message_arrived(self, message: InboxMessage) -> None:
        self._messages.setdefault(message.run, {})[message.id] = message  # it comes again if the lease was acquired again meanwhile
        self.deliver(message.run)

    def forget(self, run: str) -> None:
        """Drop the waiting messages of a run; the next engine that acquires its lease receives them again."""
        self._messages.pop(run, None)

    def deliver(self, run: str) -> None:
        """Carry out the waiting messages of a run, as far as that is possible now."""
        if run not in self._messages or not self._run_states.knows(run):
            return
        work = self._work.get(run)
        for message in self._messages.pop(run).values():
            if message.kind in _ENDS and work is not None and not work.begun:
                self._messages.setdefault(run, {})[message.id] = message
                work.end_wanted.set()
            else:
                self._do(message)

    def _do(self, message: InboxMessage) -> None:
        try:
            if message.kind in ANSWERS:
                self._answer(message)
            elif message.kind in SETTLEMENTS:
                self._settle(message)
            else:
                self._end(message)
        except UsageError as refused:
            self._refuse(message, str(refused))
        except RecordFailed as error:
            self._recorder.log.error("%s", error)

    def _refuse(self, message: InboxMessage, why: str) -> None:
        """Record why a message could not be carried out. A question keeps this if its answer had other arguments."""
        question = self._approvals.find(message.target) if message.kind == EDIT and not message.replaced_by else None
        details: dict[str, object] = {"target": message.target} if message.kind in ANSWERS else {}
        if message.replaced_by:
            details["replaced_by"] = message.replaced_by
        if question is not None:
            details["approval"] = question.approval_id
        self._record("inbox.refused", message, why, details)
        if question is not None:
            question.take_refusal(self._recorder.cut(message.actor), why)

    def _answer(self, message: InboxMessage) -> None:
        if message.target.rsplit("/", 2)[0] != message.run:
            raise UsageError(f"The approval '{message.target[:80]}' belongs to another run.")
        answer, journal = read_answer(message), self._recorder.journal
        if answer.allow and message.replaced_by:
            raise UsageError("A later answer to the same question has replaced it.")
        question = self._approvals.get_answerable(message.target, allow=answer.allow, at_ns=message.at_ns)
        if answer.arguments and not journal.remote:  # on a server, reading would block the event loop: the gate checks them
            answer = convert_answer(journal.read(call=message.target), answer, self._tools, coerce=self._coerce)
        cause = self._record("inbox.taken", message, self._reason_and_sender(message, answer.reason))
        record_answer(self._recorder, self._approvals, question, answer, cause=cause)

    def _settle(self, message: InboxMessage) -> None:
        state = self._run_states.by_run.get(message.run)
        happened = SETTLEMENTS[message.kind]
        if state is None or not state.can_settle(message.target, happened=happened):
            raise UsageError(f"The call '{message.target[:80]}' is not in doubt, so nothing was changed.")
        cause = self._record("inbox.taken", message, self._reason_and_sender(message, message.reason))
        said = Settlement(happened=happened, by=message.actor, reason=message.reason)
        self._run_states.settle_by_hand(message.target, said, cause=cause)

    def _reason_and_sender(self, message: InboxMessage, reason: str) -> str:
        return f"{self._recorder.cut(reason) or 'no reason given'} ({self._recorder.cut(message.actor) or 'nobody named'})"

    def _end(self, message: InboxMessage) -> None:
        conversations, states = self._find_work(message)
        said = self._reason_and_sender(message, message.reason)
        self._record("inbox.taken", message, said)
        why = f"{_ENDS[message.kind]} from another process: {said}"
        for conversation in conversations:
            end = self._control.kill if message.kind == "kill" else self._control.stop
            end(conversation, why)
        for state in states:
            state.stopped = why
            if message.kind == "kill":
                state.kill.fire(why)

    def _find_work(self, message: InboxMessage) -> tuple[set[str], list[CallState]]:
        """Return the conversations that only this run uses, and its calls in other conversations.

        Raises:
            UsageError: The run has no work to end, or the kind of the message is unknown.
        """
        if message.kind not in _ENDS:
            raise UsageError(f"Unknown message kind '{message.kind[:40]}'. Known kinds: {', '.join((*ANSWERS, *SETTLEMENTS, *_ENDS))}.")
        work = self._work.get(message.run)
        running = list(self._running.by_uid.values())
        shared = {"", *(state.scope.conversation for state in running if state.scope.run != message.run)}
        mine = [state for state in running if state.scope.run == message.run]
        conversations = (work.conversations if work is not None else set()) | ({state.scope.conversation for state in mine} - shared)
        if not (conversations or mine):
            raise UsageError("The run has no running call and no running agent.")
        return conversations, [state for state in mine if state.scope.conversation not in conversations]

    def _record(self, kind: str, message: InboxMessage, reason: str, more: Mapping[str, object] = MappingProxyType({})) -> int:
        details = {"wanted": self._recorder.cut(message.kind, 40), "by": self._recorder.cut(message.actor), "at_ns": message.at_ns, **more}
        parents = (message.cause,) if message.cause else ()
        body = Reason(reason=reason, details=details)
        return self._recorder.write(Draft(kind=kind, run=message.run, body=body, parents=parents, inbox=message.id))
