"""Tests that tools of this process, of a plugin and of MCP servers are found, judged and shown to a model in one way.

The plugin and one server are processes, and the other server is reached over HTTP. Calls come from each interface: the engine, a
provider's response, a tool, an agent and the gateway.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pytest

from callgate import Agent, Allow, Deny, Engine, Tool, ToolContext, ToolResult, after_call, before_call, tool
from callgate.gateway import Gateway, serve_stdio
from callgate.mcp import mcp
from callgate.protocols import Verdict
from callgate.stage_types import Checked, ValidatedCall
from tests.agent.scripted_model import Script, says, tool_texts
from tests.agent.scripted_model import call as model_call
from tests.engine_calls import call, result_of, said
from tests.gateway.raw_client import raw_client
from tests.mcp.fakes import Fake
from tests.mcp.fakes import tool as listed
from tests.mcp.http.fake_server import FakeServer, Reply, Sent
from tests.mcp.http.fake_server import result_of as result_to
from tests.plugins.fakes import FakeFolder, table

pytestmark = pytest.mark.process

FAMILIES = {"function": "look", "plugin": "work", "server": "find", "remote server": "seek"}
"""The families of tools, and for each a name for its tool if an engine has all of them."""


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("http_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def mcp_frame(result: dict[str, Any]) -> str:
    return '{"jsonrpc":"2.0","id":{ID},"result":' + json.dumps(result) + "}\n"


def mcp_result(value: Any) -> dict[str, Any]:
    """Return the value as a server sends it: text, or structured content with its text."""
    if isinstance(value, str):
        return {"content": [{"type": "text", "text": value}]}
    return {"content": [{"type": "text", "text": json.dumps(value, separators=(",", ":"))}], "structuredContent": value}


def function_tool(name: str, value: Any, ran: list[str]) -> Tool:
    @tool(name=name, effect="none")
    async def answer(n: int = 0) -> Any:
        """Return the value, or fail with it."""
        ran.append(name)
        if isinstance(value, Exception):
            return {"success": False, "error": str(value)}
        return value

    return answer


class Worker(NamedTuple):
    """One tool of a family, and how often it was called."""

    item: Any
    calls: Callable[[], int]


@asynccontextmanager
async def work_of(family: str, folder: Path, value: Any, *, name: str = "work") -> AsyncIterator[Worker]:
    """Return a tool that returns the value, or fails with it if it is an exception."""
    failed = isinstance(value, Exception)
    if family == "function":
        ran: list[str] = []
        yield Worker(function_tool(name, value, ran), lambda: len(ran))
        return
    if family == "plugin":
        answer = {"kind": "error", "message": str(value), "done": True} if failed else {"kind": "result", "value": value}
        plugin = FakeFolder(folder, {"answer": answer}, name="near", tools=table(name, effect="none"))
        yield Worker(plugin.plugin(), lambda: len(plugin.seen("call")))
        return
    sent = mcp_result(str(value)) | {"isError": True} if failed else mcp_result(value)
    if family == "server":
        fake = Fake(folder, mcp_frame(sent), tools=[listed(name)])
        yield Worker(fake.server(effects={name: "none"}), lambda: len(fake.calls()))
        return
    async with FakeServer(Remote(name, sent)) as remote:
        yield Worker(mcp(remote.url, name="remote", effects={name: "none"}), lambda: remote.methods.count("tools/call"))


class Remote:
    """Answers the requests that an MCP server with one tool gets over HTTP."""

    def __init__(self, name: str, result: dict[str, Any]) -> None:
        self._name = name
        self._result = result

    async def __call__(self, sent: Sent, reply: Reply) -> None:
        match sent.message["method"]:
            case "server/discover":
                await reply.json(result_to(sent, supportedVersions=["2026-07-28"], capabilities={"tools": {}}))
            case "tools/list":
                await reply.json(result_to(sent, tools=[listed(self._name)]))
            case _:
                await reply.json(result_to(sent, **self._result))


async def shown(worker: Worker, *policies: Any, arguments: object = None) -> str:
    """Return the text of the tool message that a model gets for its call of the tool."""
    script = Script(says(model_call("work", arguments)), says("Done."))
    async with Agent(script, tools=[worker.item], policies=policies) as agent:
        assert (await agent.run("Work.")).completed
    (text,) = tool_texts(script.seen[1])
    return text


@pytest.mark.parametrize(
    "value", ["done", {"n": 1, "of": [None]}, {"found": False, "results": []}], ids=["text", "object", "nothing found"]
)
async def test_a_model_reads_the_same_message_for_a_result_of_each_family(value: Any, tmp_path: Path) -> None:
    texts = []
    for family in FAMILIES:
        async with work_of(family, tmp_path, value) as worker:
            texts.append(await shown(worker))
    assert texts == [value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))] * len(FAMILIES)


class Never:
    async def decide(self, call: ValidatedCall) -> Verdict:
        return Deny(reason="not today")


async def test_a_model_reads_one_form_of_failure_of_each_family(tmp_path: Path) -> None:
    """A failure that the tool reports, a denial, and arguments that are no object: always JSON with the status, the error and a code."""
    reported, denied, malformed = [], [], []
    for family in FAMILIES:
        async with work_of(family, tmp_path, ValueError("no such city")) as worker:
            reported.append(json.loads(await shown(worker)))
            denied.append(json.loads(await shown(worker, Never())))
            malformed.append(json.loads(await shown(worker, arguments="[1]")))
            assert worker.calls() == 1
    for failures, words in ((reported, "no such city"), (denied, "not today"), (malformed, "object")):
        assert {failure["status"] for failure in failures} == {"error"}
        assert all({"status", "error", "code"} <= failure.keys() for failure in failures)
        assert all(words in failure["error"] for failure in failures)
    assert denied == denied[:1] * len(FAMILIES)
    assert malformed == malformed[:1] * len(FAMILIES)


async def test_an_agent_recovers_from_a_name_that_no_family_has(tmp_path: Path) -> None:
    """The model reads the names of all families in the failure, and calls one tool of each in its next messages."""
    names = FAMILIES.values()
    script = Script(says(model_call("nowhere")), *(says(model_call(name)) for name in names), says("All done."))
    async with AsyncExitStack() as opened:
        workers = [await opened.enter_async_context(work_of(family, tmp_path, "done", name=name)) for family, name in FAMILIES.items()]
        async with Agent(script, tools=[worker.item for worker in workers]) as agent:
            result = await agent.run("Work.")
        assert [worker.calls() for worker in workers] == [1] * len(FAMILIES)
    missed, *found = tool_texts(script.seen[-1])
    failure = json.loads(missed)
    assert (failure["status"], failure["code"]) == ("error", "unknown_tool")
    assert all(name in failure["error"] for name in names)
    assert (len(found), result.turn_status, result.text) == (len(FAMILIES), "completed", "All done.")


# Each interface, and each family, with the same policies and hooks


class Steps:
    """A policy and hooks that record the calls of one tool, and deny, change and redact them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: list[tuple[str, object]] = []

    def _note(self, step: str, call: ValidatedCall) -> None:
        self.seen.append((step, call.arguments["n"]))

    async def decide(self, call: ValidatedCall) -> Verdict:
        if call.name != self.name:
            return Allow()
        self._note("policy", call)
        return Deny(reason="thirteen is denied") if call.arguments["n"] == 13 else Allow()

    def hooks(self) -> list[Any]:
        @before_call(self.name, kind="transform")
        def rewrite(call: ValidatedCall) -> dict[str, object] | None:
            self._note("rewrite", call)
            return {"n": 2} if call.arguments["n"] == 1 else None

        @before_call(self.name)
        def observe(call: ValidatedCall) -> None:
            self._note("observe", call)

        @after_call(self.name, kind="transform")
        def redact(call: ValidatedCall, result: Checked) -> str:
            self._note("redact", call)
            return str(result.value).replace("hunter2", "[hidden]")

        return [rewrite, observe, redact]


