"""Tests of the HTTP embedder against a real server on the loopback interface."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from callgate.memory import EmbedderFailed, EmbeddingsEndpoint, Memory, PassageQuery
from callgate.testing import HashedEmbedder

Answer = tuple[int, bytes]


class Server(ThreadingHTTPServer):
    """Answers like OpenAI's API, unless a test sets another answer."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.answer: Callable[[dict[str, Any]], Answer] = embeddings

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}, asked))
        status, body = self.server.answer(asked)
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""


def embeddings(asked: dict[str, Any]) -> Answer:
    vectors = HashedEmbedder()(asked["input"])
    items = [{"object": "embedding", "index": at, "embedding": vector} for at, vector in enumerate(vectors)]
    return 200, json.dumps({"object": "list", "data": items[::-1], "model": asked["model"], "usage": {}}).encode()


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_a_memory_embeds_over_http(server: Server, tmp_path: Path) -> None:
    """The vectors are matched to the texts, whatever order the server returns them in."""
    with (
        EmbeddingsEndpoint(server.url, "small", 512, api_key="sk-secret", headers={"x-team": "a"}) as embedder,
        Memory(tmp_path / "m.db", embedder=embedder) as memory,
    ):
        for note in ("The customer was reimbursed on Monday.", "The weather in Quito is mild."):
            memory.remember(note)
        assert memory.embed() == 0
        best = memory.search(PassageQuery(text="reimbursements for customers", principal=""))[0]
        assert best.passage.text == "The customer was reimbursed on Monday."
        assert memory.status().embedder == "small"
    path, headers, asked = server.requests[-1]
    assert (path, headers["authorization"], headers["x-team"]) == ("/v1/embeddings", "Bearer sk-secret", "a")
    assert asked == {"model": "small", "input": ["reimbursements for customers"], "encoding_format": "float"}


def test_shorten_requests_vectors_of_the_given_dimension(server: Server) -> None:
    with EmbeddingsEndpoint(f"{server.url}/", "small", 256, shorten=True) as embedder:
        embedder(["text"])
    assert server.requests[0][2]["dimensions"] == 256
    assert "authorization" not in server.requests[0][1]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((401, b'{"error": "sk-secret is no key"}'), r"status 401: .*\*\*\* is no key"),
        ((307, b""), "status 307"),
        ((200, b"<html>"), "something else than embeddings"),
        ((200, b'{"data": [{"index": 0, "embedding": ["x"]}]}'), "something else than embeddings"),
        ((200, b'{"data": []}'), "0 vectors for 1 texts"),
        ((200, b'{"data": [{"index": 1, "embedding": [1.0]}]}'), "1 vectors for 1 texts"),
    ],
)
def test_an_unexpected_response_is_reported_and_the_api_key_is_never_shown(server: Server, answer: Answer, said: str) -> None:
    server.answer = lambda asked: answer
    with EmbeddingsEndpoint(server.url, "small", 512, api_key="sk-secret") as embedder, pytest.raises(EmbedderFailed, match=said) as caught:
        embedder(["text"])
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v1", "nothing", "http://[::1"])
def test_an_unreachable_server_raises_embedder_failed(url: str) -> None:
    with EmbeddingsEndpoint(url, "small", 512) as embedder, pytest.raises(EmbedderFailed, match="could not be asked"):
        embedder(["text"])
