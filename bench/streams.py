"""What a model's stream costs: transport, decoder and events against reading the same bytes as JSON."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from bench.measure import Counts, Row, Unavailable, cpu
from callgate.messages import UserMessage
from callgate.models.http_model import HttpModel
from callgate.models.model_events import CallSealed, Finished, ModelEvent
from callgate.models.model_protocol import StreamingContext
from callgate.models.wire import codec
from callgate.models.wire.message_assembly import MessageAssembly
from callgate.models.wire.request import ModelRequest
from callgate.models.wire.tool_names import WireNames

__all__ = ["Arguments", "Streams"]

_ROOT = Path(__file__).resolve().parent.parent
_REQUEST = ModelRequest(model="m", messages=[UserMessage("Find books.")])
_decode = msgspec.json.Decoder().decode


class Streams:
    """A streamed chat completion, its server in a process of its own. The floor is httpx2, lines cut by hand, and msgspec."""

    def __init__(self) -> None:
        self._ours = tuple(
            Row(f"a stream's events / httpx2 + msgspec: {count} a write", most=1.5, note=f"one event in full, {note}")
            for count, note in ((1, "each arriving alone as far as the socket lets it"), (20, "twenty to a chunk"))
        )
        self._sdk = tuple(Row(f"openai, the provider's own client: a stream's events / the same: {count} a write") for count in (1, 20))
        self.rows = (*self._ours, *self._sdk)

    async def open(self, counts: Counts) -> None:
        try:
            import httpx2
        except ImportError:
            raise Unavailable("httpx2 is not installed") from None
        from callgate.models.http_transport import Transport

        if find_spec("openai") is None:
            for row in self._sdk:
                row.skipped = "openai is not installed"
        self._process = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-m", "bench.stream_server"],
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self._url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        self._client = httpx2.AsyncClient(trust_env=False, timeout=None)
        self._transport = Transport("bench", client=self._client)

    async def round(self, counts: Counts) -> None:
        for row, sdk, per_write in zip(self._ours, self._sdk, (1, 20), strict=True):
            url = f"{self._url}/{counts.events}/{per_write}"
            of = HttpModel("bench", "m", api="openai.chat", base_url=url, transport=self._transport)
            passes = max(1, counts.passes)
            floor_s = await cpu(lambda u=url, n=passes: self._floor(u, n), passes * counts.events)  # type: ignore[misc]
            row.ratio(await cpu(lambda m=of, n=passes: _ours(m, n), passes * counts.events), floor_s)  # type: ignore[misc]
            if not sdk.skipped:
                sdk.ratio(await cpu(lambda u=url, n=passes: _clients(u, n), passes * counts.events), floor_s)  # type: ignore[misc]

    async def _floor(self, url: str, passes: int) -> None:
        for _ in range(passes):
            value: Any = None
            rest = b""
            async with self._client.stream("POST", f"{url}/chat/completions", content=b"{}") as response:
                async for data in response.aiter_bytes():
                    *frames, rest = (rest + data).split(b"\n\n")
                    for frame in frames:
                        if frame[6:] != b"[DONE]":
                            value = _decode(frame[6:])
            assert value["choices"][0]["finish_reason"] == "tool_calls"

    async def close(self) -> None:
        self._process.terminate()
        self._process.communicate()
        await self._client.aclose()


async def _ours(of: HttpModel, passes: int) -> None:
    for _ in range(passes):
        end: ModelEvent | None = None
        async for event in of.stream(_REQUEST, StreamingContext()):
            end = event
        assert isinstance(end, Finished)
        assert end.reason == "tool_calls"


async def _clients(url: str, passes: int) -> None:
    """The events of as many passes, through the provider's own client."""
    from openai import AsyncOpenAI

    async with AsyncOpenAI(api_key="none", base_url=url) as client:
        for _ in range(passes):
            last: Any = None
            stream = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Find books."}], stream=True)
            async for chunk in stream:
                last = chunk
            assert last.choices[0].finish_reason == "tool_calls"


class Arguments:
    """A call with long arguments in short pieces, without a socket. The floor keeps the pieces, joins them and parses once."""

    def __init__(self) -> None:
        self.pieces = Row(
            "100 KB of arguments, 4 characters a delta / join and parse",
            most=6.0,
            note="with an event for each delta, and the call sealed by the last",
        )
        self.frames = Row("the same out of server-sent events / msgspec, join and parse", note="each event arrives alone")
        self.rows = (self.pieces, self.frames)

    async def open(self, counts: Counts) -> None:
        size = counts.argument_bytes
        text = msgspec.json.encode({"text": "All work and no play. " * (size // 22)}).decode()
        deltas = [text[at : at + 4] for at in range(0, len(text), 4)]
        first: dict[str, object] = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "write", "arguments": ""}}
        pieces: list[dict[str, object]] = [first, *({"index": 0, "function": {"arguments": delta}} for delta in deltas)]
        frames = [_frame({"tool_calls": [piece]}) for piece in pieces]
        self._frames = [*frames, _frame({}, "tool_calls"), b"data: [DONE]\n\n"]
        self._deltas = deltas

    async def round(self, counts: Counts) -> None:
        floor_s = await cpu(self._joined)
        self.pieces.ratio(await cpu(self._assembled), floor_s)
        floor_s = await cpu(self._read)
        self.frames.ratio(await cpu(self._decoded), floor_s)

    async def _joined(self) -> None:
        pieces: list[str] = []
        for delta in self._deltas:
            pieces.append(delta)  # noqa: PERF402 - one at a time, as they come
        _decode("".join(pieces))

    async def _assembled(self) -> None:
        message = MessageAssembly("bench", WireNames(), str)
        call = message.open_call("call_1", "write")
        for delta in self._deltas:
            message.append_arguments(call, delta)
        sealed = message.events[-1]
        assert isinstance(sealed, CallSealed)
        _decode(sealed.call.arguments)

    async def _read(self) -> None:
        pieces: list[str] = []
        for frame in self._frames[:-2]:
            pieces.append(_decode(frame[6:])["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"])  # noqa: PERF401 - a loop as ours
        _decode("".join(pieces))

    async def _decoded(self) -> None:
        decoder = codec("openai.chat").decoder()
        for frame in self._frames:
            for _ in decoder.feed(frame):
                pass
        end = decoder.close()[-1]
        assert isinstance(end, Finished)
        _decode(end.message.calls[0].arguments)

    async def close(self) -> None: ...


def _frame(delta: object, finish: str | None = None) -> bytes:
    return b"data: " + msgspec.json.encode({"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}) + b"\n\n"