async def by_call(engine: Engine, name: str, n: int) -> str:
    return (await said(engine, call(name, n=n))).text


async def by_message(engine: Engine, name: str, n: int) -> str:
    (outcome,) = await engine.call_many([call(name, n=n)])
    return result_of(outcome).text


async def by_emission(engine: Engine, name: str, n: int) -> str:
    emission = engine.emission()
    emission.add(call(name, n=n))
    (outcome,) = await emission.seal()
    return result_of(outcome).text


async def by_response(engine: Engine, name: str, n: int) -> str:
    function = {"name": name, "arguments": json.dumps({"n": n})}
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    reply = await engine.respond({"id": f"r-{name}-{n}", "object": "chat.completion", "model": "m", "choices": [choice]})
    (outcome,) = reply.outcomes
    return result_of(outcome).text


async def by_tool(engine: Engine, name: str, n: int) -> str:
    return (await said(engine, call("outer", name=name, n=n))).text


async def by_agent(engine: Engine, name: str, n: int) -> str:
    script = Script(says(model_call(name, {"n": n})), says("Done."))
    async with Agent(script, engine) as agent:
        await agent.run("Work.")
    (text,) = tool_texts(script.seen[1])
    return text


async def _serve(engine: Engine, streams: tuple[BinaryIO, BinaryIO]) -> None:
    async with Gateway(engine) as gateway:
        await serve_stdio(gateway, streams=streams)


