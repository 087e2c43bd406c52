"""Every error that callgate raises or turns into a result.

There is one class for each party that must act: the model (try again, or stop), the tool's author, the developer, the
operator. Each error has a stable `code`, which is the exact reason and safe to match on. An error that becomes a result
also has one of `FAILURE_CLASSES`. A message states the fact, then the limit or the cause, then the next step. Only the
engine turns these errors into results. Imports nothing of callgate.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

__all__ = [
    "FAILURE_CLASSES",
    "ActorRequired",
    "ApprovalNeeded",
    "ArgumentsInvalid",
    "ArgumentsMalformed",
    "ArgumentsTruncated",
    "CallAborted",
    "CallDenied",
    "CallFailed",
    "CallNotStarted",
    "CallRepeated",
    "CallgateError",
    "DangerousLimitReached",
    "IdempotencyConflict",
    "JournalFailed",
    "LeaseLost",
    "MemoryFailed",
    "ModelTimeout",
    "ModelUnreachable",
    "NotDone",
    "OutcomeUnknown",
    "RecordFailed",
    "ResultInvalid",
    "ResultNotSerializable",
    "ResultRejected",
    "Retryable",
    "RunHeld",
    "ToolBlocked",
    "ToolRaised",
    "ToolUnavailable",
    "UnknownTool",
    "UsageError",
]

FAILURE_CLASSES: frozenset[str] = frozenset(
    {
        "timeout",
        "exception",
        "malformed_arguments",
        "invalid_parameters",
        "non_serializable",
        "invalid_result",
        "unknown_tool",
        "denied",
        "blocked_deliberate",
        "rejected_by_hook",
        "dangerous_limit",
        "truncated_arguments",
        "requires_actor",
        "circuit_open",
        "killed",
        "not_started",
        "outcome_unknown",
        "idempotency_conflict",
        "tool_declared",
        "record_failed",
    }
)
"""Every value that `ToolResult.failure_class` can take. `tool_declared` is a tool's own `success: false`."""


class CallgateError(Exception):
    """The root of all errors of this package. `code` is stable across versions."""

    code: str = "callgate_error"


class MemoryFailed(CallgateError):
    """The operator must act: a memory's file cannot be read or written. Calls continue; the memory can be rebuilt from the journal."""

    code = "memory_failed"


class UsageError(CallgateError):
    """The developer must act: a tool, rule or setting cannot work as it is written.

    Args:
        message: Names the place, the fact, the limit and the next step.
        code: Overrides `usage` with a finer one: `schema_refused`, `remote_ref`, `waits_for_itself`.
    """

    code = "usage"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class JournalFailed(CallgateError):
    """The operator must act: a journal takes no more events, because its file or its server is gone."""

    code = "journal_failed"


class RunHeld(UsageError):
    """The caller must wait: another engine works on the run; the message says which."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="run_held")


class LeaseLost(JournalFailed):
    """Another engine has taken over the run: this engine records and starts nothing more in it. Other runs continue."""

    code = "lease_lost"


class Retryable(CallgateError):
    """Raised by a tool if the same call may succeed shortly. The call is retried if the tool's effect allows it.

    Args:
        message: What happened, for the model.
        not_started: True if nothing can have happened yet, because the request was never sent. Then the call is retried
            whatever its effect is. Otherwise the call may have taken effect, and ends `unknown` if it is not retried or
            all attempts fail.
        retry_after_s: Seconds to wait at least before the next attempt.
    """

    code = "retryable"

    def __init__(self, message: str, *, not_started: bool = False, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.not_started = not_started
        self.retry_after_s = retry_after_s


class NotDone(CallgateError):
    """Raised by a tool: nothing happened, and the same call may be sent again. Never retried by the engine itself.

    Without it, an exception of a tool with effect `once` leaves the outcome `unknown`: the effect may have happened before it was raised.

    Args:
        message: Why nothing was done, for the model.
    """

    code = "not_done"


class PausedByTool(NotDone):
    """Raised by the wrapper of a framework: the tool's own code has paused the framework's run, which will make the same call again.

    The code runs from its start then. What it did before the pause is not known.
    """


class ModelUnreachable(CallgateError):
    """The operator must check the network, address, proxy or provider: a model's provider did not answer.

    Args:
        message: Which provider, what happened, what to check.
        provider: The provider's name.
        retryable: Whether the same request may succeed later.
    """

    code = "model_unreachable"

    def __init__(self, message: str, *, provider: str, retryable: bool = True) -> None:
        super().__init__(message)
        self.provider = provider
        self.retryable = retryable


class ModelTimeout(ModelUnreachable):
    """The operator must check the provider: a deadline of a request to a model's provider has passed.

    Args:
        message: Which provider, which deadline, its length, how to change it.
        provider: The provider's name.
        deadline: The deadline's name.
    """

    code = "model_timeout"

    def __init__(self, message: str, *, provider: str, deadline: Literal["connect", "headers", "idle", "total"]) -> None:
        super().__init__(message, provider=provider)
        self.deadline = deadline


class CallAborted(CallgateError):
    """The call and its message end without a result and without an entry in the history."""

    code = "call_aborted"

    def __init__(self, status: Literal["error", "stopped_by_user"], message: str, *, details: dict[str, object] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.details = details
        """The call's result, if its tool had run."""


