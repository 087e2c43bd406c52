"""Read the messages of a Pydantic AI run: which response made a call, and what a human has answered.

Must not know of engines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic_ai import DeferredToolRequests, DeferredToolResults, RunContext, ToolApproved, ToolDenied
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, RetryPromptPart, ToolCallPart, ToolReturnPart

from callgate.errors import UsageError
from callgate.integrations.cut_calls import cut_calls

__all__ = [
    "answered_calls",
    "asks_itself",
    "goes_on_with_record",
    "is_cut",
    "made_by",
    "place_of",
    "recorded_answers",
    "wait_until_answered",
]

_RECORDED = "callgate_recorded"
"""The mark in the metadata of a call that continues with the answer in the engine's journal."""
_OWN = "As in recorded_answers(result.output, {'%s': True})."


def recorded_answers(
    requests: DeferredToolRequests | Iterable[str | ModelMessage],
    own: Mapping[str, bool | ToolApproved | ToolDenied] | None = None,
) -> DeferredToolResults:
    """Return results with which a run continues with the answers in the engine's journal.

    For answers that come from `callgate approve`, `callgate deny`, `engine.approve` or `engine.deny`. A call without an
    answer is deferred again.

    Args:
        requests: The run's output; or its messages, whose calls without a result are taken; or the ids of the calls that wait for
            approval. Leave out calls that have a result: Pydantic AI refuses those.
        own: Your answers to calls whose tool itself asks for approval, by the ids of the calls. The journal has no answers to those.

    Raises:
        UsageError: `requests` is something else, has a call whose tool itself asks for approval and that has no answer in `own`, or is
            messages in which no call waits.
    """
    ids = _ids_of(requests)
    answers = dict(own or {})
    if isinstance(requests, DeferredToolRequests):
        for call in requests.approvals:
            if call.tool_call_id not in answers and "approval_id" not in requests.metadata.get(call.tool_call_id, {}):
                raise UsageError(f"{asks_itself(call.tool_name, call.tool_call_id)} {_OWN % call.tool_call_id}")
    recorded = [one for one in ids if one not in answers]
    return DeferredToolResults(
        approvals={**dict.fromkeys(recorded, True), **answers}, metadata={one: {_RECORDED: True} for one in recorded}
    )


def asks_itself(name: str, call_id: str) -> str:
    """Return the error text for a call whose approval the engine did not ask for."""
    return f"{name} asks by its own requires_approval, which no journal answers: give True or ToolDenied for {call_id}."


def _ids_of(given: object) -> list[str]:
    if isinstance(given, DeferredToolRequests):
        return [call.tool_call_id for call in given.approvals]
    listed = list(given) if isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping)) else None
    if listed and all(isinstance(one, (ModelRequest, ModelResponse)) for one in listed):
        return _unanswered_ids(listed)
    if listed is None or not all(isinstance(one, str) for one in listed):
        raise UsageError(
            f"recorded_answers was given {given!r:.80}, of the type {type(given).__name__}; give result.output, the run's messages, or a"
            " list of tool call ids (not approval ids)."
        )
    return listed


def _unanswered_ids(messages: Sequence[ModelMessage]) -> list[str]:
    """Return the ids of the calls of the last response that have no result after it.

    Raises:
        UsageError: There are none.
    """
    done: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ModelRequest):
            done |= {part.tool_call_id for part in message.parts if isinstance(part, (ToolReturnPart, RetryPromptPart))}
        elif waiting := [call.tool_call_id for call in message.tool_calls if call.tool_call_id not in done]:
            return waiting
        else:
            break
    raise UsageError("recorded_answers: no call in these messages waits for an answer. Go on without deferred_tool_results.")


def goes_on_with_record(ctx: RunContext[Any]) -> bool:
    """Return whether the call of this context continues because of `recorded_answers`."""
    return _RECORDED in (ctx.tool_call_metadata or {})


def wait_until_answered(ctx: RunContext[Any]) -> str:
    """Return the id of the question that a yes answers, if the host kept the metadata of the requests; else an empty text."""
    return str((ctx.tool_call_metadata or {}).get("approval_id", ""))


def made_by(ctx: RunContext[Any]) -> tuple[str, ToolCallPart | None]:
    """Return what identifies the model's message that made the call, and the call as the model made it."""
    response, part = _response_with(ctx)
    return (response.provider_response_id or _in_utc(response.timestamp), part) if response is not None else ("", None)


def _in_utc(time: datetime) -> str:
    """Return a time as text, the same whatever time zone the store of the messages has given it."""
    return (time.astimezone(UTC) if time.tzinfo is not None else time).isoformat()


def is_cut(ctx: RunContext[Any]) -> bool:
    """Return whether the response that made the call ended before the call was complete."""
    response, _ = _response_with(ctx)
    if response is None:
        return False
    said = (response.provider_details or {}).get("finish_reason")
    return ctx.tool_call_id in cut_calls([call.tool_call_id for call in response.tool_calls], response.finish_reason, said)


def _response_with(ctx: RunContext[Any]) -> tuple[ModelResponse | None, ToolCallPart | None]:
    """Return the latest response that has the call of this context, and the call as the model made it."""
    for message in reversed(ctx.messages):
        if isinstance(message, ModelResponse):
            for part in message.parts:
                if isinstance(part, ToolCallPart) and part.tool_call_id == ctx.tool_call_id:
                    return message, part
    return None, None


def place_of(ctx: RunContext[Any]) -> tuple[str, str]:
    """Return the ids of the conversation, and of the model's message that made the call."""
    return ctx.conversation_id or ctx.run_id or "", made_by(ctx)[0]


def answered_calls(ctx: RunContext[Any]) -> list[ToolReturnPart]:
    """Return the results in the latest message that no call of this run has returned: of denied calls, and those that the run was given."""
    latest = ctx.messages[-1] if ctx.messages else None
    parts = latest.parts if isinstance(latest, ModelRequest) else ()
    results = [part for part in parts if isinstance(part, ToolReturnPart)]
    return [one for one in results if one.outcome == "denied" or (one.outcome == "success" and ctx.run_step <= 1)]
