"""Tools and prompts that ask the client before they answer, in both eras of the protocol.

In the older era the server sends its questions as requests, while the call is running. In the newer one it ends the call with the
questions, and the client makes the call again with the answers. `Asking` has the questions once, for both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata

__all__ = ["Answers", "Asking", "Context", "Params", "Question", "elicitation", "roots", "sampling"]

Context = ServerRequestContext[Any, Any]
Params = types.CallToolRequestParams | types.GetPromptRequestParams
Question = Mapping[str, Any]
Answers = Mapping[str, Mapping[str, Any]]

_SENT: Final[Mapping[str, tuple[type[Any], type[Any]]]] = {
    "elicitation/create": (types.ElicitRequest, types.ElicitResult),
    "sampling/createMessage": (types.CreateMessageRequest, types.CreateMessageResult),
    "roots/list": (types.ListRootsRequest, types.ListRootsResult),
}


def elicitation(message: str, properties: Mapping[str, Any], required: Sequence[str] | None = None) -> Question:
    """Return a question to the user. All of the properties are required unless others are given."""
    schema = {"type": "object", "properties": properties, "required": list(properties if required is None else required)}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sampling(prompt: str, max_tokens: int = 100) -> Question:
    message = {"role": "user", "content": {"type": "text", "text": prompt}}
    return {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": max_tokens}}


def roots() -> Question:
    return {"method": "roots/list", "params": {}}


@dataclass(frozen=True, kw_only=True)
class Asking:
    """Asks in one round after the other, and answers with what it was told in the last one.

    Args:
        rounds: The questions of each round by their keys.
        result: Makes the result from the answers.
        keeps_state: Whether the client carries the number of the round, as the state of the request. The server seals it.
        optional: Whether questions that the client cannot be asked are left out. Else such a client is refused.
    """

    rounds: tuple[Mapping[str, Question], ...]
    result: Callable[[Answers], dict[str, Any]]
    keeps_state: bool = False
    optional: bool = False

    async def __call__(self, context: Context, params: Params) -> dict[str, Any]:
        rounds = [self._possible(context, asked) for asked in self.rounds]
        if context.session.can_send_request:
            return self.result(await _sent(context, rounds))
        number = int(params.request_state or 0)
        answers = {key: one.model_dump(by_alias=True, mode="json") for key, one in (params.input_responses or {}).items()}
        if self.keeps_state and params.request_state is None:
            answers = {}
        if not rounds[number].keys() <= answers.keys():
            return self._question(rounds, number)
        return self._question(rounds, number + 1) if number + 1 < len(rounds) else self.result(answers)

    def _question(self, rounds: Sequence[Mapping[str, Question]], number: int) -> dict[str, Any]:
        asked: dict[str, Any] = {"resultType": "input_required", "inputRequests": dict(rounds[number])}
        return asked | {"requestState": str(number)} if self.keeps_state else asked

    def _possible(self, context: Context, asked: Mapping[str, Question]) -> Mapping[str, Question]:
        missing = {key for key, question in asked.items() if _capability(question) not in _declared(context)}
        if not missing or self.optional:
            return {key: question for key, question in asked.items() if key not in missing}
        wanted: dict[str, Any] = {_capability(asked[key]): {} for key in missing}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "The client cannot be asked.", {"requiredCapabilities": wanted})


async def _sent(context: Context, rounds: Sequence[Mapping[str, Question]]) -> Answers:
    """Send questions as requests, and return the answers."""
    answers: dict[str, Mapping[str, Any]] = {}
    for asked in rounds:
        for key, question in asked.items():
            request, result = _SENT[question["method"]]
            related = ServerMessageMetadata(related_request_id=context.request_id)
            send = cast("Callable[..., Awaitable[Any]]", context.session.send_request)
            answer = await send(request.model_validate(dict(question)), result, metadata=related)
            answers[key] = answer.model_dump(by_alias=True, mode="json")
    return answers


def _capability(question: Question) -> str:
    return str(question["method"].partition("/")[0])


def _declared(context: Context) -> frozenset[str]:
    found = context.session.client_capabilities
    return frozenset(found.model_dump(exclude_none=True)) if found is not None else frozenset()
