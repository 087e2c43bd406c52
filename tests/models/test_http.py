"""The transport against real sockets: deadlines, retries, cancellation, connections that break, and what is never shown."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import logging
import socket
import traceback
from collections.abc import AsyncIterator, Iterable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from callgate._signals import AbortController
from callgate.errors import ModelTimeout, ModelUnreachable, UsageError
from callgate.messages import UserMessage
from callgate.models._deadlines import Watch
from callgate.models._refusals import Hidden
from callgate.models.events import Fault, TextDelta
from callgate.models.http import Outgoing, Retries, Timeouts, Transport
from callgate.models.http_model import HttpModel
from callgate.models.model import StreamingContext
from callgate.models.providers import model
from callgate.models.wire.request import ModelRequest
from callgate.testing import Beat, Call, Drop, End, Fail, Item, ManualClock, Pause, Piece, Raw, Reply, ScriptedServer
from callgate.testing.server import Script
from tests.models.asking import KEY, REQUEST, ask, at, later, until
from tests.models.reading import calls_of, finished, text_of

NEVER = Pause(86_400.0)
NO_WAIT = Retries(base_s=0.001)
ONCE = Retries(most=0)


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


async def test_a_streamed_answer_arrives_event_by_event() -> None:
    """Each event is there before the provider has written the next one."""
    said, held = asyncio.Event(), asyncio.Event()
    async with ScriptedServer([["Let me ", Pause(held), "look.", Call("search", {"q": "books"})]]) as server:
        of = at(server)
        events = []
        async for event in of.stream(REQUEST, StreamingContext()):
            events.append(event)
            if event == TextDelta("Let me "):
                said.set()
                held.set()
        await of.close()
    assert said.is_set()
    assert text_of(events) == "Let me look."
    assert calls_of(events) == [("call_1", "search", '{"q":"books"}', "sealed")]
    assert finished(events).reason == "tool_calls"


async def test_an_answer_that_is_not_streamed_is_read_too() -> None:
    async with ScriptedServer([["Hello", Call("search", {"q": 1})]]) as server:
        events = await ask(of := at(server), ModelRequest(model="other", messages=REQUEST.messages, stream=False))
        await of.close()
    assert (text_of(events), finished(events).reason, finished(events).model) == ("Hello", "tool_calls", "other")


async def test_tool_names_survive_the_wire() -> None:
    def called(received: object) -> Call:
        tools = server.requests[-1].body_json["tools"]
        assert isinstance(tools, list)
        return Call(tools[1]["function"]["name"], {})

    async with ScriptedServer([called]) as server:
        events = await ask(of := at(server))
        await of.close()
    assert calls_of(events)[0][1] == "files/read"


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
async def test_every_framing_of_a_body_is_read(framing: str, compressed: bool) -> None:
    reply = Reply(turn=["Hello ", Beat(), "there", Call("search", {"q": "x" * 5_000})], framing=framing, compressed=compressed)  # type: ignore[arg-type]
    async with ScriptedServer([reply, reply]) as server:
        of = at(server)
        for _ in range(2):
            events = await ask(of)
            assert (text_of(events), finished(events).reason) == ("Hello there", "tool_calls")
        await of.close()
        assert server.connections == (2 if framing == "close" else 1)


async def test_an_answer_without_a_content_type_is_read() -> None:
    async with ScriptedServer([Reply(turn="Hello", headers={"content-type": ""})]) as server:
        events = await ask(of := at(server))
        await of.close()
    assert text_of(events) == "Hello"


# Deadlines


@pytest.mark.parametrize(
    ("script", "deadline", "limit"),
    [
        (Reply(turn="late", before=NEVER), "headers", "300 s"),
        (["begun", NEVER], "idle", "120 s"),
        (["begun", NEVER], "total", "50 s"),
    ],
    ids=["no headers", "silence in the middle", "the whole request"],
)
async def test_a_deadline_that_passes_is_named_and_closes_the_connection(script: Script, deadline: str, limit: str) -> None:
    """The error says which deadline, of whom, how long it was and how it is moved; the server sees the end; nothing is sent again."""
    async with ScriptedServer([script]) as server:
        of = at(server, timeouts=Timeouts(total_s=50 if deadline == "total" else None))
        events: list[object] = []
        asking = asyncio.create_task(collect(of, events))
        await until(lambda: events if deadline != "headers" else server.requests)
        later({"headers": 301, "idle": 121, "total": 51}[deadline])
        with pytest.raises(ModelTimeout) as caught:
            await asking
        await server.requests[0].gone.wait()
        await of.close()
    error = caught.value
    assert (error.code, error.deadline, error.provider) == ("model_timeout", deadline, "someone")
    assert str(error).startswith("someone at http://127.0.0.1:")
    assert f"{limit}. See whether it is up and busy, or raise Timeouts.{deadline}_s." in str(error)
    assert len(server.requests) == 1


async def collect(of: HttpModel, events: list[object]) -> None:
    async for event in of.stream(REQUEST, StreamingContext()):
        events.append(event)  # noqa: PERF401 - as they come


async def test_a_stream_that_is_alive_outlives_every_deadline_but_the_total_one() -> None:
    """The limit on silence is rolling: six times a hundred seconds are not two minutes of silence."""
    gates = [asyncio.Event() for _ in range(6)]
    script = [item for gate in gates for item in ("x", Pause(gate))]
    async with ScriptedServer([script]) as server:
        of = at(server)
        events: list[object] = []
        asking = asyncio.create_task(collect(of, events))
        for number, gate in enumerate(gates, 1):
            await until(lambda number=number: len(events) >= number)  # type: ignore[misc]
            later(100)
            gate.set()
        await asking
        await of.close()


async def test_a_connection_that_is_never_made_is_named() -> None:
    """A listener whose queue is full does not answer: the connect deadline passes, the retries too."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(full.getsockname())
        of = at(f"http://127.0.0.1:{full.getsockname()[1]}", timeouts=Timeouts(connect_s=0.2), retries=NO_WAIT)
        with pytest.raises(ModelTimeout) as caught:
            await ask(of)
        await of.close()
        for filler in fillers:
            filler.close()
    assert caught.value.deadline == "connect"


