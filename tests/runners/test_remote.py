"""Tests of tools behind a socket: what is passed to the far side, and how a call ends if the connection or the far side fails."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable

import pytest
from examples.remote_runner import far as far_example
from examples.remote_runner.near import MOST_BYTES, MOST_RESULT_BYTES, RemoteRunner

from callgate import Engine, UsageError, tool
from callgate.protocols import Execution
from callgate.remote import Ended, Late, Order, OutputPiece, Refused, Start, Stop, decode_answer, encode, frame, read_frame
from tests.runners import fixture_tools, hostile_tools
from tests.runners.far_side import TOKEN, Far
from tests.runners.remote_tools import many_of, nested
from tests.runners.runner_requests import Made, marked
from tests.runners.scripted_connections import Cable, Scripted
from tests.waiting import past_deadline, soon

pytestmark = pytest.mark.process


async def begun(runner: RemoteRunner, made: Made) -> asyncio.Task[Execution]:
    """Start an attempt and return its task once the tool runs on the far side."""
    running = asyncio.ensure_future(runner.run(made.request))
    assert await soon(lambda: made.progress or running.done())
    assert not running.done(), running.result()
    return running


def echo(value: object) -> Made:
    return Made(fixture_tools.sync_echo, {"value": value})


def test_a_tool_that_cannot_be_imported_remotely_is_refused_at_registration() -> None:
    @tool(runner="remote", effect="none")
    def inner() -> None:
        """Be nested."""

    with pytest.raises(UsageError, match="Move it to the top level of its module"):
        Engine([inner], runners={"remote": RemoteRunner("127.0.0.1", 1, TOKEN)})


async def test_a_tool_that_the_far_side_does_not_serve_is_not_started(far: Far) -> None:
    """Otherwise a client could run any function, for example `os:system`."""
    runner = far.runner()
    execution = await runner.run(Made(served_nowhere).request)
    assert (execution.status, execution.not_started) == ("not_started", True)
    assert f"does not serve {__name__}:served_nowhere; it serves " in execution.error
    await runner.close()


@tool(effect="none")
def served_nowhere() -> None:
    """Exist only on the near side."""


async def test_arguments_that_exceed_the_message_limit_are_not_sent(far: Far) -> None:
    runner = far.runner()
    execution = await runner.run(echo("x" * MOST_BYTES).request)
    assert (execution.status, execution.error_type) == ("raised", "ValueError")
    assert f"{MOST_BYTES:,} is the limit" in execution.error
    assert (await runner.run(echo(1).request)).value == 1
    await runner.close()


async def test_a_result_that_exceeds_the_result_limit_is_an_error_of_the_tool(far: Far) -> None:
    runner = far.runner()
    execution = await runner.run(Made(many_of, {"text": "x", "count": MOST_RESULT_BYTES + 1}).request)
    assert (execution.status, execution.error_type, execution.details) == (
        "returned",
        "ResultNotSerializable",
        {"code": "output_too_large"},
    )
    await runner.close()


async def test_a_result_that_exceeds_the_message_limit_as_json_is_an_error_of_the_tool(far: Far) -> None:
    """A control character takes six bytes in JSON."""
    runner = far.runner()
    execution = await runner.run(Made(many_of, {"text": "\0", "count": MOST_BYTES // 4}).request)
    assert (execution.status, execution.error_type) == ("returned", "ResultNotSerializable")
    assert f"{MOST_BYTES:,} is the limit" in execution.error
    assert (await runner.run(echo(1).request)).value == 1
    await runner.close()


async def test_a_deeply_nested_result_affects_no_other_call(far: Far) -> None:
    runner = far.runner()
    other = Made(fixture_tools.sync_hang)
    running = await begun(runner, other)
    for depth in (90, 400, 900):
        execution = await runner.run(Made(nested, {"depth": depth}).request)
        assert execution.status in ("returned", "raised"), execution
    assert not running.done()
    other.kill.abort("enough")
    assert (await running).status == "killed"
    await runner.close()


# Connections that fail


async def test_an_unreachable_far_side_gives_not_started() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        runner = RemoteRunner("127.0.0.1", taken.getsockname()[1], TOKEN)
        execution = await runner.run(echo(1).request)
    assert (execution.status, execution.not_started) == ("not_started", True)
    assert "the far side was not reached" in execution.error
    await runner.close()


async def test_a_wrong_token_gives_not_started(far: Far) -> None:
    runner = far.runner("another-token-for-tests")
    execution = await runner.run(echo(1).request)
    assert execution.status == "not_started"
    assert "the token is not the one of this far side" in execution.error
    await runner.close()


async def test_a_connection_lost_between_two_calls_is_reopened(far: Far) -> None:
    async with Cable(far.port) as cable:
        runner = cable.runner()
        assert (await runner.run(echo(1).request)).value == 1
        cable.cut()
        assert await soon(lambda: not runner._connections)
        assert (await runner.run(echo(2).request)).value == 2
        assert cable.connections == 2
        await runner.close()


async def test_a_connection_lost_while_the_tool_runs_is_a_crash_and_ends_the_tool(far: Far) -> None:
    """The tool may have taken effect, so the outcome is a crash and not a failure; the far side must also end the tool."""
    async with Cable(far.port) as cable:
        runner = cable.runner()
        made = Made(hostile_tools.own_session)
        running = await begun(runner, made)
        assert await soon(lambda: bool(marked(made.uid)))
        cable.cut()
        execution = await running
        assert (execution.status, execution.retryable, execution.not_started) == ("crashed", True, False)
        assert "the connection was lost" in execution.error
        assert execution.partial == "begun"
        assert await soon(lambda: not marked(made.uid)), "the tool still runs on the far side"
        await runner.close()


async def test_killing_the_far_side_is_a_crash_and_ends_the_tool() -> None:
    with Far() as far:
        runner = far.runner()
        made = Made(hostile_tools.own_session)
        running = await begun(runner, made)
        far.process.send_signal(signal.SIGKILL)
        execution = await running
        assert execution.status == "crashed"
        assert await soon(lambda: not marked(made.uid))
        assert (await runner.run(echo(1).request)).status == "not_started"
        await runner.close()


async def test_a_connection_lost_after_the_result_does_not_change_the_result() -> None:
    def answers_and_leaves(far: Scripted, order: Order) -> None:
        far.returns(order, "done")
        far._writer.close()

    async with Scripted(answers_and_leaves) as far:
        runner = far.runner()
        assert await runner.run(echo(1).request) == Execution(status="returned", value="done", read=True)
        await runner.close()


async def test_two_calls_share_one_connection_and_end_independently(far: Far) -> None:
    async with Cable(far.port) as cable:
        runner = cable.runner()
        one, two = Made(fixture_tools.sync_hang), Made(fixture_tools.async_hang)
        running = [await begun(runner, one), await begun(runner, two)]
        one.kill.abort("killed by the user")
        assert (await running[0]).status == "killed"
        assert not running[1].done()
        assert (await runner.run(echo(3).request)).value == 3
        two.kill.abort("killed as well")
        assert (await running[1]).error == "killed as well"
        assert cable.connections == 1
        await runner.close()


async def test_a_call_killed_while_connecting_is_not_started() -> None:
    async with Scripted(greeting=b"") as far:
        runner = far.runner()
        killed, cancelled = echo(1), echo(2)
        running = [asyncio.ensure_future(runner.run(made.request)) for made in (killed, cancelled)]
        assert await soon(lambda: far.connections)
        killed.kill.abort("killed by the user")
        assert (await running[0]).status == "not_started"
        running[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await running[1]
        assert far.connections == 1
        await runner.close()


# A far side that violates the protocol


async def test_a_call_to_a_silent_far_side_ends_at_its_deadline() -> None:
    async with Scripted() as far:
        runner = far.runner(answer_s=0.0)
        execution = await past_deadline(runner.run(echo(1).request), lambda: far.started)
        assert (execution.status, execution.abandoned) == ("timed_out", True)
        assert await soon(lambda: far.ended == 1), "the connection stays open, so the tool would continue"
        assert [type(order) for order in far.heard] == [Start, Stop]
        assert runner.abandoned == 1
        await runner.close()


async def test_new_calls_use_another_connection_after_a_silent_one() -> None:
    async with Scripted() as far:
        runner = far.runner(answer_s=0.0)
        silent, other, third = echo(1), echo(2), echo(3)
        running = [asyncio.ensure_future(runner.run(made.request)) for made in (silent, other)]
        assert await soon(lambda: len(far.started) == 2)
        silent.kill.abort("killed")
        assert (await running[0]).abandoned
        assert far.connections == 1, "the other call still needs it"
        later = asyncio.ensure_future(runner.run(third.request))
        assert await soon(lambda: len(far.started) == 3)
        assert far.connections == 2
        other.kill.abort("killed")
        third.kill.abort("killed")
        await asyncio.gather(running[1], later)
        assert await soon(lambda: far.ended == 2)
        await runner.close()


async def test_an_answer_after_the_end_of_its_call_is_reported_as_late() -> None:
    """The late answer is discarded and recorded."""
    late: list[tuple[str, object]] = []
    async with Scripted() as far:
        runner = far.runner(answer_s=0.0)
        runner.on_late = lambda uid, execution: late.append((uid, execution.value))
        given_up, other = echo(1), echo(2)
        running = [asyncio.ensure_future(runner.run(made.request)) for made in (given_up, other)]
        assert await soon(lambda: len(far.started) == 2)
        given_up.kill.abort("killed")
        assert (await running[0]).status == "killed"
        first, second = far.started
        far.returns(first, "too late")
        far.returns(second, "in time")
        assert (await running[1]).value == "in time"
        assert late == [(given_up.uid, "too late")]
        assert runner.late == 1
        await runner.close()


async def test_repeated_late_answers_are_reported_once() -> None:
    """A far side that repeats answers must not fill the journal."""
    late: list[object] = []
    async with Scripted() as far:
        runner = far.runner(answer_s=0.0)
        runner.on_late = lambda uid, execution: late.append(execution.value)
        given_up, other = echo(1), echo(2)
        running = [asyncio.ensure_future(runner.run(made.request)) for made in (given_up, other)]
        assert await soon(lambda: len(far.started) == 2)
        given_up.kill.abort("killed")
        assert (await running[0]).status == "killed"
        first, second = far.started
        for number in range(100):
            far.say(Late.of(first.id, Execution(status="returned", value=number)))
        far.returns(first, "at last")
        far.returns(second, "in time")
        assert (await running[1]).value == "in time"
        assert late == [0]
        await runner.close()


def pieces(*numbers: int) -> Callable[[Scripted, Order], None]:
    def answer(far: Scripted, order: Order) -> None:
        for number in numbers:
            far.say(OutputPiece(id=order.id, seq=number, text=f"<{number}>", stream="progress"))
        far.returns(order, None)

    return answer


async def test_missing_progress_is_reported_and_duplicates_are_dropped() -> None:
    async with Scripted(pieces(1, 2, 2, 1, 5)) as far:
        runner, made = far.runner(), echo(1)
        await runner.run(made.request)
        assert made.text("progress") == "<1><2>\n[... 2 pieces left out ...]\n<5>"
        await runner.close()


ENDED = encode(Ended.of("1", Execution(status="returned")))


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (frame(b"not json", MOST_BYTES), "not a message"),
        (frame(b"\xff\xfe", MOST_BYTES), "not a message"),
        (frame(b'{"type":"start"}', MOST_BYTES), "not a message"),
        (frame(ENDED.replace(b'"status":"returned"', b'"status":"fine"'), MOST_BYTES), "not a message"),
        (frame(b"[" * 100_000, MOST_BYTES), "not a message"),
        ((MOST_BYTES + 1).to_bytes(4, "big"), f"{MOST_BYTES:,} is the limit"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is the limit"),
        (frame(encode(Refused(why="the far side has had enough")), MOST_BYTES), "has had enough"),
    ],
    ids=["no json", "no text", "wrong message", "no execution", "too deep", "too large", "http", "refused"],
)
async def test_an_invalid_answer_is_a_crash_and_closes_the_connection(sent: bytes, said: str) -> None:
    """After an invalid answer nothing on the connection can be trusted, and the tool may have run."""
    async with Scripted(lambda far, order: far.write(sent)) as far:
        runner = far.runner()
        execution = await runner.run(echo(1).request)
        assert execution.status == "crashed"
        assert said in execution.error
        assert await soon(lambda: far.ended)
        await runner.close()


@pytest.mark.parametrize(
    "greeting",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        frame(b"hello", MOST_BYTES),
        frame(encode(OutputPiece(id="1", seq=1, text="", stream="")), MOST_BYTES),
    ],
    ids=["http", "another word", "another message"],
)
async def test_an_invalid_greeting_gives_not_started(greeting: bytes) -> None:
    async with Scripted(greeting=greeting) as far:
        runner = far.runner()
        execution = await runner.run(echo(1).request)
        assert execution.status == "not_started"
        assert "does not answer as a far side would" in execution.error
        await runner.close()


# A near side that violates the protocol


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (frame(b"not json", MOST_BYTES), "not a message"),
        (frame(b'{"type":"start","id":"1"}', MOST_BYTES), "not a message"),
        (frame(b"[" * 100_000, MOST_BYTES), "not a message"),
        ((MOST_BYTES + 1).to_bytes(4, "big"), f"{MOST_BYTES:,} is the limit"),
        (frame(encode(Ended.of("1", Execution(status="returned"))), MOST_BYTES), "not a message"),
    ],
    ids=["no json", "half an order", "too deep", "too large", "an answer"],
)
async def test_an_invalid_request_is_refused_and_affects_no_other_connection(far: Far, sent: bytes, said: str) -> None:
    runner, made = far.runner(), Made(fixture_tools.sync_hang)
    running = await begun(runner, made)
    reader, writer = await asyncio.open_connection("127.0.0.1", far.port)
    writer.write(frame(TOKEN.encode(), MOST_BYTES) + sent)
    assert await read_frame(reader, MOST_BYTES) == b"welcome"
    refused = decode_answer(await read_frame(reader, MOST_BYTES))
    assert isinstance(refused, Refused)
    assert said in refused.why
    assert await reader.read() == b""
    writer.close()
    assert not running.done()
    made.kill.abort("enough")
    assert (await running).status == "killed"
    await runner.close()


async def test_a_client_with_a_wrong_token_is_refused_and_disconnected(far: Far) -> None:
    for token in (b"", b"x" * 4_096, TOKEN.encode() + b"x"):
        reader, writer = await asyncio.open_connection("127.0.0.1", far.port)
        writer.write(frame(token, MOST_BYTES))
        refused = decode_answer(await read_frame(reader, MOST_BYTES))
        assert isinstance(refused, Refused)
        assert await reader.read() == b""
        writer.close()


async def test_unread_progress_is_dropped_and_does_not_delay_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far_example, "MOST_UNSENT_BYTES", -1)
    far = await far_example.serve([fixture_tools.sync_steps], TOKEN)
    runner, made = RemoteRunner("127.0.0.1", far.port, TOKEN), Made(fixture_tools.sync_steps, {"count": 3})
    assert (await runner.run(made.request)).value == 3
    assert made.progress == []
    await runner.close()
    await far.close()


async def test_a_request_with_an_id_in_use_is_refused(far: Far) -> None:
    """With two attempts under one id, a stop or an answer could reach the wrong one."""
    heard: list[Order] = []
    async with Scripted(lambda scripted, order: heard.append(order)) as scripted:
        runner, made = scripted.runner(), Made(fixture_tools.sync_hang)
        running = asyncio.ensure_future(runner.run(made.request))
        assert await soon(lambda: heard)
        start = frame(encode(heard[0]), MOST_BYTES)
        reader, writer = await asyncio.open_connection("127.0.0.1", far.port)
        writer.write(frame(TOKEN.encode(), MOST_BYTES) + start + start)
        assert await read_frame(reader, MOST_BYTES) == b"welcome"
        answers = [decode_answer(await read_frame(reader, MOST_BYTES))]
        while not isinstance(answers[-1], Refused):
            answers.append(decode_answer(await read_frame(reader, MOST_BYTES)))
        assert "is in use" in answers[-1].why
        writer.close()
        await runner.close()
        await running


@pytest.mark.parametrize(("token", "host", "said"), [("short", "127.0.0.1", "fewer than 16"), (TOKEN, "0.0.0.0", "Pass ssl=")])
async def test_a_far_side_with_a_short_token_or_public_address_without_tls_is_refused(token: str, host: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        await far_example.serve([fixture_tools.sync_echo], token, host=host)


def test_a_remote_runner_to_another_host_without_tls_is_refused() -> None:
    with pytest.raises(UsageError, match="Pass ssl="):
        RemoteRunner("192.0.2.1", 7701, TOKEN)
