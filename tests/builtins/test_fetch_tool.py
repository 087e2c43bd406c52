"""Tests of `fetch_url` against the cases of the URL corpus and against a real server on the loopback interface."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, RawCall, Rules
from callgate.builtins import fetch_tool
from callgate.builtins.fetch import Fetcher
from callgate.errors import Retryable
from tests.builtins.fakes import context
from tests.waiting import PATIENCE_S

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "hostile" / "urls.jsonl"
Row = dict[str, Any]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def _rows() -> list[Row]:
    return [json.loads(line) for line in DATA.read_text("utf-8").splitlines()] if DATA.exists() else [{"id": "absent"}]


async def _never() -> None:
    await asyncio.Event().wait()


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[int]:
    """Run a server on the loopback interface; its connections close with the block."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await reader.readuntil(b"\r\n\r\n")
            await serve(reader, writer)
        except (ConnectionError, asyncio.CancelledError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answer(body: bytes, *headers: str, status: str = "200 OK") -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers)
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await writer.drain()

    return serve


async def fetch(port: int, path: str = "/", **more: Any) -> Any:
    arguments = {"url": f"http://127.0.0.1:{port}{path}", **more}
    tool = fetch_tool(allow=[f"127.0.0.1:{port}"])
    result: Any = tool.invoke(context(), arguments)
    return await result


class FakeNetwork:
    """The names, addresses and server of one case of the corpus."""

    def __init__(self, row: Row, port: int) -> None:
        self._dns: dict[str, list[str]] = row.get("dns", {})
        self._sequence = [list(item) if isinstance(item, list) else [item] for item in _sequence(row)]
        self._hang = row.get("dns_hang", [])
        self._many = row.get("dns_many")
        self._port = port
        self.connected: list[str] = []

    async def resolve(self, name: str, port: int) -> Sequence[str]:
        if name in self._hang:
            await _never()
        if self._sequence:
            return self._sequence.pop(0)
        if name not in self._dns:
            raise OSError("no such name")
        return self._dns[name]

    async def connect(self, address: str, target: object) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.connected.append(address)
        return await asyncio.open_connection("127.0.0.1", self._port)


def _sequence(row: Row) -> list[Any]:
    found = row.get("dns_sequence", [])
    return next(iter(found.values())) if isinstance(found, dict) else list(found)


def _served(row: Row) -> Serve:
    redirects = list(row.get("redirects", []))
    server = row.get("server", {})

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if redirects:
            writer.write(f"HTTP/1.1 302 Found\r\nLocation: {redirects.pop(0)}\r\nContent-Length: 0\r\n\r\n".encode())
        elif "stream_bytes" in server:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % server["stream_bytes"])
            while True:
                writer.write(b"x" * 65_536)
                await writer.drain()
        elif "drip_bps" in server:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nx")
            await writer.drain()
            await _never()
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        await writer.drain()

    return serve


@pytest.mark.parametrize("row", _rows(), ids=lambda row: str(row["id"]))
async def test_a_url_gets_its_expected_verdict_and_only_checked_addresses_are_connected(row: Row) -> None:
    """The cases are those of urls.jsonl with the profile public."""
    if "url" not in row:
        pytest.skip("the hostile inputs are not beside this checkout")
    async with serving(_served(row)) as port:
        world = FakeNetwork(row, port)
        hangs = "dns_hang" in row or "drip_bps" in row.get("server", {})
        fetcher = Fetcher(allow=["203.0.113.0/24"], resolve=world.resolve, connect=world.connect, deadline_s=0.3 if hangs else PATIENCE_S)
        result: Any = await fetcher.fetch_url(context(), row["url"])
        word = "deny" if result.get("success") is False else "allow"
        assert word in row["expect"]["result"], result
        assert all(address.startswith("203.0.113.") for address in world.connected)


async def test_a_page_has_its_status_content_type_and_final_url() -> None:
    async with serving(answer("<p>é</p>".encode(), "Content-Type: text/html; charset=utf-8")) as port:
        result = await fetch(port, "/a?b=c")
        assert result == {
            "url": f"http://127.0.0.1:{port}/a?b=c",
            "status": 200,
            "content_type": "text/html; charset=utf-8",
            "bytes": 9,
            "truncated": False,
            "redirects": 0,
            "text": "<p>é</p>",
            "mime": "text/html",
            "note": f"[http://127.0.0.1:{port}/a?b=c answered with status 200, text/html; charset=utf-8, 9 bytes.]",
        }


async def test_an_error_status_is_a_result() -> None:
    async with serving(answer(b"gone", status="404 Not Found")) as port:
        result = await fetch(port)
        assert (result["status"], result["text"]) == (404, "gone")


async def test_the_size_limit_applies_to_the_decompressed_page() -> None:
    """The limit is enforced while reading, also for a gzip body."""
    async with serving(answer(gzip.compress(b"0" * 50_000_000), "Content-Encoding: gzip")) as port:
        result = await fetch(port, max_bytes=1000)
        assert (result["text"], result["truncated"]) == ("0" * 1000, True)


async def test_a_chunked_response_is_assembled() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n1\r\n!\r\n0\r\n\r\n")
        await writer.drain()

    async with serving(serve) as port:
        assert (await fetch(port))["text"] == "hello!"


async def test_a_page_that_is_not_text_is_described_without_its_content() -> None:
    async with serving(answer(b"\x89PNG\0", "Content-Type: image/png")) as port:
        result = await fetch(port)
        assert "text" not in result
        assert result["bytes"] == 5


