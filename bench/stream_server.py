"""A provider's stream on the loopback interface, in a process of its own: `python -m bench.stream_server`.

Prints its port. A request for `/EVENTS/PER_WRITE/...` is answered with as many events of a chat completion, so many a write. Must import
nothing of callgate: its work belongs to neither side of the row.
"""

from __future__ import annotations

import asyncio
import json

__all__ = ["body"]


def body(events: int) -> list[bytes]:
    """A message of `events` frames: text, with a call at its end."""
    head = {
        "id": "chatcmpl-9x2b",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "gpt-5",
        "system_fingerprint": "fp_1",
    }

    def frame(delta: object, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return b"data: " + json.dumps({**head, "choices": [choice]}, separators=(",", ":")).encode() + b"\n\n"

    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "search", "arguments": '{"query":"books"}'}}
    text = [frame({"content": f" word{number}"}) for number in range(max(1, events - 3))]
    return [*text, frame({"tool_calls": [call]}), frame({}, "tool_calls"), b"data: [DONE]\n\n"]


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").lower().split("\r\n")
            length = next((int(line.partition(":")[2]) for line in lines if line.startswith("content-length:")), 0)
            await reader.readexactly(length)
            _, events, per_write, *_ = head.split(b" ")[1].split(b"/")
            await _answer(writer, body(int(events)), int(per_write))
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def _answer(writer: asyncio.StreamWriter, frames: list[bytes], per_write: int) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    for at in range(0, len(frames), per_write):
        data = b"".join(frames[at : at + per_write])
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await writer.drain()
        await asyncio.sleep(0)
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _main() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main())
