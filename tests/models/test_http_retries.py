"""Which requests are retried, when, and how often. A request whose answer has started is never retried."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from callgate.errors import ModelUnreachable
from callgate.models.http_transport import Timeouts
from callgate.models.model_events import Fault
from callgate.testing import Drop, Fail, ManualClock, Raw, Reply, ScriptedServer
from callgate.testing.scripted_server import Script
from tests.models.decoding import finished, text_of
from tests.models.http_requests import NEVER, NO_WAIT, REQUEST, abortable, ask, at
from tests.waiting import until


def refusing(status: int, **headers: str) -> Reply:
    turn = Fail("overloaded_error", "Try again.")
    return Reply(turn=turn, status=status, headers={name.replace("_", "-"): value for name, value in headers.items()})


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_a_request_with_a_transient_error_status_is_retried(status: int) -> None:
    async with ScriptedServer([refusing(status), refusing(status), "Hello"]) as server:
        events = await ask(of := at(server, retries=NO_WAIT))
        await of.close()
    assert text_of(events) == "Hello"
    assert len(server.requests) == 3
    assert server.connections == 1


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 413, 422])
async def test_a_request_with_a_permanent_error_status_is_not_retried(status: int) -> None:
    async with ScriptedServer([refusing(status), "never"]) as server:
        events = await ask(of := at(server, retries=NO_WAIT))
        await of.close()
    end = finished(events)
    assert end.reason == "error"
    assert end.fault is not None
    assert not end.fault.retryable
    assert end.fault.message.startswith(f"someone answered {status}: ")
    assert len(server.requests) == 1


async def test_an_error_response_whose_body_never_ends_is_reported() -> None:
    async with ScriptedServer([Reply(turn=[Raw(b"Too lo"), NEVER], status=400)]) as server:
        of = at(server, timeouts=Timeouts(idle_s=0.2))
        events = await ask(of)
        await server.requests[0].gone.wait()
        await of.close()
    fault = finished(events).fault
    assert fault is not None
    assert fault.message.startswith("someone answered 400: ")


async def test_the_should_retry_header_overrides_the_status() -> None:
    script: list[Script] = [refusing(400, x_should_retry="true"), refusing(500, x_should_retry="false"), "never"]
    async with ScriptedServer(script) as server:
        events = await ask(of := at(server, retries=NO_WAIT))
        await of.close()
    assert finished(events).reason == "error"
    assert len(server.requests) == 2


async def test_a_call_the_provider_could_not_parse_is_a_retryable_fault() -> None:
    """The provider reports an invalid request, but the model wrote the call. The transport does not retry: the model may repeat it."""
    async with ScriptedServer([Reply(turn=Fail("tool_use_failed", "Failed to call a function."), status=400), "never"]) as server:
        events = await ask(of := at(server, retries=NO_WAIT))
        await of.close()
    fault = finished(events).fault
    assert fault is not None
    assert fault.retryable
    assert len(server.requests) == 1


async def test_an_error_after_all_retries_is_a_retryable_fault() -> None:
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
    """The manual clock starts at 22:13:20 on that day: the retry is sent exactly when the time has passed."""
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


async def test_a_request_is_not_retried_if_the_requested_wait_is_too_long() -> None:
    async with ScriptedServer([refusing(429, retry_after="61"), "never"]) as server:
        events = await ask(of := at(server))
        await of.close()
    fault = finished(events).fault
    assert fault is not None
    assert fault.retryable
    assert len(server.requests) == 1


@pytest.mark.parametrize("how", ["abort", "cancel"])
async def test_abort_and_cancellation_end_the_wait_before_a_retry(how: str) -> None:
    clock, (controller, context) = ManualClock(), abortable()
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


async def test_an_unreachable_address_is_reported_after_the_retries() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        of = at(f"http://127.0.0.1:{nobody.getsockname()[1]}", retries=NO_WAIT)
        with pytest.raises(ModelUnreachable, match="someone could not be reached at http://127") as caught:
            await ask(of)
        await of.close()
    assert (caught.value.code, caught.value.provider, caught.value.retryable) == ("model_unreachable", "someone", True)


async def test_a_request_is_retried_if_the_connection_is_lost_before_the_response() -> None:
    async with ScriptedServer([Reply(before=Drop()), Reply(before=Drop()), "Hello"]) as server:
        events = await ask(of := at(server, retries=NO_WAIT))
        await of.close()
    assert text_of(events) == "Hello"


@asynccontextmanager
async def losing(times: int, framing: str) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A gateway that sends the headers and then loses the connection, `times` times. Yields its address and the received request bodies."""
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0])))
        body = (
            b"" if len(asked) <= times else json.dumps({"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}).encode()
        )
        size = f"content-length: {len(body) or 9}" if framing == "length" else "transfer-encoding: chunked"
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n{size}\r\n\r\n".encode())
        if body:
            writer.write(body if framing == "length" else b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", asked


@pytest.mark.parametrize("framing", ["chunked", "length"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_a_request_is_retried_if_the_connection_is_lost_after_the_headers(framing: str, stream: bool) -> None:
    """No byte of the answer has been received."""
    async with losing(2, framing) as (address, asked):
        events = await ask(of := at(address, retries=NO_WAIT), replace(REQUEST, stream=stream))
        await of.close()
    assert text_of(events) == "Hello"
    assert len(asked) == 3
    assert asked[0] == asked[1] == asked[2]


async def test_a_response_without_a_body_byte_is_reported_as_unreachable_after_retries() -> None:
    """The error is the same as without any connection, not that of an answer that broke off."""
    async with losing(9, "chunked") as (address, asked):
        of = at(address, retries=NO_WAIT)
        with pytest.raises(ModelUnreachable, match="someone could not be reached at http://127"):
            await ask(of)
        await of.close()
    assert len(asked) == 3


async def test_a_request_is_not_retried_once_its_answer_has_begun() -> None:
    async with ScriptedServer([["Hel", Drop()], "never"]) as server:
        events = await ask(of := at(server, retries=NO_WAIT))
        await of.close()
    assert (text_of(events), finished(events).reason) == ("Hel", "cut")
    assert len(server.requests) == 1


@pytest.mark.parametrize("size", [1, 10, 12])
async def test_a_request_is_not_retried_after_the_first_byte_of_a_compressed_body(size: int) -> None:
    """The first bytes of a gzip body contain no text, but they are part of the body."""
    begun = Reply(turn=[Raw(gzip.compress(b"data: {}")[:size]), Drop()], headers={"content-encoding": "gzip"})
    async with ScriptedServer([begun, "never"]) as server:
        events = await ask(of := at(server, retries=NO_WAIT), replace(REQUEST, stream=False))
        await of.close()
    assert (text_of(events), finished(events).reason) == ("", "cut")
    assert len(server.requests) == 1
