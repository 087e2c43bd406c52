"""Lost replies of real HTTP clients: whether their exceptions prove that nothing happened, over real connections."""

from __future__ import annotations

import asyncio
import http.client
import http.server
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import httpx
import pytest
import requests
import urllib3

from callgate import Engine, RetryPolicy, tool
from tests.engine_calls import call, said

QUICK = RetryPolicy(base_s=0.0, max_s=0.0)


class _Server(http.server.BaseHTTPRequestHandler):
    """Accepts a POST. `/lost` closes the connection without a response, `/moved` redirects to a port that refuses connections."""

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
    """Yield a port that is bound but refuses connections."""
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
    return httpx.post(url, content=b"x", follow_redirects=True, trust_env=False, verify=False).status_code


async def _httpx_async(url: str) -> object:
    async with httpx.AsyncClient(follow_redirects=True, trust_env=False, verify=False) as client:
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
async def test_a_refused_connection_of_a_real_client_is_reported_as_not_done(client: Callable[[str], Any], nobody: int) -> None:
    async with Engine([posting(client)]) as engine:
        result = await said(engine, call("post", url=f"http://127.0.0.1:{nobody}/"))
    assert (result.status, result.code) == ("error", "not_done"), result.text


@pytest.mark.parametrize("client", [*CLIENTS, _streams], ids=lambda client: client.__name__)
async def test_a_host_name_that_a_real_client_cannot_resolve_is_reported_as_not_done(client: Callable[[str], Any]) -> None:
    async with Engine([posting(client)]) as engine:
        result = await said(engine, call("post", url="http://nobody.invalid:80/"))
    assert (result.status, result.code) == ("error", "not_done"), result.text


@pytest.mark.parametrize("client", [*CLIENTS, _streams], ids=lambda client: client.__name__)
async def test_a_reply_lost_by_a_real_client_makes_the_outcome_unknown(client: Callable[[str], Any], server: tuple[str, list[str]]) -> None:
    url, posts = server
    async with Engine([posting(client)]) as engine:
        first = await said(engine, call("post", id="c1", url=f"{url}/lost"))
        again = await said(engine, call("post", id="c2", url=f"{url}/lost"))
    assert (first.status, again.status, posts) == ("unknown", "unknown", ["/lost"]), first.text


@pytest.mark.parametrize("client", [*CLIENTS, _streams], ids=lambda client: client.__name__)
async def test_an_idempotent_post_with_lost_replies_is_retried_and_then_unknown(
    client: Callable[[str], Any], server: tuple[str, list[str]]
) -> None:
    url, posts = server
    async with Engine([posting(client, effect="idempotent")]) as engine:
        result = await said(engine, call("post", url=f"{url}/lost"))
    assert (result.status, len(posts)) == ("unknown", 4), result.text


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
async def test_a_failed_redirect_after_a_post_makes_the_outcome_unknown(
    client: Callable[[str], Any], server: tuple[str, list[str]]
) -> None:
    url, posts = server
    async with Engine([posting(client)]) as engine:
        result = await said(engine, call("post", url=f"{url}/moved"))
    assert (result.status, posts) == ("unknown", ["/moved"]), result.text


def _post_twice(url: str) -> object:
    try:
        return httpx.post(url, trust_env=False, verify=False).status_code
    except httpx.HTTPError:
        return httpx.post(url, trust_env=False, verify=False).status_code


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
    """Accept one request, then close the connection and the listening socket without a response."""
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
async def test_a_refused_second_request_after_a_lost_reply_makes_the_outcome_unknown(client: Callable[[str], Any]) -> None:
    with dying_server() as (url, seen):
        async with Engine([posting(client)]) as engine:
            result = await said(engine, call("post", url=url))
    assert (result.status, len(seen)) == ("unknown", 1), result.text


@pytest.mark.parametrize("client", SENDING_AGAIN)
async def test_requests_that_are_all_refused_are_reported_as_not_done(client: Callable[[str], Any], nobody: int) -> None:
    async with Engine([posting(client)]) as engine:
        result = await said(engine, call("post", url=f"http://127.0.0.1:{nobody}/"))
    assert (result.status, result.code) == ("error", "not_done"), result.text
