"""Results of calls, as MCP clients get them.

The response of an upstream server is passed on as it was sent, if the engine has accepted it unchanged. For everything else, a response is
made from the engine's result: for tools that are not on an MCP server, for calls that failed on the way, and for stored results, which
`server_results.py` turns back into what the server has sent. What the engine has to tell the model stands behind the server's content.
Knows no era of the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from callgate._pipeline.result_notes import content_and_notes
from callgate.calls import ToolResult
from callgate.content_parts import Text
from callgate.gateway._redaction import ClientRedaction
from callgate.gateway._tool_calls.server_results import declared_failure, part_item, recorded_error, recorded_success, text_item
from callgate.mcp._connection import Message
from callgate.mcp._messages import INVALID_PARAMS, RpcError
from callgate.protocols import BlobStore

__all__ = ["OUTCOME_KEY", "ToolResults", "error_result"]

OUTCOME_KEY = "callgate/outcome"
"""The key of a result's `_meta` that says what callgate knows of a call that did not succeed."""


class ToolResults:
    """Makes the results of calls of one engine.

    Args:
        redaction: Removes secrets from what servers have answered.
        changed_by_hooks: Whether hooks may change results, so that the server's response is not passed on.
    """

    def __init__(self, blobs: BlobStore, redaction: ClientRedaction, *, changed_by_hooks: bool) -> None:
        self._blobs = blobs
        self._redaction = redaction
        self._changed_by_hooks = changed_by_hooks

    def result(self, result: ToolResult, response: Mapping[str, Any] | None) -> Message:
        """Return the result of a call.

        Args:
            response: The response of the server that has answered the call; None if none has.

        Raises:
            RpcError: The server has answered with an error, or there is no such tool.
        """
        if response is not None and not self._changed_by_hooks and _is_accepted(result, response):
            passed = self._pass_on(response, result)
            if passed is not None:
                return _with_notes(passed, result)
        error = recorded_error(result)
        if error is not None:
            raise _error_with_notes(error, result)
        if result.failure_class == "unknown_tool":
            raise RpcError(INVALID_PARAMS, result.error or f"Unknown tool: {result.name}")
        return self._make(result)

    def _pass_on(self, response: Mapping[str, Any], result: ToolResult) -> Message | None:
        """Return the server's result without secrets; None if it is not valid without them.

        Raises:
            RpcError: The server has answered with an error.
        """
        error = response.get("error")
        if isinstance(error, dict):
            raise _error_with_notes(self._redaction.clean_error(RpcError.received(error)), result)
        found = self._redaction.clean(response).get("result")
        return found if isinstance(found, dict) else None

    def _make(self, result: ToolResult) -> Message:
        if result.status != "ok" and not result.metadata.recorded and not result.metadata.replayed:
            return _unrecorded_result(result)
        declared = declared_failure(result)
        if declared is not None:
            return _with_notes(declared, result)
        if result.status != "ok":
            content = [part_item(part) for part in result.content]
            return {"content": content, "isError": True, "_meta": {OUTCOME_KEY: _outcome(result)}}
        whole = self._blobs.get(result.metadata.blob) if result.metadata.truncated and result.metadata.blob else None
        return _with_notes(recorded_success(result, whole), result)


def _with_notes(sent: Message, result: ToolResult) -> Message:
    """Return what a server has sent, with the engine's notes behind its content: that the call ran with other arguments, or did not run."""
    _parts, notes = content_and_notes(result)
    content = sent.get("content")
    if not notes:
        return sent
    return {**sent, "content": [*(content if isinstance(content, list) else ()), *map(part_item, notes)]}


def _error_with_notes(error: RpcError, result: ToolResult) -> RpcError:
    """Return the error of a server, with the engine's notes behind its message."""
    _parts, notes = content_and_notes(result)
    texts = [note.text for note in notes if isinstance(note, Text)]
    return RpcError.received({**error.body, "message": " ".join([error.message, *texts]).lstrip()}) if texts else error


NOT_RECORDED: Final = (
    "Nothing has happened, because the gateway cannot record the call at the moment. Its operator is told why. Make the call again later."
)
RUN_HELD: Final = "run_held"
"""The code of a call that did not run, because another process works on its run."""
HELD: Final = (
    "Nothing has happened, because another process works on a call of the same run at the moment. Make the same call again in a moment."
)
_IN_DOUBT: Final = (
    "The call may have taken effect, and the gateway could not record what came of it. Its operator is told why. Check whether it has, by"
    " another tool or by asking; make the call again only if it has not."
)


def error_result(text: str, outcome: Mapping[str, object]) -> Message:
    """Return the result of a call that has not succeeded.

    Args:
        outcome: What callgate knows of it, for programs.
    """
    return {"content": [text_item(text)], "isError": True, "_meta": {OUTCOME_KEY: outcome}}


def _unrecorded_result(result: ToolResult) -> Message:
    """Return the result of a call without success that is not on record."""
    if result.status == "unknown":
        return error_result(_IN_DOUBT, _outcome(result))
    if result.code == RUN_HELD:
        return error_result(HELD, _outcome(result))
    if result.failure_class == "record_failed":
        return error_result(NOT_RECORDED, _outcome(result))
    *content, _why = result.content
    items = [*map(part_item, content), text_item("The gateway could not record this. Its operator is told why.")]
    return {"content": items, "isError": True, "_meta": {OUTCOME_KEY: _outcome(result)}}


def _is_accepted(result: ToolResult, response: Mapping[str, Any]) -> bool:
    """Return whether the engine has taken the server's response as the result of the call, without replacing it."""
    if result.metadata.cached or result.metadata.replayed or result.metadata.joined:
        return False
    if "error" in response:
        return result.status == "error" and isinstance(result.structured, dict) and "jsonrpc_code" in result.structured
    answered = response.get("result")
    if not isinstance(answered, dict):
        return False
    if answered.get("isError") is True:
        return result.failure_class == "tool_declared"
    return result.status == "ok"


def _outcome(result: ToolResult) -> dict[str, object]:
    known: dict[str, object] = {"status": result.status, "failure": result.failure_class, "code": result.code, "uid": result.uid}
    return {key: value for key, value in known.items() if value}
