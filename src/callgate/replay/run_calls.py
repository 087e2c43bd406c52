"""Read a run's calls from its events: as received, as decided, and as ended.

Pure. If the record does not have all arguments of a call, `lost` says so; nothing is guessed. Knows no tool and no
policy.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, Literal, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from callgate._run_state.event_bodies import Reason, Received, Verdict
from callgate.calls import Note, RawCall, Scope, ToolResult
from callgate.errors import UsageError
from callgate.events import Event
from callgate.loop_decision import REFUSED_BY_LOOP

__all__ = ["Decision", "ReplayedCall", "Word", "calls_of"]

Word = Literal["allow", "ask", "deny", "refused"]

_NOT_THE_ROUTES: Final = REFUSED_BY_LOOP | {"human_denied", "answer_unusable"}
"""The codes of calls that were refused by the agent loop or a human, and not by a stage of the engine."""
_REFUSALS: Final = frozenset(
    {
        "malformed_arguments",
        "truncated_arguments",
        "invalid_parameters",
        "unknown_tool",
        "blocked_deliberate",
        "requires_actor",
        "dangerous_limit",
    }
)
"""Failure classes of calls that a stage before the policies refused."""
_ENDS: Final = {"call.restarted": "restarted", "call.aborted": "aborted", "call.suspended": "asked"}


class Decision(Struct, frozen=True, kw_only=True):
    """The decision on one call."""

    word: Word
    """The verdict, or `refused` if a stage before the policies refused the call."""
    rule: str = ""
    """The rule, as `id (file:line)`."""
    said: str = ""
    """The text that the model or the human was shown."""
    code: str = ""
    arguments: bytes = b""
    """The final arguments as JSON, keys in the order of the record; empty if none were approved."""
    notes: tuple[Note, ...] = ()

    @property
    def rule_id(self) -> str:
        """Return the rule's id, without file and line."""
        return self.rule.partition(" (")[0]


class ReplayedCall(Struct, frozen=True, kw_only=True):
    """One call, from its events alone."""

    uid: str
    position: int
    """The position of its first event."""
    raw: RawCall
    """The call as the model made it, as far as it is recorded."""
    scope: Scope
    parent: str = ""
    """The uid of the call whose tool made it."""
    lost: str = ""
    """Why `raw` is incomplete; empty if it is complete."""
    tool: str = ""
    """The tool's name; the name in the call if no tool was found."""
    identity: str = ""
    """The recorded identity of the tool; empty if the call was not approved."""
    decision: Decision | None = None
    """None if nothing was decided on the call; then `undecided` says why."""
    undecided: str = ""
    ended: str = "open"
    """`ok`, `error`, `unknown`, `asked`, `aborted`, `restarted`; `open` without a recorded end."""
    reason: str = ""
    """Why it ended without a result."""
    result: ToolResult | None = None
    approval: str = ""
    """The approval that it used or asked for."""
    binding: str = ""
    """The hash that its requested approval is bound to."""

    @property
    def repairs(self) -> bool:
        """Whether the decision shows that the engine repaired malformed JSON."""
        if self.decision is None:
            return False
        cut_by_itself = self.decision.code == "truncated" and self.raw.closed != "cut"
        return cut_by_itself or any(note.kind == "json_repaired" for note in self.decision.notes)

    @property
    def short(self) -> str:
        """The end of its uid: iteration and number within the run."""
        return "/".join(self.uid.rsplit("/", 2)[1:])


class _Received(Received, frozen=True, kw_only=True):
    redacted: bool = False


class _Verdict(Verdict, frozen=True, kw_only=True):
    redacted: bool = False


def calls_of(events: Iterable[Event]) -> tuple[ReplayedCall, ...]:
    """Return the calls of these events, in the order of their arrival.

    Raises:
        UsageError: An event's body does not have the fields of its kind.
    """
    calls: dict[str, ReplayedCall] = {}
    for event in events:
        if not event.kind.startswith("call."):
            continue
        call = calls.get(event.call)
        if call is None and event.kind != "call.received":
            continue
        try:
            calls[event.call] = _read_received(event) if call is None else _apply_event(call, event)
        except msgspec.DecodeError as error:
            raise UsageError(
                f"Event {event.position} ({event.kind}) does not have the fields of its kind: {error}. It cannot be replayed;"
                " `callgate log verify` says whether the journal was changed."
            ) from error
    return tuple(_correct_by_end(call) for call in calls.values())


