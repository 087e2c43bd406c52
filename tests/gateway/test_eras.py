"""Old and new clients and servers meet: what a server asks, reports and cancels passes the gateway, for each pair of eras."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import pytest
from mcp_types._v2025_11_25 import ElicitRequestURLParams

from tests.gateway.raw_client import Era, RawClient, raw_client, served
from tests.waiting import until

pytestmark = [pytest.mark.process]

ERAS = get_args(Era)
PAIRS = [(front, upstream) for front in ERAS for upstream in ERAS]
_ASKING = str(Path(__file__).with_name("asking_server.py"))
_ALL: Mapping[str, Any] = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}
_MESSAGE: Mapping[str, Any] = {"role": "assistant", "content": {"type": "text", "text": "hello"}, "model": "m"}
pairs = pytest.mark.parametrize(("front", "upstream"), PAIRS)


@asynccontextmanager
async def gateway(front: Era, upstream: Era, tmp_path: Path, capabilities: Mapping[str, Any] = _ALL) -> AsyncIterator[RawClient]:
    command = served(servers=[[sys.executable, _ASKING, upstream, str(tmp_path / "log")]])
    async with raw_client(command, front, capabilities) as client:
        yield client


async def answered(client: RawClient, tool: str, *answers: Mapping[str, Any], arguments: Mapping[str, Any] = {}) -> tuple[list[Any], Any]:
    """Call a tool and answer what the client is asked; return the questions and what the tool has returned."""
    asked: list[Any] = []
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    _, response = client.begin("tools/call", params)
    for answer in answers:
        if client.era == "handshake":
            message = await client.next_message()
            asked.append((message["method"], message["params"]))
            client.send({"jsonrpc": "2.0", "id": message["id"], "result": answer})
        else:
            result = (await response)["result"]
            assert result["resultType"] == "input_required"
            ((key, question),) = result["inputRequests"].items()
            asked.append((question["method"], question.get("params", {})))
            state = {"inputResponses": {key: answer}, "requestState": result["requestState"]}
            _, response = client.begin("tools/call", {**params, **state})
    content = (await response)["result"]["content"]
    return asked, json.loads(content[0]["text"])


@pairs
async def test_a_server_asks_the_user_of_the_client(front: Era, upstream: Era, tmp_path: Path) -> None:
    answer = {"action": "accept", "content": {"name": "Ada"}, "vendor": {"b": 1, "a": 2}}
    async with gateway(front, upstream, tmp_path) as client:
        asked, returned = await answered(client, "ask", answer)
    assert [method for method, _ in asked] == ["elicitation/create"]
    assert asked[0][1]["message"] == "Your name? (1)"
    assert returned == [answer]


@pairs
async def test_a_server_asks_twice_during_one_call(front: Era, upstream: Era, tmp_path: Path) -> None:
    first, second = ({"action": "accept", "content": {"name": name}} for name in ("Ada", "Grace"))
    async with gateway(front, upstream, tmp_path) as client:
        asked, returned = await answered(client, "ask_twice", first, second)
    assert [params["message"] for _, params in asked] == ["Your name? (1)", "Your name? (2)"]
    assert returned == [first, second]
    assert (tmp_path / "log").read_text().count("call ask_twice") == (2 + 1 if upstream == "stateless" else 1)


@pairs
async def test_a_server_asks_for_the_model_and_the_folders_of_the_client(front: Era, upstream: Era, tmp_path: Path) -> None:
    roots = {"roots": [{"uri": "file:///work", "name": "work"}]}
    async with gateway(front, upstream, tmp_path) as client:
        assert await answered(client, "model", _MESSAGE) == ([("sampling/createMessage", _sampling())], [_MESSAGE])
        asked, returned = await answered(client, "folders", roots)
    assert ([method for method, _ in asked], returned) == (["roots/list"], [roots])


@pytest.mark.parametrize("upstream", ERAS)
async def test_a_user_who_refuses_by_an_error_has_not_agreed_and_the_call_ends(upstream: Era, tmp_path: Path) -> None:
    refusal = {"code": -1, "message": "the user said no"}
    async with gateway("handshake", upstream, tmp_path) as client:
        returned = await refused(client, "ask", refusal)
        again = await refused(client, "ask", refusal)
    assert (
        json.loads(returned["content"][0]["text"])
        == json.loads(again["content"][0]["text"])
        == [{"action": "cancel"} if upstream == "stateless" else refusal]
    )


async def test_a_stateless_server_whose_client_refuses_the_model_is_not_told_to_go_on(tmp_path: Path) -> None:
    async with gateway("handshake", "stateless", tmp_path) as client:
        result = await refused(client, "model", {"code": -1, "message": "the user said no"})
    assert result["isError"] is True
    text = result["content"][0]["text"]
    assert "asked for input (sampling/createMessage), which it did not get: the user said no" in text
    assert "It was not told to continue, but may have done something before it asked" in text
    assert (tmp_path / "log").read_text().count("call model") == 1


async def refused(client: RawClient, tool: str, error: Mapping[str, Any]) -> Any:
    """Call a tool and refuse with an error what the client is asked; return the result."""
    _, response = client.begin("tools/call", {"name": tool, "arguments": {}})
    asked = await client.next_message()
    client.send({"jsonrpc": "2.0", "id": asked["id"], "error": error})
    return (await response)["result"]


@pytest.mark.parametrize(("front", "code"), [("handshake", -32002), ("stateless", -32602)])
async def test_a_resource_that_is_not_there_is_refused_with_the_code_of_the_clients_era(front: Era, code: int) -> None:
    server = [sys.executable, str(Path(__file__).with_name("content_server.py")), "a"]
    async with raw_client(served(servers=[server]), front) as client:
        refused = await client.request("resources/read", {"uri": "a://missing"})
    assert refused["error"] == {"code": code, "message": "Resource not found", "data": {"uri": "a://missing"}}


@pytest.mark.parametrize("upstream", ERAS)
async def test_an_address_that_a_client_with_a_handshake_is_to_open_has_an_id(upstream: Era, tmp_path: Path) -> None:
    """Revision 2025-11-25 requires it, and 2026-07-28 does not have it."""
    answer, open_page = {"action": "accept"}, {"mode": "url"}
    async with gateway("handshake", upstream, tmp_path, {"elicitation": {"url": {}}}) as client:
        asked = [(await answered(client, "ask", answer, arguments=open_page))[0][0][1] for _ in range(2)]
    for params in asked:
        ElicitRequestURLParams.model_validate(params)
    ids = {params["elicitationId"] for params in asked}
    assert ids == {"e"} if upstream == "handshake" else len(ids) == 2


@pytest.mark.parametrize("upstream", ERAS)
async def test_a_client_without_a_handshake_is_asked_to_open_the_address_without_which_a_server_refuses_a_call(
    upstream: Era, tmp_path: Path
) -> None:
    async with gateway("stateless", upstream, tmp_path, {"elicitation": {"url": {}}}) as client:
        begun = (await client.call("pay_first", {}))["result"]
        (name, question), *others = begun["inputRequests"].items()
        given = {"inputResponses": {name: {"action": "accept"}}, "requestState": begun["requestState"]}
        ended = await client.request("tools/call", {"name": "pay_first", "arguments": {}, **given})
    assert others == []
    assert (question["method"], question["params"]["url"]) == ("elicitation/create", "https://shop.example/pay")
    assert ended["result"]["content"][0]["text"] == "paid"
    assert (tmp_path / "log").read_text().count("call pay_first") == 2


@pytest.mark.parametrize("capabilities", [{"elicitation": {"url": {}}}, {"elicitation": {}}, {}])
async def test_a_call_that_a_server_refuses_until_an_address_is_open_is_not_repeated_without_consent(
    capabilities: Mapping[str, Any], tmp_path: Path
) -> None:
    async with gateway("stateless", "handshake", tmp_path, capabilities) as client:
        response = await client.call("pay_first", {})
        if "result" in response:
            begun = response["result"]
            given = {
                "inputResponses": {name: {"action": "decline"} for name in begun["inputRequests"]},
                "requestState": begun["requestState"],
            }
            response = await client.request("tools/call", {"name": "pay_first", "arguments": {}, **given})
    assert response["error"]["code"] == -32603  # no client of this era knows -32042
    assert response["error"]["message"] == "Pay first."
    assert response["error"]["data"]["elicitations"][0]["url"] == "https://shop.example/pay"
    assert (tmp_path / "log").read_text().count("call pay_first") == 1


@pytest.mark.parametrize("upstream", ERAS)
async def test_a_client_with_a_handshake_is_told_by_the_error_which_address_to_open(upstream: Era, tmp_path: Path) -> None:
    async with gateway("handshake", upstream, tmp_path, {"elicitation": {"url": {}}}) as client:
        refused = (await client.call("pay_first", {}))["error"]
    assert (refused["code"], refused["data"]["elicitations"][0]["elicitationId"]) == (-32042, "p")
    assert (tmp_path / "log").read_text().count("call pay_first") == 1


_URL, _TOOLS = {"mode": "url"}, {"tools": [], "toolChoice": {"mode": "auto"}}
_NOT_DECLARED = [
    ({"elicitation": {}}, "ask", _URL, "in the mode 'url', only in: form"),
    ({"elicitation": {"form": {}}}, "ask", _URL, "in the mode 'url', only in: form"),
    ({"elicitation": {"url": {}}}, "ask", {}, "in the mode 'form', only in: url"),
    ({"sampling": {}}, "model", _TOOLS, "does not take tools for sampling"),
]
_DECLARED: list[tuple[Mapping[str, Any], str, Mapping[str, Any]]] = [
    ({"elicitation": {}}, "ask", {}),
    ({"elicitation": {"url": {}}}, "ask", _URL),
    ({"elicitation": {"form": {}, "url": {}}}, "ask", {}),
    ({"elicitation": {"form": {}, "url": {}}}, "ask", _URL),
    ({"sampling": {"tools": {}}}, "model", _TOOLS),
]


@pairs
@pytest.mark.parametrize(("capabilities", "tool", "arguments", "why"), _NOT_DECLARED)
async def test_a_client_is_not_asked_in_a_way_that_it_has_not_declared(
    front: Era, upstream: Era, capabilities: Mapping[str, Any], tool: str, arguments: Mapping[str, Any], why: str, tmp_path: Path
) -> None:
    async with gateway(front, upstream, tmp_path, capabilities) as client:
        result = (await client.call(tool, arguments))["result"]
        assert "inputRequests" not in result
        assert why in result["content"][0]["text"]
        assert upstream == "stateless" or json.loads(result["content"][0]["text"])[0]["code"] == -32602
        assert all(told["method"].startswith("notifications/") for told in await after_ping(client))


async def after_ping(client: RawClient) -> list[Any]:
    """Return what the client was sent until it gets another response."""
    await client.request("tools/list", {})
    return [client.messages.get_nowait() for _ in range(client.messages.qsize())]


@pairs
@pytest.mark.parametrize(("capabilities", "tool", "arguments"), _DECLARED)
async def test_a_client_is_asked_in_each_way_that_it_has_declared(
    front: Era, upstream: Era, capabilities: Mapping[str, Any], tool: str, arguments: Mapping[str, Any], tmp_path: Path
) -> None:
    answer = _MESSAGE if tool == "model" else {"action": "decline"}
    async with gateway(front, upstream, tmp_path, capabilities) as client:
        ((_, params),), returned = await answered(client, tool, answer, arguments=arguments)
    assert arguments.items() <= params.items()
    assert returned == [answer]


@pairs
async def test_a_server_is_offered_only_what_the_client_of_the_call_can_do(front: Era, upstream: Era, tmp_path: Path) -> None:
    async with gateway(front, upstream, tmp_path, {"roots": {"listChanged": True}}) as client:
        assert (await client.call("work", {}))["result"]["content"][0]["text"] == "done"
    lines = (tmp_path / "log").read_text().splitlines()
    offered = [line for line in lines if line.startswith("call" if upstream == "stateless" else "initialize")]
    assert json.loads(offered[-1].split(" ", 2 if upstream == "stateless" else 1)[-1]) == {"roots": {"listChanged": True}}


@pytest.mark.parametrize("ending", ["-TAMPERED", "=", "A"])
async def test_a_state_with_anything_added_is_refused(ending: str, tmp_path: Path) -> None:
    """Also text after the end of its encoding, which a decoder might ignore."""
    params: dict[str, Any] = {"name": "ask", "arguments": {}}
    async with gateway("stateless", "handshake", tmp_path) as client:
        asked = (await client.request("tools/call", params))["result"]
        (key,) = asked["inputRequests"]
        answer = {"inputResponses": {key: {"action": "decline"}}, "requestState": asked["requestState"] + ending}
        assert (await client.request("tools/call", {**params, **answer}))["error"]["code"] == -32602


@pairs
@pytest.mark.parametrize(
    ("method", "params"),
    [("tools/call", {"name": "work", "arguments": {}}), ("resources/read", {"uri": "a://b"}), ("prompts/get", {"name": "p"})],
    ids=["call", "read", "prompt"],
)
async def test_progress_and_logs_which_are_declared_reach_the_client_before_the_result(
    front: Era, upstream: Era, method: str, params: dict[str, Any], tmp_path: Path
) -> None:
    meta = {"progressToken": "mine", "io.modelcontextprotocol/logLevel": "info"}
    async with gateway(front, upstream, tmp_path) as client:
        assert client.about["capabilities"]["logging"] == {}
        response = await client.request(method, {**params, "_meta": meta if front == "stateless" else {"progressToken": "mine"}})
        told = [client.messages.get_nowait() for _ in range(client.messages.qsize())]
    assert '"done"' in json.dumps(response["result"])
    by_method = [(message["method"], message["params"]) for message in told]
    assert by_method == [
        ("notifications/progress", {"progress": 1, "total": 2, "message": "half", "vendor": 1, "progressToken": "mine"}),
        ("notifications/progress", {"progress": 2, "total": 2, "progressToken": "mine"}),
        ("notifications/message", {"level": "warning", "logger": "x", "data": {"b": 1, "a": 2}}),
    ]


@pytest.mark.parametrize("upstream", ERAS)
async def test_progress_after_an_answer_has_the_token_of_the_request_that_brought_it(upstream: Era, tmp_path: Path) -> None:
    params: dict[str, Any] = {"name": "ask_then_work", "arguments": {}}
    answer = {"action": "accept", "content": {"name": "Ada"}}
    async with gateway("stateless", upstream, tmp_path) as client:
        asked = (await client.request("tools/call", {**params, "_meta": {"progressToken": "first"}}))["result"]
        (key,) = asked["inputRequests"]
        state = {"inputResponses": {key: answer}, "requestState": asked["requestState"]}
        await client.request("tools/call", {**params, **state, "_meta": {"progressToken": "second"}})
        told = [client.messages.get_nowait() for _ in range(client.messages.qsize())]
    assert [message["params"]["progressToken"] for message in told] == ["second", "second"]


@pairs
async def test_a_cancelled_call_is_cancelled_at_the_server_and_gets_no_response(front: Era, upstream: Era, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with gateway(front, upstream, tmp_path) as client:
        number, response = client.begin("tools/call", {"name": "wait", "arguments": {}})
        await until(lambda: "call wait" in log.read_text())
        client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
        await until(lambda: "cancelled" in log.read_text())
        assert (await client.call("work", {}))["result"]["content"][0]["text"] == "done"
        assert not response.done()
        response.cancel()
        await asyncio.gather(response, return_exceptions=True)


def _sampling() -> Mapping[str, Any]:
    return {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5}
