"""Record the answers of humans (yes, yes with other arguments, or no), and apply them to the calls that they are about.

An answer comes from the host's own code or, through the inbox, from another process. It is recorded before it takes
effect. Other arguments are checked here if the tool is known, so that the human is told of a mistake; `gate` validates
and judges them again when the call is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from callgate._json import canonical, decode
from callgate._option_checks import refused, shown
from callgate._pipeline.validate import ModifiedCall, Redacting, convert_arguments, modify_call
from callgate._run_state.approvals import Answer, Approvals, Question, binding, human_denial
from callgate._run_state.event_bodies import Reason, arguments_hash, verdict_of
from callgate._run_state.recorder import Recorder
from callgate.calls import Approval, Note, Suspended
from callgate.errors import ArgumentsInvalid, CallDenied, CallFailed, UsageError
from callgate.events import Draft, Event
from callgate.protocols import InboxMessage
from callgate.stage_types import ValidatedCall
from callgate.tools import BoundTool, ToolRegistry

__all__ = [
    "ANSWERS",
    "EDIT",
    "EditMessage",
    "EditedCall",
    "apply_answer",
    "as_approval",
    "check_answer",
    "check_operator",
    "close_question",
    "convert_answer",
    "encode_arguments",
    "read_answer",
    "record_answer",
]

EDIT = "edit"
"""The inbox message that approves with other arguments. Its reason is an `EditMessage` as JSON."""
ANSWERS = ("approve", "deny", EDIT)
_MOST_TOLD = 500
"""The largest number of characters of a human's arguments that the model is told."""


Notes = tuple[Note, ...]


class EditMessage(Struct, frozen=True, kw_only=True):
    """The reason of an inbox message that approves with other arguments."""

    arguments: dict[str, object]
    reason: str = ""


_decode_edit = msgspec.json.Decoder(EditMessage).decode


def read_answer(message: InboxMessage) -> Answer:
    """Return the answer that an inbox message of a kind in `ANSWERS` carries.

    Raises:
        UsageError: Its arguments cannot be read.
    """
    if message.kind != EDIT:
        return Answer(allow=message.kind == "approve", by=message.actor, reason=message.reason)
    try:
        edit = _decode_edit(message.reason)
    except msgspec.DecodeError as error:
        raise UsageError(f"The message does not hold arguments as it should: {error!s:.200}") from error
    return Answer(allow=True, by=message.actor, reason=edit.reason, arguments=canonical(edit.arguments))


def check_answer(owner: str, approval_id: object, by: object, reason: object) -> None:
    """Check the types of what a human or an operator said about a question or a call.

    Args:
        owner: The function that was called, as the user writes it.

    Raises:
        UsageError: One of them is not text.
    """
    if not isinstance(approval_id, str):
        given = "the call's outcome" if isinstance(approval_id, Suspended) else shown(approval_id)
        raise UsageError(f"{owner} was given {given} as approval_id. Give the `approval_id` of a Suspended outcome, which is text.")
    check_operator(owner, by, reason)


def check_operator(owner: str, by: object, reason: object) -> None:
    """Check the types of the name and the reason of an operator.

    Raises:
        UsageError: One of them is not text.
    """
    if not isinstance(by, str):
        raise refused(owner, "by", by, 'text that names who says so, as by="ann"')
    if not isinstance(reason, str):
        raise refused(owner, "reason", reason, "text; leave it out if there is no reason")


def encode_arguments(arguments: object) -> bytes:
    """Return the arguments from a human as canonical JSON; empty for None.

    Raises:
        UsageError: They are not a mapping, or not JSON data.
    """
    if arguments is None:
        return b""
    if not isinstance(arguments, Mapping):
        raise UsageError(f"The arguments are {arguments!r:.80}; they must be a mapping of argument names to values. Nothing was changed.")
    try:
        return canonical(dict(arguments))
    except Exception as error:
        raise UsageError(f"The arguments are no JSON data ({error!s:.200}). Give plain values; nothing was changed.") from error


def convert_answer(asked: Iterable[Event], answer: Answer, tools: ToolRegistry, *, coerce: bool) -> Answer:
    """Return the answer with its arguments converted, and with notes about that; unchanged where the tool is not known.

    The gate checks them again, where the tool is known.

    Args:
        asked: The events of the suspended call.
        coerce: The engine's setting; a tool's own setting takes precedence.

    Raises:
        UsageError: The tool does not accept the arguments.
    """
    names = [verdict.tool for event in asked if (verdict := verdict_of(event)) is not None]
    tool = tools.get(names[-1]) if names else None
    if tool is None:
        return answer
    arguments, notes = _convert(tool, decode(answer.arguments), coerce=coerce)
    return msgspec.structs.replace(answer, arguments=canonical(arguments), notes=notes)


def _convert(tool: BoundTool, arguments: dict[str, object], *, coerce: bool) -> tuple[dict[str, object], Notes]:
    """Return the arguments of a human, converted, and the notes about them.

    Raises:
        UsageError: The tool does not accept them.
    """
    try:
        final, notes = convert_arguments(tool, arguments, coerce=coerces(tool, coerce))
    except ArgumentsInvalid as error:
        raise _refusal_of_arguments(tool, error.faults or str(error)) from error
    except CallFailed as error:
        raise UsageError(f"The question stays open: {error}") from error
    unknown = [f"- {note.text.replace(' and was dropped', '')}" for note in notes if note.kind == "dropped"]
    if unknown:
        raise _refusal_of_arguments(tool, "\n".join(unknown))
    return final, notes


