"""A tool with an effect that raises: the effect may have happened before it raised, and only proof that it did not makes an error of it."""

from __future__ import annotations

import asyncio
import http.client
import http.server
import logging
import socket
import ssl
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
import requests
import urllib3

from callgate import Engine, NotDone, Retryable, RetryPolicy, Scope, SqliteJournal, ToolContext, UsageError, Verified, tool
from tests.effect_ledger import Ledger
from tests.engine_calls import call, said
from tests.runners import fixture_tools

QUICK = RetryPolicy(base_s=0.0, max_s=0.0)
LOST = [
    TimeoutError("read timed out"),
    ConnectionResetError("reset by peer"),
    ValueError("bad answer"),
    SystemExit(3),
    asyncio.CancelledError(),
]


def paying(ledger: Ledger, error: BaseException | None, **settings: Any) -> Any:
    """`pay(to)`: one line in the ledger, then the client raises."""

    @tool(name="pay", retry=QUICK, **settings)
    async def pay(to: str) -> str:
        """Pay somebody."""
        ledger.write(to)
        if error is not None:
            raise error
        return f"paid {to}"

    return pay


def paying_in_a_thread(ledger: Ledger, error: BaseException, **settings: Any) -> Any:
    @tool(name="pay", retry=QUICK, **settings)
    def pay(to: str) -> str:
        """Pay somebody."""
        ledger.write(to)
        raise error

    return pay


@pytest.mark.parametrize("make", [paying, paying_in_a_thread])
@pytest.mark.parametrize("error", LOST, ids=lambda error: type(error).__name__)
async def test_what_a_once_tool_raises_leaves_its_outcome_unknown(error: BaseException, make: Callable[..., Any], ledger: Ledger) -> None:
    async with Engine([make(ledger, error)]) as engine:
        first = await said(engine, call("pay", id="c1", to="A7"))
        again = await said(engine, call("pay", id="c2", to="A7"))
        other = await said(engine, call("pay", id="c3", to="B8"))
    assert (first.status, first.failure_class, first.code) == ("unknown", "exception", "tool_raised")
    assert type(error).__name__ in first.text
    assert first.structured == {"exception": type(error).__name__}
    assert "may have taken effect" in first.text
    assert "another way" not in first.text
    assert (again.status, other.status) == ("unknown", "unknown")
    assert ledger.lines() == ["A7", "B8"]


@pytest.mark.process
@pytest.mark.parametrize("how", ["raise", "exit", "crash"])
async def test_a_process_tool_that_ends_after_its_effect_is_unknown(how: str, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "paid")
    async with Engine([fixture_tools.pay_and_fail]) as engine:
        first = await said(engine, call("pay_and_fail", id="c1", to="A7", ledger=str(ledger.path), how=how))
        again = await said(engine, call("pay_and_fail", id="c2", to="A7", ledger=str(ledger.path), how=how))
    assert (first.status, again.status, ledger.lines()) == ("unknown", "unknown", ["A7"])


@pytest.mark.process
@pytest.mark.parametrize("how", ["not_done", "declared"])
async def test_a_process_tool_can_say_that_nothing_happened(how: str, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "paid")
    async with Engine([fixture_tools.pay_and_fail]) as engine:
        results = [
            await said(engine, call("pay_and_fail", id=each, to="A7", ledger=str(ledger.path), how=how)) for each in ("c1", "c2", "c1")
        ]
    assert [(one.status, one.code) for one in results] == [("error", "not_done")] * 3
    assert ledger.lines() == ["A7"] * 3


async def test_the_outcome_is_still_unknown_to_the_next_engine_on_the_journal(ledger: Ledger, tmp_path: Path) -> None:
    for each in ("c1", "c2", "c1"):
        async with Engine([paying(ledger, TimeoutError("lost"))], journal=SqliteJournal(tmp_path / "journal.db")) as engine:
            assert (await said(engine, call("pay", id=each, to="A7"), Scope(run="case"))).status == "unknown"
    assert ledger.lines() == ["A7"]


@pytest.mark.parametrize("settings", [{"effect": "none"}, {"effect": "none", "category": "safe_chain"}])
async def test_what_a_reading_tool_raises_is_an_error(settings: dict[str, Any], ledger: Ledger) -> None:
    async with Engine([paying(ledger, ValueError("no such page"), **settings)]) as engine:
        result = await said(engine, call("pay", to="A7"))
    assert (result.status, result.code) == ("error", "tool_raised")
    assert "another way" not in result.text