async def test_time_that_the_consumer_takes_is_not_the_providers() -> None:
    """The silence that counts is the provider's: a consumer may take as long as it likes over an event."""
    held = asyncio.Event()
    async with ScriptedServer([["one", Pause(held), "two"]]) as server:
        of = at(server)
        events = []
        async for event in of.stream(REQUEST, StreamingContext()):
            events.append(event)
            if len(events) == 1:
                later(1_000)
                await asyncio.sleep(0.1)  # timers that are due fire now
                held.set()
        await of.close()
    assert text_of(events) == "onetwo"


async def test_every_byte_is_a_sign_of_life() -> None:
    beats = 0

    def beat() -> None:
        nonlocal beats
        beats += 1

    context = StreamingContext()
    context.on_progress = beat
    async with ScriptedServer([[Beat(), Pause(0.0), Beat(), "x"]]) as server:
        await ask(of := at(server), context=context)
        await of.close()
    assert beats >= 2  # the headers, and what came of the body, however it was cut


def test_a_deadline_is_a_positive_number() -> None:
    with pytest.raises(UsageError, match="idle_s"):
        Timeouts(idle_s=0)


# Retries


def refusing(status: int, **headers: str) -> Reply:
    turn = Fail("overloaded_error", "Try again.")
    return Reply(turn=turn, status=status, headers={name.replace("_", "-"): value for name, value in headers.items()})


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_what_may_pass_is_asked_again(status: int) -> None:
    async with ScriptedServer([refusing(status), refusing(status), "Hello"]) as server:
        events = await ask(of := at(server, retries=NO_WAIT))
        await of.close()
    assert text_of(events) == "Hello"
    assert len(server.requests) == 3
    assert server.connections == 1


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 413, 422])
async def test_what_will_not_pass_is_not_asked_again(status: int) -> None:
    async with ScriptedServer([refusing(status), "never"]) as server:
        events = await ask(of := at(server, retries=NO_WAIT))
        await of.close()
    end = finished(events)
    assert end.reason == "error"
    assert end.fault is not None
    assert not end.fault.retryable
    assert end.fault.message.startswith(f"someone answered {status}: ")
    assert len(server.requests) == 1


async def test_a_refusal_whose_body_never_ends_is_told_as_far_as_it_came() -> None:
    async with ScriptedServer([Reply(turn=[Raw(b"Too lo"), NEVER], status=400)]) as server:
        of = at(server, timeouts=Timeouts(idle_s=0.2))
        events = await ask(of)
        await server.requests[0].gone.wait()
        await of.close()
    fault = finished(events).fault
    assert fault is not None
    assert fault.message.startswith("someone answered 400: ")


