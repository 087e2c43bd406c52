"""Run the calls of a provider's response, and return what the host appends to its conversation.

Beside `emission`, which runs the calls. `provider_responses` reads the response and writes the items; this module only joins both. It is
imported when a host first hands in a response, because engines without one need no provider's format.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from callgate.calls import Aborted, Answered, Outcome, Restarted, Scope, Suspended, ToolResult
from callgate.emission import EndedCall
from callgate.models.model_events import FinishReason
from callgate.provider_responses import ProviderResponse, history_items

__all__ = ["ResponseReply", "failed_reply", "reply_to", "scope_of"]

Ending = Literal["suspended", "aborted", "restarted", "held"]

_CANCELLED = frozenset({"cancelled", "canceled"})
"""The provider's words for a message that was cancelled; no such message ends with another of callgate's reasons than `other`."""
_UNREAD = frozenset({"bad_frame", "too_large", "too_many_calls"})
"""Codes of answers that could not be read, of which the provider reported no error."""
log = logging.getLogger("callgate")
_CUT_OFF = "the answer ended before it was complete; nothing more of it runs. Ask again"


class ResponseReply(Struct, frozen=True, kw_only=True):
    """What to do after a response whose calls have ended: append `messages`, and stop if `done`."""

    api: str
    """The provider's API, such as `openai.chat`."""
    messages: list[Any] = []
    """Everything to append to the conversation, in the provider's format: the model's message, then the results. Empty if the message
    must not become part of the conversation: after a suspension, a restart, or an error of the provider, or if the run is held. After an
    abort, the message has only those calls that have results, and is left out if none has.
    """
    results: list[Any] = []
    """The results alone, for a host that appends the model's message itself. Where they belong to a turn of the user, this turn."""
    outcomes: tuple[Outcome, ...] = ()
    """The outcomes of the calls, in the order of the calls."""
    asked_within: tuple[Suspended, ...] = ()
    """The questions about calls that tools have made within the calls of the message (`ctx.call`), and that a human has to allow."""
    host_calls: tuple[Mapping[str, Any], ...] = ()
    """The items of the message that the host must answer itself, as received; the engine has no tool for them. Run each, and append its
    output after `messages`: of OpenAI's responses API, `computer_call`, `shell_call`, `local_shell_call`, `apply_patch_call`, every other
    call of a tool that OpenAI defines and does not run, and `mcp_approval_request`. Empty if `ended` is set.
    """
    text: str = ""
    """The visible text of the message."""
    done: bool = False
    """Whether the loop stops here: the model has answered without calls, or the message is suspended, aborted or held (see `ended`), so
    that asking the model again would only repeat it.
    """
    finish: FinishReason
    """Why the message ended. Calls that a limit cut (`length`) have error results."""
    ended: Ending | None = None
    """Why the conversation cannot continue with `messages`; None if it can. `held`: another engine works on the run, or the record of the
    run cannot be read, and no call ran now; hand the same response in again later.
    """
    reason: str = ""
    """The reason of `ended`, in words."""
    container: str | None = None
    """The id of the container in which Anthropic has run code for the message. Send it as `container` with the next requests, which the API
    may refuse without it.
    """
    retryable: bool = False
    """Whether the message failed in a way that asking the model again may mend: it was cut, the provider had an error that passes, or it
    could not parse what the model wrote. Nothing that has an effect has run.
    """
    message_id: str = ""
    """The id of the message, which distinguishes its calls from those of other messages."""

    @property
    def suspended(self) -> tuple[Suspended, ...]:
        """The calls that wait for a human. If `ended` is `suspended`, hand the same response in again when all are answered.

        Those of `asked_within` come last. Their tools have been told, and have ended, so that `messages` has their results: a yes counts
        when a tool makes the call again.
        """
        return (*(outcome for outcome in self.outcomes if isinstance(outcome, Suspended)), *self.asked_within)

    @property
    def unknown(self) -> tuple[Answered, ...]:
        """The calls with an unknown outcome: they, or the earlier calls because of which they were refused, may have taken effect.

        Check and settle them. Their results tell the model so, and the conversation continues with `messages`.
        """
        results = map(_result_of, self.outcomes)
        return tuple(Answered(result) for result in results if result is not None and result.status == "unknown")


