"""The front for clients of the stateless era, revision 2026-07-28.

Each request says in `_meta` which revision it uses and what its client can do. What a server asks during a request is returned as its
result, and the client continues the request with the answers; `ParkedRequests` keeps it in between. The question whether a call may
run ends the request without keeping anything: the call is suspended and on record, and the sealed state names it. A call that takes long
goes on as a task, if its client knows tasks; see `_tasks`.

Sources: MCP 2026-07-28, Versioning; Multi Round-Trip Requests; `server/discover`; Tasks extension.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from callgate.gateway._client_calls import PROTOCOL_PREFIX, CallInQuestion, Client, ClientCall, Continued, RecordedCall
from callgate.gateway._exchange import Exchange
from callgate.gateway._fronts.front_parts import FrontParts, object_of, params_of
from callgate.gateway._fronts.subscriptions import listen, read_subscription
from callgate.gateway._requests.cancellable_requests import CancellableRequests
from callgate.gateway._requests.client_questions import ClientQuestions, read_answers
from callgate.gateway._requests.multi_round_requests import MultiRoundRequest
from callgate.gateway._requests.request_states import ApprovalState, request_digest
from callgate.gateway._tasks.task_requests import TASK_METHODS, TaskRequests
from callgate.gateway._tasks.tasks import DiscardingExchange
from callgate.gateway._tool_calls.submitted_calls import SubmittedCall
from callgate.gateway.principals import Principal
from callgate.mcp._connection import Message
from callgate.mcp._extensions import TASKS
from callgate.mcp._messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    URL_ELICITATION_REQUIRED,
    RpcError,
)
from callgate.mcp._revisions import STATELESS_REVISIONS, UNSUPPORTED_REVISION

__all__ = ["StatelessFront"]

_REVISION = f"{PROTOCOL_PREFIX}protocolVersion"
_CAPABILITIES = f"{PROTOCOL_PREFIX}clientCapabilities"
_CLIENT_INFO = f"{PROTOCOL_PREFIX}clientInfo"
_LOG_LEVEL = f"{PROTOCOL_PREFIX}logLevel"
_SERVER_INFO = f"{PROTOCOL_PREFIX}serverInfo"

_OWN = frozenset({"server/discover", "subscriptions/listen"})
_MAY_ASK = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The requests whose answer may need input of the client, if it can give any."""
_CACHEABLE = frozenset({"server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"})
_CODES_OF_THIS_ERA = {RESOURCE_NOT_FOUND: INVALID_PARAMS, URL_ELICITATION_REQUIRED: INTERNAL_ERROR}
"""The codes in the place of those that only servers up to 2025-11-25 may use. The second one is left if the user did not open a page."""
_APPROVAL = "approval"
"""The name of the question whether a call may run."""
_RECORDED_S = 0.05
"""Seconds between two checks whether a call that is to become a task is on record."""


class _StatelessRequest(Struct, frozen=True, eq=False):
    """A request of a client."""

    method: str
    client: Client
    params: Mapping[str, Any]
    exchange: Exchange
    """The way back to the client while it is answered."""
    id: object
    """The id of the request; None if no client has made it."""