def _read_received(event: Event) -> ReplayedCall:
    body = msgspec.json.decode(event.body, type=_Received)
    beside, lost = _decode_beside(body), _describe_loss(body)
    raw = RawCall(
        id=body.id,
        name=body.name,
        arguments=body.arguments,
        origin=body.origin,
        closed=cast("Literal['sealed', 'finished', 'cut']", body.closed),
        reasoning=body.reasoning,
        idempotency_key=body.idempotency_key or None,
        beside=beside,
    )
    scope = _decode_scope(body.scope or {}, event)
    return ReplayedCall(uid=event.call, position=event.position, raw=raw, scope=scope, parent=body.parent, lost=lost, tool=body.name)


def _describe_loss(body: _Received) -> str:
    if body.redacted:
        return "a secret was taken out of it"
    if body.arguments_bytes:
        return f"its arguments have {body.arguments_bytes} bytes, and the journal has the first {len(body.arguments.encode())}"
    return "its arguments were not JSON" if body.arguments == "<no JSON>" else ""


def _decode_beside(body: _Received) -> Mapping[str, object] | None:
    if not body.beside:
        return None
    try:
        found = json.loads(body.beside)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _decode_scope(facts: Mapping[str, object], event: Event) -> Scope:
    return replace(msgspec.convert(dict(facts), Scope), run=event.run)


def _apply_event(call: ReplayedCall, event: Event) -> ReplayedCall:
    match event.kind:
        case "call.verdict" | "call.started":
            verdict = msgspec.json.decode(event.body, type=_Verdict)
            return call if verdict.verdict in ("", "modify") else _with_decision(call, verdict)
        case "call.replayed":
            reason = msgspec.json.decode(event.body, type=Reason)
            if "effect_key" in (reason.details or {}):  # looked at after the gate
                return call
            return replace(call, undecided="it was a repeated call and got the stored result")
        case "call.completed":
            result = msgspec.json.decode(event.body, type=ToolResult)
            return replace(call, tool=result.name or call.tool, ended=result.status, result=result)
        case kind if kind in _ENDS:
            reason = msgspec.json.decode(event.body, type=Reason)
            asked = replace(call, ended=_ENDS[kind], reason=reason.reason)
            details = reason.details or {}
            if kind != "call.suspended":
                return asked
            return replace(asked, approval=str(details.get("approval", "")), binding=str(details.get("binding", "")))
    return call


def _with_decision(call: ReplayedCall, body: _Verdict) -> ReplayedCall:
    decision = Decision(
        word=cast("Word", body.verdict),
        rule=body.rule,
        said=body.reason,
        arguments=bytes(body.arguments) if body.verdict == "allow" else b"",
        notes=body.notes,
    )
    lost = call.lost or ("a secret was taken out of it" if body.redacted else "")
    return replace(
        call,
        tool=body.tool,
        identity=body.identity if body.verdict == "allow" else "",
        decision=decision,
        approval=body.approval,
        lost=lost,
    )


def _correct_by_end(call: ReplayedCall) -> ReplayedCall:
    """Return the call with its decision corrected by its end.

    A call that the loop or a human refused has no decision; a call that ended before the policies was refused.
    """
    code = (call.result.code if call.result is not None else "") or ""
    if code in _NOT_THE_ROUTES:
        return replace(call, decision=None, undecided=f"the loop did not let it run ({code})")
    if call.undecided:
        return replace(call, decision=None)
    if call.decision is not None:
        return replace(call, decision=replace(call.decision, code=code)) if call.decision.word == "deny" else call
    result = call.result
    if result is not None and (result.failure_class in _REFUSALS or code == "validator_failed"):
        return replace(call, decision=Decision(word="refused", code=code, said=result.error or ""))
    why = call.reason or (result.error if result is not None else "") or "the journal ends before that"
    return replace(call, undecided=f"it ended before anything was decided: {why}")