def scope_of(scope: Scope, message_id: str) -> Scope:
    """Return the scope of a message's calls: with the provider's id of the message, if the host gave none."""
    return scope if scope.message_id or not message_id else replace(scope, message_id=message_id)


def failed_reply(response: ProviderResponse) -> ResponseReply | None:
    """Return the reply to a response that is an error, incomplete, blocked or cancelled, so that none of its calls may run; else None."""
    reason = _failure(response)
    if not reason:
        if response.finish == "other" and response.calls:
            log.warning(
                "A message of %s with %d tool calls ended with '%s', which does not say whether it is complete. Its complete calls run.",
                response.provider.api,
                len(response.calls),
                response.said,
            )
        return None
    return ResponseReply(
        api=response.provider.api,
        text=response.message.text,
        done=True,
        finish=response.finish,
        ended="aborted",
        reason=reason,
        container=response.container or None,
        retryable=response.fault.retryable if response.fault is not None else response.finish in ("error", "cut"),
        message_id=response.message_id,
    )


def _failure(response: ProviderResponse) -> str:
    """Return why none of the calls may run; empty if they may."""
    if response.finish == "content_filter":
        why = f"{response.said or response.finish}: {response.explanation}".removesuffix(": ")
        return f"the provider blocked the answer ({why}); nothing of it runs"
    if response.finish == "other" and response.said in _CANCELLED:
        return "the response was cancelled; nothing of it runs"
    if response.finish not in ("error", "cut"):
        return ""
    if response.fault is None:
        return _CUT_OFF
    what = "the answer cannot be read" if response.fault.code in _UNREAD else "the provider reported an error"
    return f"{what} ({response.fault.code}): {response.fault.message}"


def reply_to(response: ProviderResponse, ends: Sequence[EndedCall]) -> ResponseReply:
    """Return the reply to a response whose calls have ended.

    Args:
        response: The response.
        ends: The end of each call, in order.
    """
    outcomes = tuple(end.outcome for end in ends if end.outcome is not None)
    ended, reason = _ending(outcomes)
    results = [_result_of(end.outcome) for end in ends]
    keeps = ended is None or (ended == "aborted" and any(result is not None for result in results))
    items = history_items(response, results, goes_on=ended is None) if keeps else None
    asked_within = {question.approval_id: question for end in ends for question in end.asked_within}  # a tool may try its call again
    return ResponseReply(
        api=response.provider.api,
        messages=items.messages if items is not None else [],
        results=items.results if items is not None else [],
        outcomes=outcomes,
        asked_within=tuple(asked_within.values()),
        host_calls=response.host_calls if ended is None else (),
        text=response.message.text,
        done=_is_done(response, ended),
        finish=response.finish,
        ended=ended,
        reason=reason,
        container=response.container or None,
        message_id=response.message_id,
    )


def _result_of(outcome: Outcome | None) -> ToolResult | None:
    match outcome:
        case Answered(result=result) | Aborted(kept_result=result):
            return result
    return None


def _is_done(response: ProviderResponse, ended: Ending | None) -> bool:
    if ended is not None:
        return ended != "restarted"
    return not (response.calls or response.host_calls) and response.finish != "pause"


def _ending(outcomes: Sequence[Outcome]) -> tuple[Ending | None, str]:
    """Return why the message cannot simply be appended, and the reason in words."""
    for outcome in outcomes:
        if isinstance(outcome, Aborted):
            return "aborted", f"{outcome.status}: {outcome.reason}"
    if questions := [outcome.question for outcome in outcomes if isinstance(outcome, Suspended)]:
        return "suspended", "; ".join(questions)
    if any(isinstance(outcome, Restarted) for outcome in outcomes):
        return "restarted", "a result was added to the context; ask the model again"
    unopened = [outcome.result for outcome in outcomes if isinstance(outcome, Answered) and _is_unopened(outcome.result)]
    return ("held", unopened[0].metadata.record_failure) if unopened else (None, "")


def _is_unopened(result: ToolResult) -> bool:
    """Return whether a call is not part of its run, because the run could not be opened."""
    return not result.uid and result.failure_class == "record_failed"
