"""A client on whose behalf calls are made, which keeps what it is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from callgate.mcp import RpcError

__all__ = ["ELICITS", "Client", "accepting"]

ELICITS: Mapping[str, Any] = {"elicitation": {"form": {}}}


class Client:
    """A client that answers questions with `answer`, or refuses them.

    Args:
        capabilities: What it declares.
        own_session: Its session; None: it is asked as part of a call.
        replies: Answers its questions; None: they are refused.
    """

    def __init__(
        self,
        key: str = "",
        capabilities: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] | None = None,
        replies: Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]] | None = None,
        own_session: object | None = None,
    ) -> None:
        self.own_session = own_session
        self.key = key
        self.capabilities: Mapping[str, Any] = capabilities or {}
        self.meta: Mapping[str, Any] = meta or {}
        self._replies = replies
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.progress: list[Mapping[str, Any]] = []
        self.logs: list[Mapping[str, Any]] = []
        self.updates: list[Mapping[str, Any]] = []
        self.responses: list[Mapping[str, Any]] = []

    log_level = ""
    wants_progress = False

    async def answer(self, method: str, params: Mapping[str, Any], name: str = "") -> Mapping[str, Any]:
        self.asked.append((method, params))
        if self._replies is None:
            raise RpcError(-1, "the user is away")
        return await self._replies(method, params)

    def receive_progress(self, params: Mapping[str, Any]) -> None:
        self.progress.append(params)

    def receive_log(self, params: Mapping[str, Any]) -> None:
        self.logs.append(params)

    def receive_resource_update(self, params: Mapping[str, Any]) -> None:
        self.updates.append(params)

    def receive_response(self, response: Mapping[str, Any]) -> None:
        self.responses.append(response)


def accepting(**content: Any) -> Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]:
    """Return replies that accept each question with this content."""

    async def reply(method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"action": "accept", "content": content}

    return reply
