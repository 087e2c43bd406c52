"""Build bodies in Amazon's event stream framing, according to its specification."""

from __future__ import annotations

import json
import struct
from binascii import crc32
from collections.abc import Mapping

__all__ = ["event", "failure", "message", "text_header"]


def text_header(name: str, value: str) -> bytes:
    return bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value.encode())) + value.encode()


def message(headers: bytes, payload: bytes) -> bytes:
    prelude = struct.pack(">II", len(headers) + len(payload) + 16, len(headers))
    begin = prelude + struct.pack(">I", crc32(prelude)) + headers + payload
    return begin + struct.pack(">I", crc32(begin))


def event(kind: str, payload: Mapping[str, object]) -> bytes:
    headers = text_header(":event-type", kind) + text_header(":content-type", "application/json") + text_header(":message-type", "event")
    return message(headers, json.dumps(payload, ensure_ascii=False).encode())


def failure(kind: str, said: str) -> bytes:
    headers = text_header(":exception-type", kind) + text_header(":message-type", "exception")
    return message(headers, json.dumps({"message": said}).encode())
