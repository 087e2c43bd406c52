"""JSON-RPC messages: read one from bytes within bounds, judge it, and write one.

Messages of a server are untrusted. An id counts only if it is an integer exactly as it was sent: `1.0`, `true` and `"1"` are other ids.
Pure; knows no transport and no method.

Sources: JSON-RPC 2.0; MCP 2026-07-28, Base Protocol: "Messages" (no batches).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from callgate._server_processes.json_lines import UnreadableJson, answered_ids, encoded, read_json
from callgate._server_processes.line_process import MAX_LINE_BYTES
from callgate.mcp._connection import Message

__all__ = [
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "MAX_MESSAGE_BYTES",
    "METHOD_NOT_FOUND",
    "RESOURCE_NOT_FOUND",
    "URL_ELICITATION_REQUIRED",
    "BatchMessage",
    "NoMessage",
    "RpcError",
    "UnreadableMessage",
    "answer",
    "answer_id",
    "encoded",
    "error_answer",
    "notification",
    "read_message",
    "request",
    "response_fault",
    "result_of",
]

MAX_MESSAGE_BYTES = MAX_LINE_BYTES
"""The largest message of a server."""
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
RESOURCE_NOT_FOUND = -32002
"""Up to revision 2025-11-25; since then it is `INVALID_PARAMS`."""
URL_ELICITATION_REQUIRED = -32042
"""In revision 2025-11-25 only."""

_BATCH = "it is a batch of JSON-RPC, which only revision 2025-03-26 of MCP has and callgate does not read"
_ANSWER_KEYS = frozenset({b'"result"', b'"error"'})


class UnreadableMessage(Exception):
    """Bytes of a server that are not a message.

    Args:
        why: A short text.
        code: `protocol_error` or `too_deep`.
        answers: The ids of the requests that the bytes seem to answer. Without any, they are noise.
    """

    def __init__(self, why: str, code: Literal["protocol_error", "too_deep"] = "protocol_error", answers: tuple[int, ...] = ()) -> None:
        super().__init__(why)
        self.code = code
        self.answers = answers


class NoMessage(UnreadableMessage):
    """Valid JSON that is neither an object nor a batch."""


class BatchMessage(UnreadableMessage):
    """A batch of messages."""


class RpcError(Exception):
    """The `error` of a response, or one to answer with.

    Args:
        code: The JSON-RPC code.
        message: The text of the error.
        data: Its `data`; None if there is none.
    """

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.body: Mapping[str, Any] = {"code": code, "message": message} | ({} if data is None else {"data": data})
        """The `error` itself: as it was sent, with its unknown fields, if it comes from a response."""

    @classmethod
    def received(cls, error: Mapping[str, Any]) -> RpcError:
        """Return the error of a response without a fault."""
        made = cls(error["code"], error["message"], error.get("data"))
        made.body = error
        return made


def read_message(data: bytes | bytearray, *, mends: bool = True) -> Message:
    """Return the message in `data`, of which the caller has checked the size.

    Args:
        mends: See `read_json`.

    Raises:
        UnreadableMessage: It is not a JSON object, or is nested too deeply.
    """
    try:
        value = read_json(data, mends=mends)
    except UnreadableJson as error:
        raise UnreadableMessage(str(error), error.code, answered_ids(data, _ANSWER_KEYS)) from None
    if isinstance(value, list):
        ids = (answer_id(item) for item in value if isinstance(item, dict) and "method" not in item)
        raise BatchMessage(_BATCH, answers=tuple(found for found in ids if found is not None))
    if not isinstance(value, dict):
        raise NoMessage("it is not a JSON object")
    return value


def answer_id(message: Mapping[str, Any]) -> int | None:
    """Return the id of a response; None if it is not an integer."""
    found = message.get("id")
    return found if type(found) is int else None


def response_fault(message: Mapping[str, Any]) -> str:
    """Return what is wrong with a response to a request of ours; empty if nothing is."""
    if message.get("jsonrpc") != "2.0":
        return "it does not say jsonrpc 2.0"
    if ("result" in message) == ("error" in message):
        return "it has both a result and an error" if "result" in message else "it has neither a result nor an error"
    if "result" in message:
        return "" if isinstance(message["result"], dict) else "its result is not an object"
    error = message["error"]
    if not isinstance(error, dict) or type(error.get("code")) is not int or not isinstance(error.get("message"), str):
        return "its error has no code and message"
    return ""


def result_of(response: Message) -> Message:
    """Return the result of a response without a fault.

    Raises:
        RpcError: It is an error.
    """
    error = response.get("error")
    if error is not None:
        raise RpcError.received(error)
    result: Message = response["result"]
    return result


def request(request_id: int | str, method: str, params: Mapping[str, Any] | None) -> Message:
    message: Message = {"jsonrpc": "2.0", "id": request_id, "method": method}
    if params is not None:
        message["params"] = params
    return message


def notification(method: str, params: Mapping[str, Any] | None = None) -> Message:
    message: Message = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return message


def answer(request_id: object, result: Mapping[str, Any]) -> Message:
    """Return the response to a request of the server, whose id may be a number or a text."""
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def error_answer(request_id: object, error: RpcError) -> Message:
    return {"jsonrpc": "2.0", "id": request_id, "error": error.body}