def _refusal_of_arguments(tool: BoundTool, faults: str) -> UsageError:
    taken = ", ".join(sorted(tool.schema.properties)) or "no arguments"
    return UsageError(
        f"The question stays open: {tool.name} does not accept the arguments of this approval.\n{faults}\n"
        f"Approve again with all arguments of the call; {tool.name} takes {taken}."
    )


def as_approval(question: Question) -> Approval:
    """Return a question and its answer as the host gets them."""
    return Approval(
        approval_id=question.approval_id,
        run=question.run,
        expires_at=question.expires_at,
        allowed=question.allowed,
        by=question.by,
        reason=question.reason,
        arguments=decode(question.arguments) if question.arguments else None,
    )


def record_answer(recorder: Recorder, approvals: Approvals, question: Question, answer: Answer, *, cause: int = 0) -> int:
    """Record the answer, apply it to the question, and return the event's position."""
    by, reason = recorder.cut(answer.by), recorder.cut(answer.reason)
    details: dict[str, object] = {"approval": question.approval_id}
    if reason:
        details["reason"] = reason
    if answer.arguments:
        details |= {"arguments": decode(answer.arguments), "arguments_hash": arguments_hash(answer.arguments)}
    if answer.told:
        details["told"] = True
    if changes := [note.text for note in answer.notes if note.kind == "coerced"]:
        details["converted"] = changes
    body = Reason(reason=by, status="allowed" if answer.allow else "refused", details=details)
    parents = (cause,) if cause else ()
    draft = Draft(kind="approval.answered", run=question.run, body=body, call=question.approval_id, parents=parents)
    position = recorder.write(draft)
    approvals.answer(question, msgspec.structs.replace(answer, by=by, reason=reason), position)
    for outdated in approvals.of_other_versions(question):
        approvals.drop(outdated.approval_id)
        _record_closed(recorder, outdated, f"{by or 'a human'} answered the question about another version of its tool", cause=position)
    if not answer.allow:
        for withdrawn in approvals.withdraw_equal(question):
            _record_closed(recorder, withdrawn, f"{by or 'a human'} said no to an equal call of another message", cause=position)
    return position


def close_question(recorder: Recorder, approvals: Approvals, call: ValidatedCall, why: str, *, cause: int) -> Question | None:
    """Close the open question about a call that ends or starts without an answer, record it, and return it; None if there is none.

    Args:
        cause: The position of the call's last event.
    """
    try:
        encoded = canonical(call.arguments)
    except Exception:  # a policy has made them something that is not JSON, about which nobody was asked
        return None
    question = approvals.close(call, encoded)
    if question is not None:
        _record_closed(recorder, question, why, cause=cause)
    return question


def _record_closed(recorder: Recorder, question: Question, why: str, *, cause: int) -> None:
    body = Reason(reason=why, details={"approval": question.approval_id})
    recorder.write(Draft(kind="approval.closed", run=question.run, body=body, call=question.approval_id, parents=(cause,)))


class EditedCall(ModifiedCall, frozen=True, kw_only=True):
    """A call that a human has allowed with other arguments, which are judged again."""

    question: Question
    """The question, bound to the new arguments."""


def coerces(tool: BoundTool, coerce: bool) -> bool:
    """Return whether arguments for this tool are converted, given the engine's setting."""
    return coerce if tool.coerce is None else tool.coerce


def apply_answer(call: ValidatedCall, encoded: bytes, question: Question, redacting: Redacting, *, coerce: bool) -> EditedCall | None:
    """Return the call with the arguments that a human gave, whatever the policies now decide; None if it keeps its own.

    Args:
        encoded: The call's own arguments as canonical JSON.
        question: The answered question about exactly this call.
        coerce: The engine's setting for the arguments of the human; a tool's own setting takes precedence.

    Raises:
        CallDenied: The human has denied the call, or its tool does not accept the arguments.
    """
    by, reason = redacting.cut(question.by) or "a human", redacting.cut(question.reason)
    if not question.allowed:
        raise human_denial(call.name, approval_id=question.approval_id, by=by, reason=reason)
    if question.arguments in (b"", encoded):
        return None
    why = f"{by} approved it with {redacting.cut(question.arguments.decode(), _MOST_TOLD)}{': ' if reason else ''}{reason.rstrip('.')}"
    try:
        changed = modify_call(call, decode(question.arguments), why, redacting, coerce=coerces(call.tool, coerce))
    except CallDenied as error:
        error.approval = question.approval_id
        raise
    bound = msgspec.structs.replace(question, binding=binding(changed, canonical(changed.arguments)))
    recorded = f"{why}; the key of its effect changed" if _changes_key(call, changed) else why
    return EditedCall(call=changed, reason=recorded, approval=question.approval_id, question=bound)


def _changes_key(before: ValidatedCall, after: ValidatedCall) -> bool:
    """Return whether two calls of a tool have different keys of their effect. The host's functions that make keys are not called."""
    key = before.tool.effect_key
    if key is None or key.is_function:
        return False
    try:
        return key.from_call(before.arguments, before.scope).digest != key.from_call(after.arguments, after.scope).digest
    except CallFailed:  # a call without a key does not run
        return False
