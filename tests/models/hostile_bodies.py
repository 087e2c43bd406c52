"""Bodies that take quadratic time in a careless decoder: for each API, bodies of about `n` frames."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from tests.models import responses_api as responses
from tests.models import test_anthropic_messages as anthropic
from tests.models import test_bedrock_converse as converse
from tests.models import test_bedrock_invoke as invoke
from tests.models import test_cohere_chat as cohere
from tests.models import test_gemini_generate as gemini
from tests.models import test_gemini_interactions as interactions
from tests.models import test_ollama_chat as ollama
from tests.models import test_openai_chat as chat
from tests.models.aws_frames import event, failure

__all__ = ["BODIES"]

Body = Callable[[int], bytes]
LONG = '{"a": "' + "x" * 40 + '", "b": ['


def _each(n: int, frame: Callable[[int], bytes]) -> bytes:
    return b"".join(frame(i) for i in range(n))


def _args(n: int) -> str:
    """Return a complete JSON object whose size grows with `n`."""
    return '{"a": "' + "x" * (20 * n) + '"}'


def _open_chat(n: int, **more: object) -> bytes:
    return _each(n, lambda i: chat.piece('{"a":', index=i, id=f"c{i}", name="f", **more))


def _message(*calls: Mapping[str, object], **more: object) -> bytes:
    return chat.data({"choices": [{"index": 0, "message": {"role": "assistant", "tool_calls": calls}, **more}]})


def _tool(i: int, arguments: str, **more: object) -> dict[str, object]:
    return {"id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": arguments}, **more}


def _opened(api_open: Callable[[int], bytes], then: Callable[[int], bytes]) -> Body:
    """Return a body of `n` calls that stay open and `n` frames that may make the decoder look at each of them."""
    return lambda n: _each(n, api_open) + _each(n, then)


def _grown(begin: bytes, piece: Callable[[str], bytes], *, text: str = "{},", first: str = '{"a": [') -> Body:
    """Return a body with one call in many pieces, each of which has a closing brace."""
    return lambda n: begin + piece(first) + _each(n, lambda i: piece(text)) + piece("1]}")


_DETAIL = {"type": "reasoning.text", "index": 0}

CHAT: dict[str, Body] = {
    "open calls": _open_chat,
    "open calls, one list": lambda n: chat.chunk({"tool_calls": [_tool(i, "{", index=i) for i in range(n)]}),
    "open calls of one id": lambda n: _each(n, lambda i: chat.piece("{", index=i, id="same", name="f")),
    "one id, other arguments": lambda n: _each(n, lambda i: chat.piece(f'{{"a": {i}}}', index=i, id="same", name="f")),
    "one id, small copies": lambda n: (
        chat.piece(_args(n), index=0, id="a", name="f") + _each(n, lambda i: chat.piece("{}", id="a", name="f"))
    ),
    "name and id repeated": _grown(b"", lambda text: chat.piece(text, index=0, id="a", name="f")),
    "name and id repeated, no braces": _grown(b"", lambda text: chat.piece(text, index=0, id="a", name="f"), text='"x",'),
    "name and id repeated, no index": _grown(b"", lambda text: chat.piece(text, id="a", name="f"), text='"x",'),
    "name repeated": _grown(b"", lambda text: chat.piece(text, index=0, name="f"), text="[],"),
    "a new id in each piece": lambda n: _each(n, lambda i: chat.piece(LONG if not i else "[],", index=0, id=f"c{i}")),
    "ids in turns": lambda n: _open_chat(n) + _each(n, lambda i: chat.piece("[", id=f"c{(i * 7) % n}")),
    "braces": _grown(chat.piece("", index=0, id="a", name="f"), lambda text: chat.piece(text, index=0)),
    "nameless, then named": lambda n: _grown(b"", lambda text: chat.piece(text, index=0))(n) + chat.piece("", index=0, name="f"),
    "a name in pieces": lambda n: _each(n, lambda i: chat.piece(None, index=0, name="n" if i else "m")),
    "faults": _opened(lambda i: chat.piece("{", index=i, id=f"c{i}", name="f"), lambda i: chat.data({"error": {"message": "no"}})),
    "stops": _opened(lambda i: chat.piece("{", index=i, id=f"c{i}", name="f"), lambda i: chat.chunk(finish="stop")),
    "limits": _opened(lambda i: chat.piece("{", index=i, id=f"c{i}", name="f"), lambda i: chat.chunk(finish="length")),
    "empty choices": _opened(lambda i: chat.piece("{", index=i, id=f"c{i}", name="f"), lambda i: chat.data({"choices": [{"index": 0}]})),
    "whole messages": lambda n: _each(n, lambda i: _message(_tool(i, "{"))),
    "whole messages behind pieces": _opened(
        lambda i: chat.chunk({"content": "x"}) + chat.chunk({"reasoning": "y"}),
        lambda i: chat.data({"choices": [{"index": 0, "delta": {}, "message": {"content": "x"}, "finish_reason": "stop"}]}),
    ),
    "choices": lambda n: chat.data({"choices": [{"index": i, "delta": {"content": "x"}} for i in range(n)]}),
    "choices in turns": lambda n: _each(n, lambda i: chat.data({"choices": [{"index": i, "delta": {"content": "x"}}]})),
    "echoed thoughts": lambda n: _each(n, lambda i: chat.chunk({"reasoning_details": [{**_DETAIL, "text": "x"}]})),
    "text and thoughts in turns": lambda n: _each(n, lambda i: chat.chunk({"content": "x"} if i % 2 else {"reasoning": "y"})),
    "a huge id": lambda n: _each(n, lambda i: chat.piece("[", index=0, id="x" * 20 * n if not i else None, name=None if i else "f")),
    "older calls": lambda n: _each(n, lambda i: chat.chunk({"function_call": {"name": "f", "arguments": "{},"}})),
    "deep": lambda n: _each(n, lambda i: chat.piece('{"a":', index=0, id="a", name="f")) + _each(n, lambda i: chat.piece("}", index=0)),
    "lines without an end": lambda n: b"data: " + b"x" * 40 * n,
    "no JSON": lambda n: _each(n, lambda i: b"data: {nothing\n\n"),
    "several values in one event": lambda n: b"".join(b'data: {"choices":[]}\n' for _ in range(n)) + b"\n",
}


def _item(i: int, **more: object) -> dict[str, object]:
    return {"type": "function_call", "id": f"fc_{i}", "call_id": f"c{i}", "name": "f", "arguments": "", **more}


def _added(i: int, **more: object) -> bytes:
    return responses.added(i, **_item(i, **more))


def _text(kind: str, **fields: object) -> bytes:
    return responses.event(f"response.{kind}", item_id="msg_1", output_index=0, content_index=0, **fields)


_SAYS = responses.added(0, type="message", id="msg_1", content=[])
RESPONSES: dict[str, Body] = {
    "open items": lambda n: _each(n, _added) + _each(n, lambda i: responses.piece(i, f"fc_{i}", "{")),
    "open items, unnamed pieces": lambda n: _each(n, _added) + _each(n, lambda i: responses.piece(None, None, "{")),
    "open items of one id": lambda n: _each(n, lambda i: _added(i, id="same")) + _each(n, lambda i: responses.piece(i, "same", "{")),
    "open items of one id and number": lambda n: _each(n, lambda i: responses.added(0, **_item(i, id="same", name=f"f{i}"))),
    "open items of one number": lambda n: (
        _each(n, lambda i: responses.added(0, **_item(i))) + _each(n, lambda i: responses.piece(0, None, "{"))
    ),
    "open items, others done": lambda n: _each(n, _added) + _each(n, lambda i: responses.done(i, **_item(n + i, arguments="{}"))),
    "done in turns": lambda n: _each(n, lambda i: _added(i) + responses.done(i, **_item(i, arguments="{}"))),
    "done again and again": lambda n: _each(n, lambda i: responses.done(i, **_item(i, arguments="{}")) * 2),
    "done without ids": lambda n: _each(n, lambda i: responses.done(None, type="function_call", name=f"f{i}", arguments="{}")),
    "texts without ids": lambda n: _each(n, lambda i: responses.event("response.output_text.delta", delta="x")),
    "text done again and again": lambda n: (
        _SAYS + _each(n, lambda i: _text("output_text.delta", delta="x") + _text("output_text.done", text="x"))
    ),
    "refusal done again and again": lambda n: (
        _SAYS + _each(n, lambda i: _text("refusal.delta", delta="x") + _text("refusal.done", refusal=""))
    ),
    "parts done again and again": lambda n: (
        _SAYS + _each(n, lambda i: _text("output_text.delta", delta="x") + _text("content_part.done", part={"text": "x"}))
    ),
    "arguments done again and again": lambda n: (
        _added(0)
        + responses.piece(0, "fc_0", _args(n))
        + _each(n, lambda i: responses.event("response.function_call_arguments.done", item_id="fc_0", output_index=0, arguments="{"))
    ),
    "arguments done and grown": lambda n: (
        _added(0)
        + _each(
            n,
            lambda i: (
                responses.piece(0, "fc_0", "{},")
                + responses.event("response.function_call_arguments.done", item_id="fc_0", output_index=0, arguments="")
            ),
        )
    ),
    "braces": _grown(_added(0), lambda text: responses.piece(0, "fc_0", text)),
    "ends": _opened(_added, lambda i: responses.over()),
    "ends that are not well": _opened(_added, lambda i: responses.over(status="incomplete")),
    "ends with one item": _opened(_added, lambda i: responses.over(_item(0, arguments="{}"))),
    "one end with all items": lambda n: _each(n, _added) + responses.over(*(_item(i, arguments="{}") for i in range(n))),
    "one end with other items": lambda n: (
        _each(n, lambda i: _added(i, call_id="", id="")) + responses.over(*(_item(i, call_id="", id="", name="g") for i in range(n)))
    ),
    "one end with unnamed items": lambda n: (
        _each(n, lambda i: _added(i, call_id="", id="")) + responses.over(*({"type": "function_call"} for i in range(n)))
    ),
    "faults": _opened(_added, lambda i: responses.event("error", message="no")),
    "responses": lambda n: _each(n, lambda i: responses.event("response.created", response={}) + _added(i)),
    "thoughts": lambda n: (
        responses.added(0, type="reasoning", id="rs_1", summary=[])
        + _each(
            n,
            lambda i: (
                responses.event("response.reasoning_text.delta", item_id="rs_1", output_index=0, content_index=i, delta="x")
                + responses.event("response.reasoning_text.done", item_id="rs_1", output_index=0, content_index=i, text="x")
            ),
        )
    ),
    "own tools": lambda n: _each(n, lambda i: responses.done(i, type="web_search_call", id=f"ws_{i}")),
}


def _use(i: int) -> bytes:
    return anthropic.start(i, type="tool_use", id=f"c{i}", name="f", input={})


_NATIVE = anthropic.start(0, type="server_tool_use", id="s", name="search", input={})
ANTHROPIC: dict[str, Body] = {
    "open calls": lambda n: _each(n, _use) + _each(n, lambda i: anthropic.piece(i, "{")),
    "stops": lambda n: _use(0) + _each(n, lambda i: anthropic.piece(0, "{}," if i else '{"a": [') + anthropic.stop(0)),
    "stops of open calls": lambda n: _each(n, _use) + _each(n, lambda i: anthropic.piece(i, "{") + anthropic.stop(i)),
    "stops of a tool of the provider": lambda n: _NATIVE + _each(n, lambda i: anthropic.piece(0, "{},") + anthropic.stop(0)),
    "an unknown block in pieces": lambda n: (
        anthropic.start(0, type="news", body="") + _each(n, lambda i: anthropic.delta(0, type="news_delta", body="x"))
    ),
    "braces": _grown(_use(0), lambda text: anthropic.piece(0, text)),
    "ends": _opened(_use, lambda i: anthropic.frame("message_delta", delta={"stop_reason": "tool_use"})),
    "ends that are not well": _opened(_use, lambda i: anthropic.frame("message_delta", delta={"stop_reason": "max_tokens"})),
    "message stops": _opened(lambda i: _use(i) + anthropic.piece(i, "{"), lambda i: anthropic.frame("message_stop")),
    "faults": _opened(lambda i: _use(i) + anthropic.piece(i, "{"), lambda i: anthropic.frame("error", error={"message": "no"})),
    "messages": lambda n: _each(n, lambda i: anthropic.frame("message_start", message={"content": [{"type": "tool_use", "id": f"c{i}"}]})),
    "thoughts": lambda n: (
        anthropic.start(0, type="thinking", thinking="")
        + _each(n, lambda i: anthropic.delta(0, type="thinking_delta", thinking="x") + anthropic.delta(0, signature="s"))
    ),
    "a huge id": lambda n: (
        anthropic.start(0, type="tool_use", id="x" * 20 * n, name="f", input={}) + _each(n, lambda i: anthropic.piece(0, "["))
    ),
}


def _part(**function: object) -> bytes:
    return gemini.chunk({"functionCall": function})


GEMINI: dict[str, Body] = {
    "calls": lambda n: _each(n, lambda i: _part(name="f", args={"a": i})),
    "calls of one id": lambda n: _each(n, lambda i: _part(name="f", id="same", args={"a": i})),
    "one id, small copies": lambda n: (
        _part(name="f", id="a", args={"a": "x" * 20 * n}) + _each(n, lambda i: _part(name="f", id="a", args={}))
    ),
    "open calls of one id": lambda n: _each(n, lambda i: _part(name="f", id="same", willContinue=True) + _part(name="g", id="b", args={})),
    "a string in pieces": lambda n: (
        _part(name="f", willContinue=True) + _each(n, lambda i: gemini.chunk(gemini.grows("$.a", "x", goes_on=True)))
    ),
    "two strings in turns": lambda n: (
        _part(name="f", willContinue=True) + _each(n, lambda i: gemini.chunk(gemini.grows(f"$.{'ab'[i % 2]}", "x", goes_on=True)))
    ),
    "a list in pieces": lambda n: _part(name="f", willContinue=True) + _each(n, lambda i: gemini.chunk(gemini.grows(f"$.a[{i}]", i))),
    "stops": _opened(lambda i: _part(name="f", id=f"c{i}", willContinue=True), lambda i: gemini.STOP),
    "limits": _opened(lambda i: _part(name="f", id=f"c{i}", willContinue=True), lambda i: gemini.chunk(finish="MAX_TOKENS")),
    "faults": _opened(
        lambda i: _part(name="f", id=f"c{i}", willContinue=True),
        lambda i: chat.data({"error": {"message": "no"}}) + _part(name="f", args={}),
    ),
    "candidates": lambda n: chat.data({"candidates": [{"index": i, "content": {"parts": [{"text": "x"}]}} for i in range(n)]}),
    "other parts": lambda n: _each(n, lambda i: gemini.chunk({"executableCode": {"code": "1"}})),
    "signatures": lambda n: _each(n, lambda i: gemini.chunk({"text": "x", "thoughtSignature": "s"})),
}


def _step(i: int) -> bytes:
    return interactions.start(i, "function_call", id=f"c{i}", name="f", arguments={})


INTERACTIONS: dict[str, Body] = {
    "open calls": lambda n: _each(n, _step) + _each(n, lambda i: interactions.delta(i, "arguments_delta", arguments="{")),
    "stops": lambda n: _step(0) + _each(n, lambda i: interactions.delta(0, "arguments_delta", arguments="{},") + interactions.stop(0)),
    "braces": _grown(_step(0), lambda text: interactions.delta(0, "arguments_delta", arguments=text)),
    "whole calls again and again": lambda n: (
        interactions.delta(0, "function_call", id="a", name="f", arguments={"a": "x" * 20 * n})
        + _each(n, lambda i: interactions.delta(0, "function_call", id="a", name="f", arguments={"a": 1}))
    ),
    "ends": _opened(_step, lambda i: interactions.event("interaction.status_update", status="requires_action")),
    "ends that are not well": _opened(_step, lambda i: interactions.event("interaction.status_update", status="incomplete")),
    "faults": _opened(_step, lambda i: interactions.event("error", error={"message": "no"})),
    "starts of one number": lambda n: _each(n, lambda i: interactions.start(0, "function_call", id=f"c{i}", name="f")),
    "other content": lambda n: (
        interactions.start(0, "search_call", id="s") + _each(n, lambda i: interactions.delta(0, "search_call", query="x"))
    ),
    "thoughts": lambda n: (
        interactions.start(0, "thought")
        + _each(
            n,
            lambda i: (
                interactions.delta(0, "thought_summary", content={"text": "x"}) + interactions.delta(0, "thought_signature", signature="s")
            ),
        )
    ),
}

_CONVERSE_TOOL = event("contentBlockStart", {"contentBlockIndex": 0, "start": {"toolUse": {"type": "server_tool_use", "name": "s"}}})
_CONVERSE_RESULT = event("contentBlockStart", {"contentBlockIndex": 0, "start": {"toolResult": {"toolUseId": "s"}}})
CONVERSE: dict[str, Body] = {
    "open calls": lambda n: _each(n, lambda i: converse.start(i, f"c{i}", "f")) + _each(n, lambda i: converse.piece(i, "{")),
    "stops": lambda n: converse.start(0, "a", "f") + _each(n, lambda i: converse.piece(0, "{},") + converse.stop(0)),
    "braces": _grown(converse.start(0, "a", "f"), lambda text: converse.piece(0, text)),
    "ends": _opened(lambda i: converse.start(i, f"c{i}", "f"), lambda i: converse.end("tool_use")),
    "ends that are not well": _opened(lambda i: converse.start(i, f"c{i}", "f"), lambda i: converse.end("max_tokens")),
    "faults": _opened(lambda i: converse.start(i, f"c{i}", "f"), lambda i: failure("throttlingException", "no")),
    "signatures": lambda n: _each(n, lambda i: converse.delta(0, reasoningContent={"signature": "s"})),
    "a tool of the provider": lambda n: _CONVERSE_TOOL + _each(n, lambda i: converse.piece(0, "x") + converse.stop(0)),
    "a result of the provider": lambda n: _CONVERSE_RESULT + _each(n, lambda i: converse.delta(0, toolResult=[{"text": "x"}])),
    "thoughts in turns": lambda n: _each(n, lambda i: converse.delta(i, reasoningContent={"text": "x"})),
}


def _maker(i: int) -> bytes:
    return invoke.block(i, "tool_use", id=f"c{i}", name="f", input={})


INVOKE: dict[str, Body] = {
    "open calls": lambda n: _each(n, _maker) + _each(n, lambda i: invoke.delta(i, "input_json_delta", partial_json="{")),
    "braces": _grown(_maker(0), lambda text: invoke.delta(0, "input_json_delta", partial_json=text)),
    "stops": lambda n: (
        _maker(0)
        + _each(n, lambda i: invoke.delta(0, "input_json_delta", partial_json="{},") + invoke.chunk(type="content_block_stop", index=0))
    ),
    "ends": _opened(_maker, lambda i: invoke.chunk(type="message_delta", delta={"stop_reason": "tool_use"})),
    "faults": _opened(_maker, lambda i: failure("throttlingException", "no")),
    "a tool of the provider": lambda n: (
        invoke.block(0, "server_tool_use", id="s", name="search", input={})
        + _each(n, lambda i: invoke.delta(0, "input_json_delta", partial_json="x") + invoke.chunk(type="content_block_stop", index=0))
    ),
    "chat, name and id repeated": _grown(
        b"", lambda text: invoke.chunk(choices=[{"index": 0, "delta": {"tool_calls": [{"index": 0, **_tool(0, text)}]}}])
    ),
    "chat, echoed thoughts": lambda n: _each(
        n, lambda i: invoke.chunk(choices=[{"index": 0, "delta": {"reasoning_details": [{**_DETAIL, "text": "x"}]}}])
    ),
    "plain text": lambda n: _each(n, lambda i: invoke.chunk(generation="x", generation_token_count=i)),
}


def _first(kind: str, **fields: object) -> bytes:
    return b"data: " + json.dumps({"event_type": kind, **fields}).encode() + b"\n\n"


def _preview(**piece: object) -> bytes:
    return _first("tool-calls-chunk", tool_call_delta=piece)


COHERE: dict[str, Body] = {
    "open calls": lambda n: _each(n, lambda i: cohere.start(i, f"c{i}", "f")) + _each(n, lambda i: cohere.piece(i, "{")),
    "stops": lambda n: cohere.start(0, "a", "f") + _each(n, lambda i: cohere.piece(0, "{},") + cohere.stop(0)),
    "braces": _grown(cohere.start(0, "a", "f"), lambda text: cohere.piece(0, text)),
    "ends": _opened(lambda i: cohere.start(i, f"c{i}", "f", "{"), lambda i: cohere.end("TOOL_CALL").removesuffix(b"data: [DONE]\n\n")),
    "faults": _opened(lambda i: cohere.start(i, f"c{i}", "f", "{"), lambda i: cohere.end("ERROR").removesuffix(b"data: [DONE]\n\n")),
    "messages": lambda n: _each(n, lambda i: chat.data({"message": {"tool_calls": [_tool(i, "{")]}})),
    "previews": lambda n: _preview(index=0, name="f") + _each(n, lambda i: _preview(index=0, name="f", parameters="{},")),
    "previews, name repeated": lambda n: _each(n, lambda i: _preview(index=0, name="f", parameters="{")),
    "settled again and again": lambda n: (
        _preview(index=0, name="f", parameters="{" + " " * 20 * n + "}")
        + _each(n, lambda i: _first("tool-calls-generation", tool_calls=[{"name": "f", "parameters": {}}]))
    ),
    "plans": lambda n: _each(n, lambda i: cohere.event("tool-plan-delta", tool_plan="x")),
}

OLLAMA: dict[str, Body] = {
    "calls": lambda n: _each(n, lambda i: ollama.says(tool_calls=[ollama.call("f", {"a": i}, id=f"c{i}")])),
    "calls of one id": lambda n: _each(n, lambda i: ollama.says(tool_calls=[ollama.call("f", {"a": i}, id="same")])),
    "one id, small copies": lambda n: (
        ollama.says(tool_calls=[ollama.call("f", {"a": "x" * 20 * n}, id="a")])
        + _each(n, lambda i: ollama.says(tool_calls=[ollama.call("f", {}, id="a")]))
    ),
    "calls without ids": lambda n: _each(n, lambda i: ollama.says(tool_calls=[ollama.call("f", {})])),
    "one list": lambda n: ollama.says(tool_calls=[ollama.call("f", {"a": i}, id=f"c{i}") for i in range(n)]),
    "arguments that are cut": lambda n: _each(n, lambda i: ollama.says(tool_calls=[ollama.call("f", "{", id="same")])),
    "faults": _opened(lambda i: ollama.says(tool_calls=[ollama.call("f", "{", id=f"c{i}")]), lambda i: ollama.line(error="no")),
    "text and thoughts in turns": lambda n: _each(n, lambda i: ollama.says(content="x") if i % 2 else ollama.says(thinking="y")),
}

BODIES: dict[str, dict[str, Body]] = {
    "openai.chat": CHAT,
    "openai.responses": RESPONSES,
    "anthropic.messages": ANTHROPIC,
    "gemini.generate": GEMINI,
    "gemini.interactions": INTERACTIONS,
    "bedrock.converse": CONVERSE,
    "bedrock.invoke": INVOKE,
    "cohere.chat": COHERE,
    "ollama.chat": OLLAMA,
}