class StatelessFront:
    """The requests of one client, or of one principal's clients. Implements `Front`."""

    def __init__(self, parts: FrontParts, principal: Principal) -> None:
        self._parts = parts
        self._principal = principal
        self._running = CancellableRequests(self._result_of_ended)
        self._tasks = TaskRequests(
            principal.name,
            parts.tasks,
            parts.records,
            parts.calls,
            resume=self._resume,
            finish=self._stamp_call,
        )

    # Front

    async def request(self, message: Mapping[str, Any], exchange: Exchange) -> Message | None:
        answered = self._parts.metrics.request("stateless", self._result, message, exchange)
        return await self._running.run(message["id"], answered)

    def notification(self, message: Mapping[str, Any]) -> None:
        if message["method"] == "notifications/cancelled":
            self._running.cancel(message)

    def response(self, message: Mapping[str, Any]) -> None:
        """Do nothing: clients of this era are sent no requests."""

    async def close(self) -> None:
        await self._running.close()

    # Requests

    async def _result(self, message: Mapping[str, Any], exchange: Exchange) -> Message:
        method, tasks = message["method"], self._parts.tasks
        if not (method in _OWN or self._parts.methods.has(method) or (tasks.offered and method in TASK_METHODS)):
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method[:100]}")
        params = params_of(message)
        request = _StatelessRequest(method, self._client(params), params, exchange, message["id"])
        try:
            return self._stamp(method, await self._answer(request))
        except RpcError as error:
            code = _CODES_OF_THIS_ERA.get(error.code)
            if code is None:
                raise
            raise RpcError.received({**error.body, "code": code}) from error

    async def _answer(self, request: _StatelessRequest) -> Message:
        method, client, params = request.method, request.client, request.params
        if method == "server/discover":
            return await self._discover()
        if method == "subscriptions/listen":
            wanted = read_subscription(request.id, params, request.exchange)
            named = await self._tasks.find(client, wanted.task_ids)
            return await listen(wanted, self._parts, self._make_call(request), named)
        if method in TASK_METHODS:
            return await self._tasks.answer(method, client, params)
        if method in _MAY_ASK and (client.answers_requests or "requestState" in params or self._may_become_task(request)):
            return await self._answer_or_ask(request)
        call = self._make_call(request)
        self._running.note_call(request.id, call)
        return await self._parts.methods.answer(method, call, params)

    def _make_call(self, request: _StatelessRequest) -> ClientCall:
        """Return the `ClientCall` of a request during which the client is not asked."""
        redaction = self._parts.redaction
        return ClientCall(request.client, request.params, request.exchange, _cannot_ask, redaction=redaction, request_id=request.id)

    async def _result_of_ended(self, call: ClientCall) -> Message | None:
        result = await self._parts.calls.result_of_ended(call)
        return None if result is None else self._stamp_call(result)

    def _client(self, params: Mapping[str, Any]) -> Client:
        """Return the client of a request.

        Raises:
            RpcError: The request does not say what it must, or its revision is not known.
        """
        meta = params.get("_meta")
        if not isinstance(meta, dict) or _REVISION not in meta or _CAPABILITIES not in meta:
            raise RpcError(INVALID_PARAMS, f"The params need _meta with '{_REVISION}' and '{_CAPABILITIES}'.")
        revision, capabilities, level = meta[_REVISION], meta[_CAPABILITIES], meta.get(_LOG_LEVEL, "")
        if not isinstance(revision, str) or not isinstance(capabilities, dict):
            raise RpcError(INVALID_PARAMS, f"'{_REVISION}' must be a text and '{_CAPABILITIES}' an object.")
        if revision not in STATELESS_REVISIONS:
            revisions = {"supported": list(STATELESS_REVISIONS), "requested": revision[:100]}
            raise RpcError(UNSUPPORTED_REVISION, f"The revision {revision[:100]} is not supported.", revisions)
        return Client(
            principal=self._principal,
            era="stateless",
            revision=revision,
            capabilities=capabilities,
            info=object_of(meta.get(_CLIENT_INFO)),
            run=self._parts.runs.of(self._principal.name),
            log_level=level if isinstance(level, str) else "",
        )

    async def _discover(self) -> Message:
        instructions = await self._parts.instructions(self._principal)
        capabilities = self._parts.methods.capabilities(self._principal)
        if self._parts.tasks.offered:
            capabilities["extensions"] = {**capabilities.get("extensions", {}), TASKS: {}}
        result: Message = {"supportedVersions": list(STATELESS_REVISIONS), "capabilities": capabilities}
        return result | ({"instructions": instructions} if instructions else {})

    async def _answer_or_ask(self, request: _StatelessRequest) -> Message:
        """Answer a request, or a continuation of one, with its result or with what the client is to be asked."""
        running, tasks = self._continue(request), self._parts.tasks
        self._running.note_call(request.id, running.call)
        if self._may_become_task(request) and await self._must_become_task(running):
            digest = self._parts.records.keep_arguments(request.params.get("arguments") or {})
            server = self._parts.calls.server_of(request.params.get("name"))
            return {"resultType": "task", **tasks.begin(running, self._stamp_call, digest, server).describe()}
        result = await running.result_or_questions()
        if result is not None:
            return result
        return _input_required(running.questions.unanswered(), self._parts.parked.park(running))

    async def _must_become_task(self, request: MultiRoundRequest) -> bool:
        """Wait until a request has settled, or has to become a task because it takes long; return whether it has to.

        It waits until its call is on record, too: by that, other processes find the task, and know that the call may run.
        """
        wait_s = self._parts.tasks.after_s
        while not await request.has_settled(wait_s):
            if await request.unless_cancelled(self._parts.records.has(request.call.status.call_id)):
                return not self._parts.tasks.full
            wait_s = _RECORDED_S
        return False

    def _continue(self, request: _StatelessRequest) -> MultiRoundRequest:
        """Return the earlier request that this one continues, or a new one.

        Raises:
            RpcError: The state or the answers of the client are not valid.
        """
        params = request.params
        if "requestState" not in params:
            return self._start(request)
        state = self._parts.states.open(params["requestState"], self._principal.name, request_digest(request.method, params))
        if isinstance(state, ApprovalState):
            answer = read_answers(params).get(_APPROVAL)
            return self._start(request, continued=Continued(state.question, answer))
        earlier = self._parts.parked.take(state, params.get("inputResponses"))
        earlier.call.continue_with(params, request.exchange)
        earlier.questions.take_answers(params.get("inputResponses"))
        return earlier

    def _start(
        self, request: _StatelessRequest, *, continued: Continued | None = None, resumed: RecordedCall | None = None
    ) -> MultiRoundRequest:
        digest = request_digest(request.method, request.params)

        def ask_later(question: CallInQuestion, form: Mapping[str, Any]) -> Message:
            state = self._parts.states.seal(ApprovalState(self._principal.name, digest, question))
            return _input_required({_APPROVAL: {"method": "elicitation/create", "params": form}}, state)

        questions = ClientQuestions()
        if continued is None:
            questions.take_answers(request.params.get("inputResponses"))
        call = ClientCall(
            request.client,
            request.params,
            request.exchange,
            questions.ask,
            redaction=self._parts.redaction,
            request_id=request.id,
            ask_later=ask_later,
            continued=continued,
            resumed=resumed,
            may_become_task=self._may_become_task(request),
        )
        work = self._parts.methods.answer(request.method, call, request.params)
        return MultiRoundRequest(self._principal.name, digest, call, questions, work)

    def _may_become_task(self, request: _StatelessRequest) -> bool:
        return request.method == "tools/call" and request.client.takes_tasks and self._parts.tasks.offered

    def _resume(self, client: Client, call: SubmittedCall, server: str) -> MultiRoundRequest:
        """Return the request of a task whose call is submitted again, after its process has ended."""
        params = {"name": call.raw.name, "arguments": call.raw.arguments}
        request = _StatelessRequest("tools/call", client, params, DiscardingExchange(), None)
        return self._start(request, resumed=RecordedCall(call.id, call.scope.run, call.whole, server))

    def _stamp_call(self, result: Message) -> Message:
        return self._stamp("tools/call", result)

    def _stamp(self, method: str, result: Message) -> Message:
        """Return a result with what each result of this era has."""
        meta = object_of(result.get("_meta"))
        stamped: Message = {"resultType": "complete", **result, "_meta": {_SERVER_INFO: self._parts.info, **meta}}
        if method in _CACHEABLE and stamped["resultType"] == "complete":
            stamped.setdefault("ttlMs", 0)
            stamped["cacheScope"] = "private"  # whatever the server says: it does not know which principals may have it
        return stamped


def _input_required(questions: Mapping[str, Message], state: str) -> Message:
    return {"resultType": "input_required", "inputRequests": questions, "requestState": state}


async def _cannot_ask(method: str, params: Mapping[str, Any], name: str, exchange: Exchange) -> Mapping[str, Any]:
    raise RpcError(METHOD_NOT_FOUND, "The client cannot be asked during this request.")