async def test_the_provider_has_the_last_word_on_retries() -> None:
    script: list[Script] = [refusing(400, x_should_retry="true"), refusing(500, x_should_retry="false"), "never"]
    async with ScriptedServer(script) as server:
        events = await ask(of := at(server, retries=NO_WAIT))
        await of.close()
    assert finished(events).reason == "error"
    assert len(server.requests) == 2


async def test_a_refusal_after_all_retries_is_a_fault_that_may_be_tried_later() -> None:
    async with ScriptedServer(lambda _: refusing(529)) as server:
        events = await ask(of := at(server, retries=NO_WAIT))
        await of.close()
    fault = next(event for event in events if isinstance(event, Fault))
    assert (fault.code, fault.retryable) == ("overloaded_error", True)
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "Tue, 14 Nov 2023 22:13:27 GMT"}, 7.0),
        ({"retry_after_ms": "1500", "retry_after": "9"}, 1.5),
        ({"retry_after": "soon"}, 0.5),
        ({}, 0.5),
    ],
    ids=["seconds", "a date", "milliseconds", "nonsense", "nothing"],
)
async def test_a_retry_waits_as_long_as_the_provider_asks(headers: dict[str, str], wait_s: float) -> None:
    """A manual clock at 22:13:20 on that day: nothing is sent a moment too early, and it is sent then."""
    clock = ManualClock(jitter=0.0)
    async with ScriptedServer([refusing(429, **headers), "Hello"]) as server:
        of = at(server, clock=clock)
        asking = asyncio.create_task(ask(of))
        await until(lambda: clock.sleeping == 1)
        clock.advance(wait_s - 0.01)
        assert clock.sleeping == 1
        clock.advance(0.01)
        assert text_of(await asking) == "Hello"
        await of.close()


async def test_a_wait_that_is_too_long_is_not_waited() -> None:
    async with ScriptedServer([refusing(429, retry_after="61"), "never"]) as server:
        events = await ask(of := at(server))
        await of.close()
    fault = finished(events).fault
    assert fault is not None
    assert fault.retryable
    assert len(server.requests) == 1


@pytest.mark.parametrize("how", ["abort", "cancel"])
async def test_a_wait_before_a_retry_ends_at_once(how: str) -> None:
    clock, controller, context = ManualClock(), AbortController(), StreamingContext()
    context.abort_signal = controller.signal
    async with ScriptedServer([refusing(503), "never"]) as server:
        of = at(server, clock=clock)
        asking = asyncio.create_task(ask(of, context=context))
        await until(lambda: clock.sleeping == 1)
        if how == "abort":
            controller.abort()
            assert finished(await asking).reason == "cut"
        else:
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        await of.close()
    assert len(server.requests) == 1


async def test_nobody_at_the_address_is_said_after_the_retries() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        of = at(f"http://127.0.0.1:{nobody.getsockname()[1]}", retries=NO_WAIT)
        with pytest.raises(ModelUnreachable, match="someone could not be reached at http://127") as caught:
            await ask(of)
        await of.close()
    assert (caught.value.code, caught.value.provider, caught.value.retryable) == ("model_unreachable", "someone", True)


async def test_a_connection_that_is_lost_before_the_answer_is_tried_again() -> None:
    async with ScriptedServer([Reply(before=Drop()), Reply(before=Drop()), "Hello"]) as server:
        events = await ask(of := at(server, retries=NO_WAIT))
        await of.close()
    assert text_of(events) == "Hello"


async def test_an_answer_that_has_begun_is_never_asked_for_again() -> None:
    async with ScriptedServer([["Hel", Drop()], "never"]) as server:
        events = await ask(of := at(server, retries=NO_WAIT))
        await of.close()
    assert (text_of(events), finished(events).reason) == ("Hel", "cut")
    assert len(server.requests) == 1


# Cancellation


async def begun(of: HttpModel, context: StreamingContext) -> tuple[AsyncIterator[object], object]:
    events = of.stream(REQUEST, context)
    return events, await anext(events)