class TestVerify:
    """The tool's own `verify` is asked before anybody hears `unknown`."""

    @pytest.mark.parametrize("error", LOST, ids=lambda error: type(error).__name__)
    async def test_what_happened_is_told_as_done(self, error: BaseException, ledger: Ledger) -> None:
        asked: list[tuple[dict[str, Any], str]] = []

        def verify(arguments: dict[str, Any], key: str) -> Verified:
            asked.append((arguments, key))
            return Verified(happened=True, result="paid, receipt 17")

        async with Engine([paying(ledger, error, verify=verify)]) as engine:
            first = await said(engine, call("pay", id="c1", to="A7"))
            same = await said(engine, call("pay", id="c1", to="A7"))
        assert (first.status, first.text) == ("ok", first.text)
        assert first.text.startswith("paid, receipt 17\n")
        assert type(error).__name__ in " ".join(note.text for note in first.metadata.notes)
        assert same.metadata.replayed
        assert ([arguments for arguments, _ in asked], ledger.lines()) == ([{"to": "A7"}], ["A7"])

    async def test_what_did_not_happen_may_be_sent_again(self, ledger: Ledger) -> None:
        async with Engine([paying(ledger, TimeoutError("lost"), verify=lambda *_: False)]) as engine:
            first = await said(engine, call("pay", id="c1", to="A7"))
            again = await said(engine, call("pay", id="c1", to="A7"))
        assert (first.status, first.code) == ("error", "not_done")
        assert "may be sent again" in first.text
        assert (again.metadata.replayed, len(ledger.lines())) == (False, 2)

    @pytest.mark.parametrize("answer", [None, "perhaps", 1])
    async def test_what_nobody_can_tell_is_unknown(self, answer: object, ledger: Ledger) -> None:
        async with Engine([paying(ledger, TimeoutError("lost"), verify=lambda *_: answer)]) as engine:
            assert (await said(engine, call("pay", id="c1", to="A7"))).status == "unknown"

    async def test_a_verify_that_fails_settles_nothing(self, ledger: Ledger) -> None:
        def verify(arguments: dict[str, Any], key: str) -> Verified:
            raise SystemExit(1)

        async with Engine([paying(ledger, TimeoutError("lost"), verify=verify)]) as engine:
            assert (await said(engine, call("pay", id="c1", to="A7"))).status == "unknown"

    async def test_a_kill_ends_the_wait_for_it(self, ledger: Ledger) -> None:
        asked = asyncio.Event()

        async def verify(arguments: dict[str, Any], key: str) -> Verified | None:
            if not asked.is_set():
                asked.set()
                await asyncio.Event().wait()
            return None

        async with Engine([paying(ledger, TimeoutError("lost"), verify=verify)]) as engine:
            running = asyncio.ensure_future(engine.call(call("pay", id="c1", to="A7"), Scope(conversation="talk")))
            await asked.wait()
            engine.control.kill("talk", "enough")
            await running
            assert (await said(engine, call("pay", id="c2", to="A7"))).status == "unknown"
        assert ledger.lines() == ["A7"]

    @pytest.mark.process
    async def test_it_is_asked_after_a_crash_of_the_tools_process(self, tmp_path: Path) -> None:
        ledger = Ledger(tmp_path / "paid")
        async with Engine([fixture_tools.pay_and_fail_verified]) as engine:
            result = await said(engine, call("pay_and_fail_verified", to="A7", ledger=str(ledger.path), how="crash"))
        assert (result.status, result.text.split("\n")[0], ledger.lines()) == ("ok", "paid A7", ["A7"])