class ApprovalNeeded(CallgateError):
    """A human has to decide before the call may run. The engine does not wait for the decision."""

    code = "approval_needed"

    def __init__(
        self, question: str, *, rule: str, binding: str, same_call: str = "", judgments: tuple[object, ...] = (), doubt: str = ""
    ) -> None:
        super().__init__(question)
        self.judgments = judgments
        """The judgments, for the journal."""
        self.question = question
        self.rule = rule
        self.binding = binding
        """Hash of what the approval is valid for: tool, final arguments, run, principal."""
        self.same_call = same_call
        """Hash of what a denial is valid for: the call, whatever the version of its tool."""
        self.doubt = doubt
        """The uid of an earlier identical call whose outcome is unknown, which the question mentions; empty if there is none."""


class CallFailed(CallgateError):
    """Base of all errors that become the result of a call.

    Args:
        message: For the model, at most a few hundred characters: fact, cause or limit, next step.
        code: Overrides the class's code with a finer one.
        details: JSON values to add to the result's data.
    """

    code = "call_failed"
    failure_class: ClassVar[str] = "exception"
    status: Literal["error", "unknown"] = "error"

    def __init__(self, message: str, *, code: str | None = None, details: dict[str, object] | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.details = details


class ArgumentsMalformed(CallFailed):
    """The model must send the arguments again: they are not a JSON object."""

    code = "invalid_json"
    failure_class = "malformed_arguments"


class ArgumentsTruncated(CallFailed):
    """The model must send the whole call again: its arguments were cut off."""

    code = "truncated"
    failure_class = "truncated_arguments"


class ArgumentsInvalid(CallFailed):
    """The model must correct its arguments: they break the tool's schema or rules."""

    code = "schema_invalid"
    failure_class = "invalid_parameters"

    def __init__(self, message: str, *, code: str | None = None, details: dict[str, object] | None = None, faults: str = "") -> None:
        super().__init__(message, code=code, details=details)
        self.faults = faults
        """What is wrong with the arguments, a line for each; empty if only the message says it."""


class UnknownTool(CallFailed):
    """The model must choose another tool: no tool has this name."""

    code = "unknown_tool"
    failure_class = "unknown_tool"


class ToolUnavailable(CallFailed):
    """The model must use another tool, or wait: this one exists, and cannot be called now. The message says why."""

    code = "tool_unavailable"
    failure_class = "not_started"


class ToolBlocked(CallFailed):
    """The model must continue without this tool: deliberate mode does not offer it in this turn."""

    code = "blocked_by_deliberate_tool_mode"
    failure_class = "blocked_deliberate"


class CallDenied(CallFailed):
    """The model must not repeat this call: a rule, a hook or a failing policy refused it."""

    code = "policy_denied"
    failure_class = "denied"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        details: dict[str, object] | None = None,
        judgments: tuple[object, ...] = (),
        approval: str = "",
    ) -> None:
        super().__init__(message, code=code, details=details)
        self.judgments = judgments
        """The judgments, for the journal. The model is shown only the message."""
        self.approval = approval
        """The question to a human whose answer the call has used up; empty if there was none."""


class CallRepeated(CallDenied):
    """The model must use the result it has: the same call had the same result too often.

    Args:
        message: See `CallFailed`.
        of_data: Whether the repeated result is data. If so, the refusal does not count towards the failures in a row.
    """

    code = "stuck_loop"

    def __init__(self, message: str, *, of_data: bool) -> None:
        super().__init__(message, details={"repeated": "data" if of_data else "failure"})
        self.of_data = of_data


class ActorRequired(CallFailed):
    """The developer must set `Scope.actor`: the tool acts on behalf of an actor."""

    code = "requires_actor"
    failure_class = "requires_actor"


class DangerousLimitReached(CallFailed):
    """The model must wait for the next tick: this tick's limit of dangerous calls is reached."""

    code = "dangerous_limit"
    failure_class = "dangerous_limit"


class IdempotencyConflict(CallFailed):
    """The caller must use a new idempotency key: this one belongs to another call."""

    code = "idempotency_conflict"
    failure_class = "idempotency_conflict"


class ToolRaised(CallFailed):
    """The tool's author must act: the tool's code raised, exited or crashed."""

    code = "tool_raised"
    failure_class = "exception"


class ResultInvalid(CallFailed):
    """The tool's author must act: the result does not match the tool's output schema."""

    code = "invalid_result"
    failure_class = "invalid_result"


class ResultNotSerializable(CallFailed):
    """The tool's author must act: the result is not JSON."""

    code = "non_serializable"
    failure_class = "non_serializable"


class ResultRejected(CallFailed):
    """A hook withheld the result from the model; the call itself ran."""

    code = "rejected_by_hook"
    failure_class = "rejected_by_hook"


class CallNotStarted(CallFailed):
    """The call was never started; nothing happened and it may be sent again."""

    code = "not_started"
    failure_class = "not_started"

    @classmethod
    def because(cls, reason: str) -> Self:
        """Make the error for a call that may be sent again as it is.

        Args:
            reason: Why the call was not started, as the end of a sentence.
        """
        return cls(f"It was not started: {reason.removesuffix('.')}. Nothing happened; it may be sent again.")


class OutcomeUnknown(CallFailed):
    """The call may have taken effect. Somebody must check this before the call is repeated."""

    code = "outcome_unknown"
    failure_class = "outcome_unknown"
    status = "unknown"


class RecordFailed(CallFailed):
    """The operator must act: the call could not be recorded, so it was not run.

    Args:
        message: For the operator: what failed, why, and what to do.
        code: See `CallFailed`.
        told: The text for the model, which needs neither paths nor advice for the operator. None: `message`.
    """

    code = "record_failed"
    failure_class = "record_failed"

    def __init__(self, message: str, *, code: str | None = None, told: str | None = None) -> None:
        super().__init__(message, code=code)
        self.told = message if told is None else told
        """The text for the model."""