async def test_an_abort_closes_the_connection() -> None:
    controller, context = AbortController(), StreamingContext()
    context.abort_signal = controller.signal
    async with ScriptedServer([["Hello", Call("search", '{"q": ', delta_chars=1), NEVER]]) as server:
        of = at(server)
        events = []
        async for event in of.stream(REQUEST, context):
            events.append(event)
            if getattr(event, "text", "") == ":":
                controller.abort("enough")
        assert finished(events).reason == "cut"
        assert [call[3] for call in calls_of(events)] == ["cut"]
        await server.requests[0].gone.wait()
        await of.close()


async def test_an_abort_before_the_answer_closes_the_connection() -> None:
    controller, context = AbortController(), StreamingContext()
    context.abort_signal = controller.signal
    async with ScriptedServer([Reply(before=NEVER)]) as server:
        of = at(server)
        asking = asyncio.create_task(ask(of, context=context))
        await until(lambda: server.requests)
        controller.abort()
        assert finished(await asking).reason == "cut"
        await server.requests[0].gone.wait()
        await of.close()


@pytest.mark.parametrize("script", [Reply(before=NEVER), ["begun", NEVER]], ids=["before the answer", "in the middle"])
async def test_a_cancelled_task_closes_the_connection_and_stays_cancelled(script: Script) -> None:
    async with ScriptedServer([script]) as server:
        of = at(server)
        asking = asyncio.create_task(ask(of))
        await until(lambda: server.requests)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await server.requests[0].gone.wait()
        await of.close()


async def test_a_cancel_counts_although_an_abort_comes_with_it() -> None:
    """Whoever cancels a task is answered by its end, whatever else ended it in the same moment."""
    controller, context = AbortController(), StreamingContext()
    context.abort_signal = controller.signal
    async with ScriptedServer([Reply(before=NEVER)]) as server:
        of = at(server)
        asking = asyncio.create_task(ask(of, context=context))
        await until(lambda: server.requests)
        controller.abort()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await of.close()


async def test_an_abort_leaves_the_task_uncancelled() -> None:
    """What goes on after an aborted pass can wait like anybody else."""
    controller, context = AbortController(), StreamingContext()
    context.abort_signal = controller.signal
    async with ScriptedServer([["begun", NEVER]]) as server:
        of = at(server)
        async for _ in of.stream(REQUEST, context):
            asyncio.get_running_loop().call_soon(controller.abort)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await of.close()


async def test_a_generator_that_is_closed_closes_the_connection() -> None:
    async with ScriptedServer([["begun", NEVER]]) as server:
        of = at(server)
        events, _ = await begun(of, StreamingContext())
        await events.aclose()  # type: ignore[attr-defined]
        await server.requests[0].gone.wait()
        await of.close()


async def test_a_generator_that_is_dropped_closes_the_connection() -> None:
    async with ScriptedServer([["begun", NEVER]]) as server:
        of = at(server)
        events, _ = await begun(of, StreamingContext())
        del events
        gc.collect()
        await server.requests[0].gone.wait()
        await of.close()


async def test_a_model_that_is_closed_leaves_nothing_open() -> None:
    async with ScriptedServer(["Hello"] * 3) as server:
        of = at(server)
        for _ in range(3):
            await ask(of)
        await of.close()
        await of.close()
        await server.requests[0].gone.wait()
        assert server.connections == 1


# Connections that break


WHOLE: list[Item] = [
    "Let me look. ",
    Call("search", {"q": "books"}, id="a", delta_chars=3),
    Call("search", {"q": "maps"}, id="b", delta_chars=3),
]


@given(st.integers(0, 2_500), st.booleans())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_connection_that_drops_anywhere_seals_no_call_that_was_not_whole(place: int, compressed: bool) -> None:
    """At every byte of a stream: the reason is `cut`, or the message was whole; what is sealed is what was sent."""

    async def dropped() -> None:
        async with ScriptedServer([WHOLE]) as server:
            body = await recorded(server)
        piece = body[:place]
        pieces: list[Piece] = [Raw(piece), Drop()] if piece else [Drop()]
        async with ScriptedServer([Reply(turn=pieces, compressed=compressed)]) as server:
            events = await ask(of := at(server, retries=ONCE))
            await of.close()
        end = finished(events)
        whole = b'"finish_reason": "tool_calls"}]}\n\n' in piece
        assert (end.reason, end.fault) == ("tool_calls" if whole else "cut", None)
        for call_id, name, arguments, closed in calls_of(events):
            if closed != "cut":
                assert (name, arguments) == ("search", {"a": '{"q":"books"}', "b": '{"q":"maps"}'}[call_id])

    asyncio.run(dropped())