class TestProofThatNothingHappened:
    """Not in doubt is only what proves, or by the author's word is, that nothing happened."""

    @pytest.mark.parametrize(
        ("error", "settings"),
        [
            (NotDone("no such order"), {}),
            (ValueError("no such order"), {"not_done": (ValueError,)}),
            (KeyError("A7"), {"not_done": LookupError}),
            (TimeoutError("lost"), {"not_done": (ValueError, TimeoutError)}),
            (ExceptionGroup("both", [NotDone("a"), NotDone("b")]), {}),
        ],
        ids=["NotDone", "declared", "declared by a base", "the author's word wins", "a group of such"],
    )
    @pytest.mark.parametrize("effect", ["once", "idempotent"])
    async def test_a_tool_that_did_nothing_says_so(self, error: Exception, settings: dict[str, Any], effect: str, ledger: Ledger) -> None:
        async with Engine([paying(ledger, error, effect=effect, retryable=False, **settings)]) as engine:
            first = await said(engine, call("pay", id="c1", to="A7"))
            again = await said(engine, call("pay", id="c1", to="A7"))
        assert (first.status, first.failure_class, first.code) == ("error", "exception", "not_done")
        assert "Nothing happened" in first.text
        assert (again.metadata.replayed, len(ledger.lines())) == (False, 2)

    async def test_it_stays_free_for_the_next_engine_on_the_journal(self, ledger: Ledger, tmp_path: Path) -> None:
        for _ in range(2):
            async with Engine([paying(ledger, NotDone("closed"))], journal=SqliteJournal(tmp_path / "journal.db")) as engine:
                assert (await said(engine, call("pay", id="c1", to="A7"), Scope(run="case"))).code == "not_done"
        assert ledger.lines() == ["A7", "A7"]

    async def test_not_done_is_never_tried_again_by_itself(self, ledger: Ledger) -> None:
        async with Engine([paying(ledger, NotDone("try again: rate limit"), effect="idempotent")]) as engine:
            await said(engine, call("pay", to="A7"))
        assert ledger.lines() == ["A7"]

    @pytest.mark.parametrize(
        "error",
        [
            ConnectionRefusedError(111, "refused"),
            socket.gaierror(-2, "Name or service not known"),
            Retryable("closed", not_started=True),
            OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 9, 0, 0), [Errno 111] Connect call failed"),
        ],
        ids=["refused", "no such name", "Retryable", "several addresses"],
    )
    async def test_a_request_that_never_left_did_nothing(self, error: Exception, ledger: Ledger) -> None:
        async with Engine([paying(ledger, error)]) as engine:
            result = await said(engine, call("pay", to="A7"))
        assert (result.status, result.code) == ("error", "not_done")

    @pytest.mark.parametrize(
        "error",
        [
            OSError(113, "No route to host"),
            OSError("connection refused"),
            ExceptionGroup("both", [NotDone("a"), TimeoutError("b")]),
            RuntimeError("wraps a refused connection"),
        ],
        ids=lambda error: str(error),
    )
    async def test_what_only_looks_like_it_is_no_proof(self, error: Exception, ledger: Ledger) -> None:
        async with Engine([paying(ledger, error)]) as engine:
            assert (await said(engine, call("pay", to="A7"))).status == "unknown"

    def test_a_declaration_that_names_no_exceptions_is_refused(self) -> None:
        with pytest.raises(UsageError, match="not_done"):
            Engine([tool(not_done=("ValueError",))(refund)])  # type: ignore[arg-type]


def refund(order: str) -> str:
    """Pay money back."""
    return order


class TestIdempotent:
    """An idempotent tool is tried again with the same key; its outcome is unknown where the last replies were lost."""

    @pytest.mark.parametrize("error", [TimeoutError("lost"), ConnectionResetError("reset"), httpx.ReadError("lost"), Retryable("lost")])
    async def test_attempts_that_are_used_up_by_lost_replies_are_unknown(self, error: Exception, ledger: Ledger) -> None:
        async with Engine([paying(ledger, error, effect="idempotent")]) as engine:
            result = await said(engine, call("pay", to="A7"))
        assert (result.status, len(ledger.lines())) == ("unknown", 4)
        assert "4 times" in result.text

    async def test_a_failure_that_is_an_answer_is_an_error(self, ledger: Ledger) -> None:
        async with Engine([paying(ledger, ValueError("no such account"), effect="idempotent")]) as engine:
            assert (await said(engine, call("pay", to="A7"))).status == "error"

    @pytest.mark.parametrize("last", [ConnectionRefusedError("refused"), ValueError("odd"), Retryable("closed", not_started=True)])
    async def test_a_reply_that_was_lost_before_stays_in_doubt(self, last: Exception, ledger: Ledger) -> None:
        @tool(effect="idempotent", retry=QUICK)
        async def pay(to: str, ctx: ToolContext) -> str:
            """Pay somebody."""
            ledger.write(to)
            raise TimeoutError("lost") if ctx.attempt == 1 else last

        async with Engine([pay]) as engine:
            assert (await said(engine, call("pay", to="A7"))).status == "unknown"

    async def test_a_tool_that_finds_out_in_a_later_attempt_is_believed(self, ledger: Ledger) -> None:
        @tool(effect="idempotent", retry=QUICK)
        async def pay(to: str, ctx: ToolContext) -> str:
            """Pay somebody."""
            raise TimeoutError("lost") if ctx.attempt == 1 else NotDone("the bank has no such payment")

        async with Engine([pay]) as engine:
            assert (await said(engine, call("pay", to="A7"))).code == "not_done"


