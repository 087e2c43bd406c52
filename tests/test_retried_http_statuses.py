"""A status that says that a server is busy for now is tried again, whichever HTTP client raises it."""

from __future__ import annotations

import http.server
import threading
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import httpx
import pytest
import requests

from callgate import Engine, RetryPolicy, tool
from tests.engine_calls import call, said

QUICK = RetryPolicy(base_s=0.0, max_s=0.0)


class _Busy(http.server.BaseHTTPRequestHandler):
    """Answers the first request with the status in its path, and the next ones with 200."""

    seen: list[str]

    def do_GET(self) -> None:
        self.send_response(200 if self.seen else int(self.path[1:]))
        self.seen.append(self.path)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    serving = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Busy,), {"seen": []}))
    thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{serving.server_port}"
    finally:
        serving.shutdown()
        serving.server_close()
        thread.join()


async def _aiohttp(url: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        answer.raise_for_status()
        return answer.status


def _httpx(url: str) -> int:
    return httpx.get(url, trust_env=False, verify=False).raise_for_status().status_code


def _requests(url: str) -> int:
    with requests.Session() as session:
        session.trust_env = False
        answer = session.get(url)
    answer.raise_for_status()
    return answer.status_code


def _urllib(url: str) -> int:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url) as answer:
        return int(answer.status)


@pytest.mark.parametrize("client", [_aiohttp, _httpx, _requests, _urllib])
@pytest.mark.parametrize(("status", "attempts"), [(408, 2), (429, 2), (502, 2), (503, 2), (504, 2), (500, 1), (404, 1)])
async def test_a_busy_server_is_asked_again(client: Callable[[str], Any], status: int, attempts: int, server: str) -> None:
    rate = tool(effect="none", retry=QUICK, name="rate", description="Read a rate.")(client)
    async with Engine([rate]) as engine:
        result = await said(engine, call("rate", url=f"{server}/{status}"))
    assert (result.success, result.metadata.attempts) == (attempts == 2, attempts)
