"""Check what a runner returned: whether it is a valid result, and whether it is what the tool declares.

Pure; the value is plain JSON data at this point. An empty search result is a success: only the form of a result is checked, never its
content. A call that raised, timed out, was killed or crashed and may have taken effect is `unknown`, never "failed, try again".
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from callgate._pipeline.redacted_quotes import redact_problem
from callgate._runners.return_values import UNREADABLE
from callgate._schema import CompiledSchema, ValidationProblem
from callgate._secret_redaction import Redactor
from callgate.calls import Effect, Note
from callgate.errors import PausedByTool, ResultInvalid, ResultNotSerializable
from callgate.protocols import Execution
from callgate.stage_types import Checked
from callgate.tools import BoundTool, validate_tool_result
from callgate.tools.result_format import declared_failure, has_standard_shape

__all__ = ["AttemptsResult", "check", "proves_nothing_happened", "recheck"]


class AttemptsResult(Struct, frozen=True):
    """The last attempt of a call, and the number of its attempts."""

    execution: Execution
    attempts: int
    lost: bool = False
    """Whether an earlier attempt may have taken effect, because its reply was lost."""

    @property
    def may_have_happened(self) -> bool:
        """Whether the tool's effect may have happened, because the attempts do not prove the opposite.

        Only the tool's own word (`not_done`) is about all attempts; any other proof is about the last one.
        """
        if self.attempts == 0 or self.execution.evidence == "not_done":
            return False
        return self.lost or not proves_nothing_happened(self.execution)

    def in_doubt(self, effect: Effect) -> bool:
        """Return whether it is unknown if the tool's effect happened. An exception of an idempotent tool counts as an answer, unless a
        reply was lost."""
        ended, happened = self.execution, effect != "none" and self.may_have_happened
        if ended.status != "raised" or ended.error_type == "ResultNotSerializable":
            return happened and ended.status != "raised"
        return happened and (effect == "once" or self.lost or ended.evidence == "reply_lost")


def proves_nothing_happened(execution: Execution) -> bool:
    """Return whether an attempt proves that its tool had no effect."""
    return execution.not_started or execution.status == "not_started" or execution.evidence in ("not_done", "not_sent")


def check(tool: BoundTool, ran: AttemptsResult, took_s: float, redactor: Redactor | None) -> Checked:
    """Return the checked result of a call. A failure is returned, too, instead of being raised."""
    duration_ms = int(took_s * 1e6) / 1000
    if ran.execution.status != "returned":
        return _check_nothing(tool, ran, duration_ms)
    try:
        checked = _value(tool, ran.execution, ran.attempts, duration_ms, redactor)
        if ran.execution.tasks_left or (ran.lost and checked.status == "error"):
            return replace(checked, notes=(*checked.notes, *_warnings(tool, ran, checked)))
        return checked
    except (ResultInvalid, ResultNotSerializable) as error:
        return Checked(
            status="error",
            error=f"{error} The call did run; do not repeat it for this reason alone.",
            failure_class=error.failure_class,
            code=error.code,
            attempts=ran.attempts,
            duration_ms=duration_ms,
        )


def recheck(tool: BoundTool, given: Execution, before: Checked, redactor: Redactor | None) -> Checked:
    """Check a result that a hook has replaced; the parts that the hook did not change are kept."""
    fresh = _value(tool, given, before.attempts, before.duration_ms, redactor)
    if before.failure_class == "tool_declared":  # its text is derived from the value
        error = fresh.error or "the tool reported a failure"
        fresh = replace(fresh, status=before.status, error=error, failure_class=before.failure_class, code=before.code)
    elif before.status != "ok":
        return replace(before, value=fresh.value, content=fresh.content, notes=before.notes + fresh.notes, server_fields=None)
    return replace(fresh, notes=before.notes + fresh.notes, cached=before.cached, joined=before.joined, changed=before.changed)


def _value(tool: BoundTool, execution: Execution, attempts: int, duration_ms: float, redactor: Redactor | None) -> Checked:
    if execution.error_type == UNREADABLE:
        code = (execution.details or {}).get("code", "non_serializable")
        raise ResultNotSerializable(execution.error, code=str(code))
    value, changes = execution.value, execution.changes
    notes = tuple(Note(kind="normalised", text=change) for change in changes) if changes else ()
    if execution.failure is not None:
        return _check_declared_failure(execution, notes, attempts, duration_ms)
    shaped = not tool.tool.wraps_result or (type(value) is dict and has_standard_shape(value, tool.tool))
    if shaped:
        faults = validate_tool_result(value)
        if faults:
            raise ResultInvalid(f"{tool.name} gave back no valid result: {'; '.join(faults)}.")
    if tool.output is not None and not tool.output.is_valid(value):
        word = partial(_problems, tool.output)
        why = redact_problem(value, word(value), word, redactor)
        raise ResultInvalid(f"{tool.name} gave back what its output schema does not allow: {why}.", code="output_schema")
    if shaped and isinstance(value, dict):
        found = _check_envelope(value, notes, attempts, duration_ms)
        beside = execution.content or execution.server_fields is not None
        return replace(found, content=execution.content, server_fields=execution.server_fields) if beside else found
    return Checked(
        value=value,
        content=execution.content,
        notes=notes,
        attempts=attempts,
        duration_ms=duration_ms,
        server_fields=execution.server_fields,
    )


def _check_declared_failure(execution: Execution, notes: tuple[Note, ...], attempts: int, duration_ms: float) -> Checked:
    """Return the result of a call whose tool says, beside its value, that it has failed. The output schema is that of a success."""
    return Checked(
        status="error",
        value=execution.value,
        content=execution.content,
        error=execution.failure,
        failure_class="tool_declared",
        code="tool_declared",
        details=dict(execution.details) if execution.details else None,
        notes=notes,
        attempts=attempts,
        duration_ms=duration_ms,
        server_fields=execution.server_fields,
    )


def _warnings(tool: BoundTool, ran: AttemptsResult, checked: Checked) -> list[Note]:
    """Return what the value of a call does not say: tasks that still run, and an earlier attempt that may have done what failed now."""
    left, found = ran.execution.tasks_left, list[Note]()
    if left:
        found.append(Note(kind="warning", text=_TASKS_LEFT.format(left=left)))
    if checked.status == "error" and ran.lost and tool.effect != "none":
        found.append(Note(kind="warning", text=_EARLIER_LOST))
    return found


def _problems(output: CompiledSchema, value: object) -> str:
    return "" if output.is_valid(value) else "; ".join(map(_in_words, output.problems(value)[:5]))


def _in_words(problem: ValidationProblem) -> str:
    if problem.path:
        return problem.message.removesuffix(".")
    return f"the result: expected {problem.expected}{', got ' + problem.got if problem.got else ''}"


def _check_envelope(value: dict[str, object], notes: tuple[Note, ...], attempts: int, duration_ms: float) -> Checked:
    """Check a result in the form of a dict with `success`, `data`, `error`, `message`, `end_turn`, `image_metadata`, and its own keys."""
    failure, message = declared_failure(value), value.get("message")
    failed = failure is not None
    return Checked(
        status="error" if failed else "ok",
        value=value,
        error=failure,
        failure_class="tool_declared" if failed else None,
        code="tool_declared" if failed else None,
        details={"attempts": attempts} if failed and attempts > 1 else None,
        message=message if isinstance(message, str) else None,
        end_turn=value.get("end_turn", value.get("endTurn")) is True,
        image_metadata=value.get("image_metadata", value.get("imageMetadata")),
        notes=notes,
        attempts=attempts,
        duration_ms=duration_ms,
    )


def _check_nothing(tool: BoundTool, ran: AttemptsResult, duration_ms: float) -> Checked:
    """Return the result of a call whose tool returned nothing."""
    execution, in_doubt = ran.execution, ran.in_doubt(tool.effect)
    failure_class, code, fact = _FACTS[execution.status] if not (in_doubt and execution.status == "not_started") else _ANSWER_LOST
    code, details = execution.code or code, dict(execution.details) if execution.details else {}
    if execution.status == "raised" and tool.effect != "none" and not ran.may_have_happened:
        code = "not_done"
    if execution.abandoned:
        details["abandoned"] = True
    if execution.tasks_left:
        details["tasks_left"] = execution.tasks_left
    if execution.partial:
        details["partial_output"] = execution.partial
    reason = f"{tool.name} {fact}{': ' + execution.error.removesuffix('.') if execution.error else ''}."
    return Checked(
        status="unknown" if in_doubt else "error",
        error=f"{reason} {_tell_attempts(ran)}{_advice(tool, ran, in_doubt=in_doubt)}".strip(),
        failure_class=failure_class,
        code=code,
        details=details or None,
        attempts=ran.attempts,
        duration_ms=duration_ms,
        server_fields=execution.server_fields,
    )


_TASKS_LEFT = (
    "when the tool ended, {left} of the tasks that it had started still ran; whether they do what they are for is not known."
    " They are ended when the engine is closed, and in a process of the tool's own at once"
)
_EARLIER_LOST = (
    "An earlier attempt of this call got no answer and may have taken effect, so this failure does not prove that nothing happened."
    " Check whether it happened; if you cannot, tell the user."
)
_FACTS: Mapping[str, tuple[str, str, str]] = {
    "raised": ("exception", "tool_raised", "failed"),
    "timed_out": ("timeout", "timeout", "timed out"),
    "killed": ("killed", "killed", "was stopped"),
    "crashed": ("exception", "tool_crashed", "ended before it answered"),
    "not_started": ("not_started", "not_started", "was not started"),
}
_ANSWER_LOST = ("exception", "tool_crashed", "got no answer to an earlier attempt, and was not started again")
"""The fact of a call whose earlier attempt may have taken effect, and whose last one was not started."""


def _tell_attempts(ran: AttemptsResult) -> str:
    """Return how often the call was attempted, as a sentence.

    Empty for a single attempt, except after a timeout, when the reader may ask whether there were more attempts.
    """
    if ran.attempts > 1:
        return f"It was tried {ran.attempts} times. "
    return "It was tried once. " if ran.attempts == 1 and ran.execution.status == "timed_out" else ""


def _advice(tool: BoundTool, ran: AttemptsResult, *, in_doubt: bool) -> str:
    execution = ran.execution
    if execution.abandoned:
        still = "Its code could not be stopped and went on"
        check = "Check whether it happened before you repeat it; if you cannot, tell the user."
        return f"{still}; it may take effect later. {check}" if in_doubt else f"{still}."
    if in_doubt:
        return (
            "It may have taken effect. It was not run again. Check first whether it did, by another tool or by asking; repeat it only if"
            " it did not happen."
        )
    if execution.status == "raised":
        return _advice_on_failure(tool, ran)
    if execution.status == "not_started" or not ran.may_have_happened:
        return "Nothing happened; it may be sent again."
    return "Nothing was changed. Ask for less, or go on without it."


def _advice_on_failure(tool: BoundTool, ran: AttemptsResult) -> str:
    if ran.execution.error_type == "ResultNotSerializable":
        return "The call did run; do not repeat it for this reason alone."
    if ran.execution.error_type == PausedByTool.__name__:
        return "Its code then runs from the start. What it did before the pause is not known."
    if tool.effect != "none" and not ran.may_have_happened:
        return "Nothing happened; it may be sent again once the cause is gone."
    if ran.execution.retryable:
        wait_s = ran.execution.retry_after_s
        return f"The cause may pass: try again {f'after {wait_s:g} s' if wait_s else 'later'}, or go on without it."
    return "The same call will most likely fail again: change the arguments if they are the cause, or go on without it."