async def by_gateway(engine: Engine, name: str, n: int) -> str:
    async with raw_client(partial(_serve, engine), "handshake") as client:
        result = (await client.call(name, {"n": n}))["result"]
    return "\n".join(part["text"] for part in result["content"])


INTERFACES: list[Callable[[Engine, str, int], Awaitable[str]]] = [
    by_call,
    by_message,
    by_emission,
    by_response,
    by_tool,
    by_agent,
    by_gateway,
]


@tool(effect="none")
async def outer(name: str, n: int, ctx: ToolContext) -> str:
    """Call another tool."""
    inner: ToolResult = await ctx.call(name, {"n": n})
    return inner.text


@pytest.mark.parametrize("make", INTERFACES, ids=lambda make: make.__name__)
async def test_policies_and_hooks_run_around_a_call_of_each_family_from_each_interface(
    make: Callable[[Engine, str, int], Awaitable[str]], tmp_path: Path
) -> None:
    for family in FAMILIES:
        texts, steps = [], Steps("work")
        async with work_of(family, tmp_path, "the password is hunter2") as worker:
            for n in (1, 13):
                async with Engine([outer, worker.item], policies=[steps], hooks=steps.hooks()) as engine:
                    texts.append(await make(engine, "work", n))
            assert worker.calls() == 1
        shown, _, notes = texts[0].partition("\n")
        assert (shown, "hunter2" in notes, "The arguments were changed (n)" in notes) == ("the password is [hidden]", False, True)
        assert "thirteen is denied" in texts[1]
        ran = [("rewrite", 1), ("rewrite", 2), ("policy", 2), ("observe", 2), ("redact", 2)]
        assert steps.seen == [*ran, ("rewrite", 13), ("policy", 13)]


@pytest.mark.parametrize("make", INTERFACES, ids=lambda make: make.__name__)
async def test_a_tool_that_is_registered_later_can_be_called_from_each_interface(
    make: Callable[[Engine, str, int], Awaitable[str]],
) -> None:
    """Registering is all that it takes; the rules, hooks and the record of the engine apply to the new tool, too."""
    ran: list[str] = []
    steps = Steps("later")
    engine = Engine([outer], policies=[steps], hooks=steps.hooks())
    engine.register(function_tool("later", "the password is hunter2", ran))
    assert await make(engine, "later", 2) == "the password is [hidden]"
    await engine.close()
    assert (ran, [step for step, *_ in steps.seen]) == (["later"], ["rewrite", "policy", "observe", "redact"])
