"""What servers ask of the host: answers of people, of a model, and folders, in both eras of the protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, Limits
from tests.engine_calls import call, said
from tests.mcp.fakes import Fake

pytestmark = [pytest.mark.process, pytest.mark.parametrize("era", ["stateless", "handshake"])]

TIMEOUT_S = 0.5
QUESTION = {"method": "elicitation/create", "params": {"message": "Which branch?", "requestedSchema": {"type": "object"}}}
SAMPLING = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}}


async def test_a_question_of_the_server_is_answered_by_the_host(tmp_path: Path, era: str) -> None:
    asked: list[Mapping[str, Any]] = []

    async def answer(params: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append(params)
        return {"action": "accept", "content": {"branch": "main"}}

    fake = Fake(tmp_path, {"ask": QUESTION}, era=era)
    async with Engine(servers=[fake.server(elicitation=answer)]) as engine:
        result = await said(engine, call("work"))
    assert json.loads(result.text) == {"action": "accept", "content": {"branch": "main"}}
    assert [one["message"] for one in asked] == ["Which branch?"]
    assert capabilities(fake, era)["elicitation"] == {"form": {}, "url": {}}


async def test_a_server_can_use_the_hosts_model_and_see_its_folders(tmp_path: Path, era: str) -> None:
    async def sample(params: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"role": "assistant", "content": {"type": "text", "text": "four"}, "model": "m"}

    model = Fake(tmp_path, {"ask": SAMPLING}, era=era, name="model")
    roots = Fake(tmp_path, {"ask": {"method": "roots/list"}}, era=era, name="roots")
    servers = [model.server(sampling=sample, prefix=True), roots.server(roots=(tmp_path, "file:///srv/data"), prefix=True)]
    async with Engine(servers=servers) as engine:
        assert json.loads((await said(engine, call("model.work"))).text)["content"]["text"] == "four"
        listed = json.loads((await said(engine, call("roots.work"))).text)
    assert [root["uri"] for root in listed["roots"]] == [tmp_path.as_uri(), "file:///srv/data"]


async def test_what_the_host_does_not_answer_is_not_offered_and_refused(tmp_path: Path, era: str) -> None:
    fake = Fake(tmp_path, {"ask": QUESTION}, era=era)
    async with Engine(servers=[fake.server()]) as engine:
        result = await said(engine, call("work"))
    assert capabilities(fake, era) == {}
    if era == "handshake":
        assert json.loads(result.text)["code"] == -32601
    else:
        assert (result.status, result.code) == ("unknown", "input_refused")
        assert "asked for input (elicitation/create), which it did not get" in result.text


async def test_a_handler_that_fails_does_not_end_the_server(tmp_path: Path, era: str) -> None:
    async def fail(params: Mapping[str, Any]) -> Mapping[str, Any]:
        raise ValueError("a secret of the host")

    fake = Fake(tmp_path, {"ask": QUESTION}, era=era)
    async with Engine(servers=[fake.server(elicitation=fail)]) as engine:
        result = await said(engine, call("work"))
        assert "a secret of the host" not in fake.log.read_text(encoding="utf-8")
        assert "a secret of the host" not in result.text
        assert (await said(engine, call("echo", text="alive"))).text == "alive"


@pytest.mark.parametrize("answer", [{"action": "maybe"}, {}, {"action": ["accept"]}, {"action": "accept", "content": "main"}])
async def test_an_answer_that_no_server_can_understand_is_not_passed_on(tmp_path: Path, era: str, answer: Mapping[str, Any]) -> None:
    async def handler(params: Mapping[str, Any]) -> Mapping[str, Any]:
        return answer

    fake = Fake(tmp_path, {"ask": QUESTION}, era=era)
    async with Engine(servers=[fake.server(elicitation=handler)]) as engine:
        result = await said(engine, call("work"))
    if era == "handshake":
        assert json.loads(result.text)["code"] == -32603
    else:
        assert json.loads(result.text) == {"action": "cancel"}
    assert "maybe" not in fake.log.read_text(encoding="utf-8")


@pytest.mark.parametrize("answer", [{"text": "four"}, {"role": "assistant", "content": "four", "model": "m"}])
async def test_an_answer_of_the_hosts_model_that_no_server_can_read_is_not_passed_on(
    tmp_path: Path, era: str, answer: Mapping[str, Any]
) -> None:
    async def sample(params: Mapping[str, Any]) -> Mapping[str, Any]:
        return answer

    fake = Fake(tmp_path, {"ask": SAMPLING}, era=era)
    async with Engine(servers=[fake.server(sampling=sample)]) as engine:
        result = await said(engine, call("work"))
    assert "The client could not answer this request" in result.text
    assert "four" not in fake.log.read_text(encoding="utf-8")


async def test_the_time_of_a_human_does_not_count_as_the_calls(tmp_path: Path, era: str) -> None:
    """The handler returns only after the timeout of the call would have expired twice."""
    loop = asyncio.get_running_loop()

    async def answer(params: Mapping[str, Any]) -> Mapping[str, Any]:
        late = asyncio.Event()
        loop.call_later(2 * TIMEOUT_S, late.set)
        await late.wait()
        return {"action": "decline"}

    fake = Fake(tmp_path, {"ask": QUESTION}, era=era)
    async with Engine(servers=[fake.server(elicitation=answer, timeout_s=TIMEOUT_S)]) as engine:
        result = await said(engine, call("work"))
    assert json.loads(result.text) == {"action": "decline"}


async def test_the_time_of_a_human_is_bounded(tmp_path: Path, era: str) -> None:
    async def answer(params: Mapping[str, Any]) -> Mapping[str, Any]:
        await asyncio.Event().wait()
        return {}

    fake = Fake(tmp_path, {"ask": QUESTION}, era=era)
    async with Engine(servers=[fake.server(elicitation=answer, timeout_s=60)], limits=Limits(human_answer_s=0.2)) as engine:
        result = await said(engine, call("work"))
    assert (result.status, result.code) == ("unknown", "timeout")


async def test_a_server_that_asks_again_and_again_is_given_up(tmp_path: Path, era: str) -> None:
    if era == "handshake":
        pytest.skip("in this era a server asks by requests of its own, which the deadline of the call bounds")

    async def answer(params: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"action": "decline"}

    fake = Fake(tmp_path, {"ask": QUESTION | {"again": True}}, era=era)
    async with Engine(servers=[fake.server(elicitation=answer)]) as engine:
        result = await said(engine, call("work"))
    assert (result.status, result.code) == ("unknown", "protocol_error")
    assert len(fake.calls()) == 11


def capabilities(fake: Fake, era: str) -> Any:
    """Return the capabilities that the client has offered to the server."""
    if era == "handshake":
        return fake.seen("initialize")[0]["params"]["capabilities"]
    return fake.calls()[0]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