async def test_a_page_is_decoded_by_its_declared_charset() -> None:
    async with serving(answer("né".encode("latin-1"), "Content-Type: text/plain; charset=ISO-8859-1")) as port:
        assert (await fetch(port))["text"] == "né"


@pytest.mark.parametrize(
    "raw",
    [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"],
    ids=["nothing", "no http", "endless headers", "half a body"],
)
async def test_a_broken_response_raises_retryable(raw: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        await writer.drain()

    async with serving(serve) as port:
        with pytest.raises(Retryable):
            await fetch(port)


async def test_a_refused_connection_is_retryable_and_marked_not_started() -> None:
    async with serving(answer(b"")) as port:
        pass
    with pytest.raises(Retryable) as caught:
        await fetch(port)
    assert caught.value.not_started


async def test_at_most_ten_redirects_are_followed() -> None:
    """The limit comes from urls.jsonl."""
    hops = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal hops
        hops += 1
        writer.write(b"HTTP/1.1 307 Go\r\nLocation: /next\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async with serving(serve) as port:
        result = await fetch(port)
    assert "more than 10 times" in result["error"]
    assert hops == 11


async def test_a_host_name_is_resolved_once_for_check_and_connection() -> None:
    """The connection uses the checked address; a second resolver answer could name another one."""
    async with serving(answer(b"page")) as port:
        world = FakeNetwork({"dns_sequence": [["203.0.113.7"], ["127.0.0.1"]]}, port)
        fetcher = Fetcher(allow=["203.0.113.0/24"], resolve=world.resolve, connect=world.connect)
        result: Any = await fetcher.fetch_url(context(), "http://rebind.test/")
    assert result["text"] == "page"
    assert world.connected == ["203.0.113.7"]


async def test_an_allowed_host_and_port_permits_no_other_port() -> None:
    async with serving(answer(b"private")) as port:
        tool = fetch_tool(allow=["127.0.0.1:1"])
        result: Any = await tool.invoke(context(), {"url": f"http://127.0.0.1:{port}/"})  # type: ignore[misc]
    assert "not on the public internet" in result["error"]


@pytest.mark.parametrize(
    "address",
    ["169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254", "::ffff:168.63.129.16"],
)
async def test_the_metadata_services_of_clouds_are_not_reached_by_address_or_by_name(address: str) -> None:
    """They give credentials of the machine to everybody who asks from it; one of them has a public number."""
    async with serving(answer(b"credentials")) as port:
        world = FakeNetwork({"dns": {"metadata.test": [address]}}, port)
        fetcher = Fetcher(resolve=world.resolve, connect=world.connect)
        for host in ("metadata.test", f"[{address}]" if ":" in address else address):
            result: Any = await fetcher.fetch_url(context(), f"http://{host}/latest/")
            assert "not on the public internet" in result["error"]
    assert world.connected == []


REDIRECT_RULES = """
[[rule]]
id = "elsewhere"
verdict = "VERDICT"
tool = "fetch_url"
when = { "url.host" = "bad.test" }
"""


@pytest.mark.parametrize(("verdict", "told"), [("deny", "elsewhere (rules:2)"), ("ask", "a human has to decide about it first")])
@pytest.mark.parametrize("hops", [1, 3])
async def test_a_redirect_is_judged_by_the_rules_like_a_call_with_its_url(verdict: str, told: str, hops: int) -> None:
    """A page at an allowed URL may redirect to any other URL."""
    targets = ["http://good.test/next"] * (hops - 1) + ["http://bad.test/page"]

    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 302 Found\r\nLocation: {targets.pop(0)}\r\nContent-Length: 0\r\n\r\n".encode())

    async with serving(redirect) as port:
        world = FakeNetwork({"dns": {"good.test": ["203.0.113.7"], "bad.test": ["203.0.113.9"]}}, port)
        fetcher = Fetcher(allow=["203.0.113.0/24"], resolve=world.resolve, connect=world.connect)
        async with Engine([fetcher.tool()], policies=[Rules.parse(REDIRECT_RULES.replace("VERDICT", verdict))]) as engine:
            outcome = await engine.call(RawCall(name="fetch_url", arguments='{"url": "http://good.test/"}'))
    assert "redirects to 'http://bad.test/page', which is not fetched" in str(outcome)
    assert told in str(outcome)
    assert world.connected == ["203.0.113.7"] * hops


@pytest.mark.parametrize("padding", [b"", b"\0" * 20])
async def test_a_page_of_several_gzip_members_is_read_to_its_end(padding: bytes) -> None:
    """RFC 1952, 2.2: a gzip body is a series of members, so the first member alone is not the whole page."""
    body = gzip.compress(b"one, ") + gzip.compress(b"two, ") + gzip.compress(b"three") + padding
    async with serving(answer(body, "Content-Encoding: gzip")) as port:
        result = await fetch(port)
    assert (result["text"], result["truncated"]) == ("one, two, three", False)


@pytest.mark.parametrize("lost", [1, 8, 12])
async def test_a_truncated_gzip_page_raises_retryable(lost: int) -> None:
    async with serving(answer((gzip.compress(b"one") + gzip.compress(b"two" * 100))[:-lost], "Content-Encoding: gzip")) as port:
        with pytest.raises(Retryable, match="broke the connection"):
            await fetch(port)
