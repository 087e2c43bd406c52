"""Ask a tool whether a human has to allow one of its calls.

Belongs to the gate, which asks after the policies: a call that they deny needs no question, and a call that they allow may need one. Only a
plain False of the tool's function lets a call run without a human: if the function fails or takes too long, a human is asked. Knows nothing
of answers.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Final

from msgspec import DecodeError

from callgate._json import decode, json_text, plain_bytes
from callgate._pipeline.host_code import HostAnswer, RunsHostCode, describe_failure
from callgate._terminal_text import shortened
from callgate.protocols import Ask
from callgate.stage_types import ValidatedCall

__all__ = ["TOOL_RULE", "tool_question"]

TOOL_RULE: Final = "tool:requires_approval"
"""The name in the record for a question that the tool itself requires."""
_MOST_ARGUMENTS = 500
"""Arguments of more characters are shown one by one, with long values shortened."""
_MOST_NAMED = 20
"""The largest number of arguments that are shown one by one."""
_LEAST_VALUE = 40
"""The least number of characters to which a value is shortened."""
_MOST_ENCODED = 1_000_000
"""The largest number of characters of arguments that are read for a question."""


async def tool_question(call: ValidatedCall, host: RunsHostCode, timeout_s: float) -> Ask | None:
    """Return the question of the call's tool to a human; None if the tool needs no approval of this call."""
    required = call.tool.approval
    if required is None:
        return None
    encoded = plain_bytes(call.arguments)
    call_text = f"{call.name} with {_show_arguments(host.cut(encoded.decode(), _MOST_ENCODED))}{_show_dropped(call, host)}"
    if required.asks is None:
        return Ask(question=f"Run {call_text}?", rule=TOOL_RULE)
    answer = await _ask_tool(call, encoded, host, timeout_s)
    if answer.error is not None:
        why = describe_failure(answer.error, host)
        host.approval_check_failed(call, why, answer.error)
        return Ask(question=f"Run {call_text}? Its requires_approval {why.rstrip('.')}.", rule=TOOL_RULE)
    match answer.value:
        case False:
            return None
        case True | "":
            return Ask(question=f"Run {call_text}?", rule=TOOL_RULE)
        case str() as question:
            return Ask(question=f"{host.cut(question)} ({call_text})", rule=TOOL_RULE)
        case other:
            kind = type(other).__name__
            return Ask(question=f"Run {call_text}? Its requires_approval returned {kind} instead of a bool or a question.", rule=TOOL_RULE)


def _show_arguments(arguments: str) -> str:
    """Return the arguments of a call; if they are long, with each long name and value shortened, so that none hides another.

    Args:
        arguments: As JSON, without secrets.
    """
    if len(arguments) <= _MOST_ARGUMENTS:
        return arguments
    try:
        values = decode(arguments)
    except DecodeError:  # the redactor has removed more than a text, or the text was cut
        values = None
    if not isinstance(values, dict):
        return shortened(arguments, _MOST_ARGUMENTS)
    most = max(_LEAST_VALUE, _MOST_ARGUMENTS // len(values))
    shown = [
        f"{shortened(json_text(name), most)}:{shortened(json_text(value), most)}" for name, value in list(values.items())[:_MOST_NAMED]
    ]
    more = len(values) - _MOST_NAMED
    return "{" + ",".join(shown) + (f", and {more} more" if more > 0 else "") + "}"


def _show_dropped(call: ValidatedCall, host: RunsHostCode) -> str:
    """Return which arguments of the model the tool does not get, so that a human does not take them for granted."""
    told = " ".join(note.text for note in call.notes if note.kind == "dropped")
    return f" [{host.cut(told, _MOST_ARGUMENTS)}]" if told else ""


async def _ask_tool(call: ValidatedCall, encoded: bytes, host: RunsHostCode, timeout_s: float) -> HostAnswer:
    """Return what the tool's function says about a copy of the call's arguments. A plain function runs in a thread."""
    required = call.tool.approval
    assert required is not None
    ask = partial(required.asked, decode(encoded), call.scope)
    answer = HostAnswer(value=ask()) if inspect.iscoroutinefunction(required.asks) else await host.in_thread(ask, timeout_s)
    return await host.ask(answer.value, timeout_s, "requires_approval") if inspect.isawaitable(answer.value) else answer