async def recorded(server: ScriptedServer) -> bytes:
    """The bytes of one body."""
    reader, writer = await asyncio.open_connection(*server.url.removeprefix("http://").removesuffix("/v1").split(":"))
    writer.write(b'POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 15\r\n\r\n{"stream":true}')
    await reader.readuntil(b"\r\n\r\n")
    body = b""
    while size := int(await reader.readline(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    writer.close()
    return body


@pytest.mark.parametrize(
    "junk",
    [b"\x00\xff\xfe" * 100, b"<html>Bad gateway</html>", b"data: {\n\n", b'{"nothing": 1}', b"[" * 100_000],
    ids=["bytes", "a page", "half a frame", "another object", "nesting"],
)
async def test_garbage_ends_in_a_fault(junk: bytes) -> None:
    async with ScriptedServer([Reply(turn=[Raw(junk), End("cut")])]) as server:
        events = await ask(of := at(server))
        await of.close()
    assert finished(events).reason in ("error", "cut")


async def test_what_claims_to_be_packed_and_is_not_ends_in_a_fault() -> None:
    async with ScriptedServer([Reply(turn=[Raw(b"not gzip"), End("cut")], headers={"content-encoding": "gzip"})]) as server:
        events = await ask(of := at(server))
        await of.close()
    fault = finished(events).fault
    assert fault is not None
    assert fault.code == "bad_frame"


HELLO = b'data: {"choices":[{"delta":{"content":"Hello"},"finish_reason":"stop"}]}\n\n'


@pytest.mark.parametrize("ends", [(len(HELLO),), (30, len(HELLO)), (1, 2, 30, len(HELLO))], ids=["one", "two", "four"])
@pytest.mark.parametrize("padding", [b"", b"\0" * 20])
@pytest.mark.parametrize("at_once", [True, False], ids=["whole", "byte by byte"])
async def test_a_packed_body_may_have_several_members_and_padding(ends: tuple[int, ...], padding: bytes, at_once: bool) -> None:
    """RFC 1952, 2.2: a gzip body is a series of members; a server that packs each piece by itself sends one."""
    packed = b"".join(gzip.compress(HELLO[begin:end]) for begin, end in zip((0, *ends), ends, strict=False)) + padding
    pieces = [packed] if at_once else [packed[place : place + 1] for place in range(len(packed))]
    async with ScriptedServer([Reply(turn=[*map(Raw, pieces)], headers={"content-encoding": "gzip"})]) as server:
        of = at(server)
        events = [event async for event in of.stream(replace(REQUEST, stream=False), StreamingContext())]
        await of.close()
    assert (text_of(events), finished(events).reason) == ("Hello", "stop")


async def test_a_server_that_keeps_the_connection_after_the_end_holds_nobody_up() -> None:
    """`[DONE]` ends the message, whether or not the body ends."""
    done = Raw(b'data: {"choices":[{"delta":{"content":"Hello"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')
    async with ScriptedServer([[done, NEVER]]) as server:
        events = await ask(of := at(server))
        await of.close()
    assert (text_of(events), finished(events).reason) == ("Hello", "stop")


async def test_fifty_streams_at_once_do_not_mix() -> None:
    """One model, fifty conversations: all are open at the same time, and each gets its own answer."""
    everybody = asyncio.Event()

    def turn(received: object) -> Iterable[str | Pause]:
        if len(server.requests) == 50:
            everybody.set()
        return ["for ", Pause(everybody), str(server.requests[-1].body_json["messages"])]

    async with ScriptedServer(turn) as server:
        of = at(server)

        async def one(number: int) -> bool:
            request = ModelRequest(model="m", messages=[UserMessage(f"<{number}>")])
            return f"<{number}>" in text_of(await ask(of, request))

        assert all(await asyncio.gather(*(one(number) for number in range(50))))
        await of.close()
        assert server.connections == 50


async def test_connections_are_bounded_and_the_rest_waits_for_its_turn() -> None:
    async with ScriptedServer(lambda _: "Hello") as server:
        of = at(server, connections=3)
        assert {text_of(events) for events in await asyncio.gather(*(ask(of) for _ in range(20)))} == {"Hello"}
        await of.close()
        assert server.connections == 3


# Keys


@pytest.mark.parametrize("status", [200, 401, 500])
async def test_a_key_is_never_shown(status: int, caplog: pytest.LogCaptureFixture) -> None:
    """Not by a provider that repeats it, nor in a log, nor as the text of an object."""
    caplog.set_level(logging.DEBUG)
    fail = Fail("invalid_api_key", f"Incorrect API key provided: {KEY}.")
    async with ScriptedServer(lambda _: Reply(turn=fail, status=status)) as server:
        of = at(server, retries=NO_WAIT)
        events = await ask(of)
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
        shown = [repr(events), repr(of), caplog.text]
        await of.close()
    assert not [text for text in shown if KEY in text]
    assert finished(events).reason == "error"


async def test_a_key_is_not_in_errors() -> None:
    of = at(f"http://user:{KEY}@127.0.0.1:1/{KEY}", retries=ONCE)
    with pytest.raises(ModelUnreachable) as caught:
        await ask(of)
    assert KEY not in "".join(traceback.format_exception(caught.value))
    await of.close()


async def test_a_redirect_is_not_followed() -> None:
    """Nowhere: the key and the conversation would go along."""
    async with ScriptedServer(["caught"]) as elsewhere:
        away = Reply(turn=Fail(), status=307, headers={"location": f"{elsewhere.url}/chat/completions"})
        async with ScriptedServer([away]) as server:
            events = await ask(of := at(server))
            await of.close()
        assert elsewhere.requests == []
    fault = finished(events).fault
    assert fault is not None
    assert "redirect" in fault.message


async def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ScriptedServer(["through the proxy"]) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url.removesuffix("/v1"))
        of = at("http://provider.example/v1")
        assert text_of(await ask(of)) == "through the proxy"
        await of.close()
        assert proxy.requests[0].path == "http://provider.example/v1/chat/completions"


async def test_a_server_that_goes_on_talking_after_the_end_holds_nobody_up() -> None:
    """`[DONE]` ends the message; what comes after it is awaited for a moment only, however much it is."""
    done = b'data: {"choices":[{"delta":{"content":"Hello"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    gone = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + done)
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b": still here\n\n")
                await writer.drain()
                await asyncio.sleep(0.001)
        writer.close()
        gone.set()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        of = model("openai:some", base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", api_key=KEY)
        events = await asyncio.wait_for(ask(of), 60)
        await of.close()
        await gone.wait()
    assert (text_of(events), finished(events).reason) == ("Hello", "stop")


@pytest.mark.parametrize("encoding", ["gzip, gzip", "br", "deflate"])
async def test_an_encoding_that_was_not_asked_for_is_not_unpacked(encoding: str) -> None:
    """Every buffer has a bound: a few bytes that are packed twice stand for gigabytes."""
    async with ScriptedServer([Reply(turn=[Raw(b"packed"), End("cut")], headers={"content-encoding": encoding})]) as server:
        events = await ask(of := at(server))
        await of.close()
        assert server.requests[0].headers["accept-encoding"] == "gzip"
    fault = finished(events).fault
    assert fault is not None
    assert fault.message.endswith(f"(its encoding is '{encoding}', and only gzip was asked for).")


async def test_what_is_packed_is_unpacked_in_pieces_of_a_bounded_size() -> None:
    """A few bytes may stand for gigabytes: who reads can stop between any two pieces."""
    packed = gzip.compress(b"x" * 3_000_000)
    async with ScriptedServer([Reply(turn=[Raw(packed), End("cut")], headers={"content-encoding": "gzip"})]) as server:
        transport = Transport("some")
        outgoing = Outgoing(url=f"{server.url}/v1/chat/completions", body=b"{}", headers={}, hidden=Hidden())
        with Watch(Timeouts(), None) as watch:
            answer = await transport.open(outgoing, watch, lambda: None)
            sizes = []
            while piece := await answer.read():
                sizes.append(len(piece))
            await answer.close()
        await transport.close()
    assert sum(sizes) == 3_000_000
    assert max(sizes) < 1_000_000


async def test_a_page_for_people_says_to_check_the_address() -> None:
    """A base URL that is almost right often answers 200 with a page."""
    async with ScriptedServer([Reply(turn=[Raw(b"<html>Welcome</html>"), End("cut")], headers={"content-type": "text/html"})]) as server:
        events = await ask(of := at(server))
        await of.close()
    fault = finished(events).fault
    assert fault is not None
    assert (fault.code, "Check base_url" in fault.message) == ("no_answer", True)