async def test_the_author_is_told_once_how_to_say_more(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "callgate"):
        async with Engine([paying(ledger, ValueError("odd"))]) as engine:
            for order in ("A7", "B8", "C9"):
                await said(engine, call("pay", to=order))
    told = [record.getMessage() for record in caplog.records if "not_done=" in record.getMessage()]
    assert len(told) == 1
    assert all(word in told[0] for word in ("pay", "ValueError", 'effect="none"', "NotDone", "test_lost_replies.py"))


# What the clients that tools use raise, over real connections


class _Server(http.server.BaseHTTPRequestHandler):
    """Takes a POST, then: `/lost` closes without an answer, `/moved` sends the client to a port where nobody listens."""

    posts: list[str]
    nobody: int

    def do_POST(self) -> None:
        self.posts.append(self.path)
        self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path == "/moved":
            self.send_response(303)
            self.send_header("location", f"http://127.0.0.1:{self.nobody}/")
            self.send_header("content-length", "0")
            self.end_headers()
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def nobody() -> Iterator[int]:
    """A port that refuses connections: bound, and nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.fixture
def server(nobody: int) -> Iterator[tuple[str, list[str]]]:
    posts: list[str] = []
    handler = type("Handler", (_Server,), {"posts": posts, "nobody": nobody})
    serving = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{serving.server_port}", posts
    finally:
        serving.shutdown()
        serving.server_close()
        thread.join()


async def _aiohttp(url: str) -> object:
    async with aiohttp.ClientSession() as session, session.post(url, data=b"x") as answer:
        return answer.status


def _httpx(url: str) -> object:
    return httpx.post(url, content=b"x", follow_redirects=True, trust_env=False).status_code


async def _httpx_async(url: str) -> object:
    async with httpx.AsyncClient(follow_redirects=True, trust_env=False) as client:
        return (await client.post(url, content=b"x")).status_code


def _requests(url: str) -> object:
    with requests.Session() as session:
        session.trust_env = False
        return session.post(url, data=b"x").status_code


def _urllib(url: str) -> object:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return opener.open(urllib.request.Request(url, data=b"x")).status


async def _streams(url: str) -> object:
    host, port = url.removeprefix("http://").split("/")[0].rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /lost HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
    try:
        return await reader.readuntil(b"\r\n")
    finally:
        writer.close()


CLIENTS = [_aiohttp, _httpx, _httpx_async, _requests, _urllib]


def posting(client: Callable[[str], Any], **settings: Any) -> Any:
    if asyncio.iscoroutinefunction(client):

        @tool(retry=QUICK, **settings)
        async def post(url: str) -> str:
            """Post."""
            return str(await client(url))

        return post

    @tool(name="post", retry=QUICK, **settings)
    def post_in_thread(url: str) -> str:
        """Post."""
        return str(client(url))

    return post_in_thread


@pytest.mark.parametrize("client", [*CLIENTS, _streams], ids=lambda client: client.__name__)
async def test_a_refused_connection_of_a_real_client_did_nothing(client: Callable[[str], Any], nobody: int) -> None:
    async with Engine([posting(client)]) as engine:
        result = await said(engine, call("post", url=f"http://127.0.0.1:{nobody}/"))
    assert (result.status, result.code) == ("error", "not_done"), result.text


@pytest.mark.parametrize("client", [*CLIENTS, _streams], ids=lambda client: client.__name__)
async def test_a_name_that_a_real_client_cannot_resolve_did_nothing(client: Callable[[str], Any]) -> None:
    async with Engine([posting(client)]) as engine:
        result = await said(engine, call("post", url="http://nobody.invalid:80/"))
    assert (result.status, result.code) == ("error", "not_done"), result.text


@pytest.mark.parametrize("client", [*CLIENTS, _streams], ids=lambda client: client.__name__)
async def test_an_answer_that_a_real_client_lost_is_unknown(client: Callable[[str], Any], server: tuple[str, list[str]]) -> None:
    url, posts = server
    async with Engine([posting(client)]) as engine:
        first = await said(engine, call("post", id="c1", url=f"{url}/lost"))
        again = await said(engine, call("post", id="c2", url=f"{url}/lost"))
    assert (first.status, again.status, posts) == ("unknown", "unknown", ["/lost"]), first.text


@pytest.mark.parametrize("client", [*CLIENTS, _streams], ids=lambda client: client.__name__)
async def test_an_idempotent_post_whose_answers_are_lost_is_tried_again_and_then_unknown(
    client: Callable[[str], Any], server: tuple[str, list[str]]
) -> None:
    url, posts = server
    async with Engine([posting(client, effect="idempotent")]) as engine:
        result = await said(engine, call("post", url=f"{url}/lost"))
    assert (result.status, len(posts)) == ("unknown", 4), result.text


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
async def test_a_redirect_that_leads_nowhere_comes_after_the_effect(client: Callable[[str], Any], server: tuple[str, list[str]]) -> None:
    url, posts = server
    async with Engine([posting(client)]) as engine:
        result = await said(engine, call("post", url=f"{url}/moved"))
    assert (result.status, posts) == ("unknown", ["/moved"]), result.text


def _post_twice(url: str) -> object:
    try:
        return httpx.post(url, trust_env=False).status_code
    except httpx.HTTPError:
        return httpx.post(url, trust_env=False).status_code


def _sockets(url: str) -> object:
    host, port = url.removeprefix("http://").split("/")[0].rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port))
    try:
        connection.request("POST", "/")
        return connection.getresponse().status
    except ConnectionError:
        connection.close()
        connection.request("POST", "/")
        return connection.getresponse().status


def _requests_with_retries(url: str) -> object:
    with requests.Session() as session:
        session.trust_env = False
        retries = urllib3.Retry(total=2, read=2, allowed_methods=None, backoff_factor=0)
        session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retries))
        return session.post(url, data=b"x").status_code


async def _aiohttp_delete(url: str) -> object:
    async with aiohttp.ClientSession() as session, session.delete(url) as answer:
        return answer.status


@contextmanager
def dying_server() -> Iterator[tuple[str, list[bytes]]]:
    """Takes one request, and is gone without an answer."""
    seen: list[bytes] = []
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            seen.append(connection.recv(65_536))
            listening.close()

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/", seen
    thread.join()


SENDING_AGAIN = [_post_twice, _sockets, _requests_with_retries, _aiohttp_delete]


@pytest.mark.parametrize("client", SENDING_AGAIN)
async def test_a_second_try_that_is_refused_comes_after_the_first_may_have_had_its_effect(client: Callable[[str], Any]) -> None:
    with dying_server() as (url, seen):
        async with Engine([posting(client)]) as engine:
            result = await said(engine, call("post", url=url))
    assert (result.status, len(seen)) == ("unknown", 1), result.text


@pytest.mark.parametrize("client", SENDING_AGAIN)
async def test_tries_that_are_all_refused_did_nothing(client: Callable[[str], Any], nobody: int) -> None:
    async with Engine([posting(client)]) as engine:
        result = await said(engine, call("post", url=f"http://127.0.0.1:{nobody}/"))
    assert (result.status, result.code) == ("error", "not_done"), result.text


@pytest.mark.parametrize("error", [urllib.error.URLError(TimeoutError("timed out")), ssl.SSLEOFError(8, "EOF occurred")])
async def test_a_reply_that_urllib_or_tls_lost_is_tried_again_where_that_is_safe_and_then_unknown(error: Exception, ledger: Ledger) -> None:
    async with Engine([paying(ledger, error, effect="idempotent")]) as engine:
        result = await said(engine, call("pay", to="ann"))
    assert (result.status, len(ledger.lines()) > 1) == ("unknown", True), result.text


def test_nothing_of_these_clients_is_imported_for_that() -> None:
    import subprocess

    code = (
        "import asyncio, sys\n"
        "from callgate import Engine, RawCall, tool\n"
        "@tool\n"
        "async def pay() -> str:\n"
        "    'Pay.'\n"
        "    raise TimeoutError('lost')\n"
        "async def main():\n"
        "    async with Engine([pay]) as engine:\n"
        "        print((await engine.call(RawCall(name='pay', arguments='{}', id='c'))).result.status)\n"
        "asyncio.run(main())\n"
        "print([name for name in ('httpx', 'requests', 'aiohttp', 'urllib3') if name in sys.modules])\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.split("\n")[:2] == ["unknown", "[]"]
