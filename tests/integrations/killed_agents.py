"""Agents of other frameworks in a process that is killed, and again in a process that resumes them.

`main([framework, folder])` runs an agent whose model refunds an order, for each of `MOMENTS` in a folder with its name. The
process is killed at the moment: when the tool has had its effect and has not returned (`within`), or when the call has ended
and the framework has not saved that (`after`). Then another process goes on from what the framework has saved (`resume`), and
writes what the model reads to the file `said`. All are forked from a process that has only imported the framework, because that
takes seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from callgate import Engine, SqliteJournal
from callgate.integrations import import_tools

__all__ = ["AGENTS", "MOMENTS", "main"]

MOMENTS = ("within", "after")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refunds(folder: Path, moment: str) -> Callable[..., Any]:
    """Return a function that refunds an order: it adds a line to the ledger."""

    async def refund(order: str) -> str:
        """Refund an order."""
        with (folder / "ledger").open("a") as ledger:
            ledger.write(f"{order}\n")
        if moment == "within":
            die()
        return f"{order} refunded"

    return refund


async def langchain(folder: Path, moment: str) -> str:
    from langchain.agents import create_agent
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.messages import HumanMessage
    from langchain_core.tools import tool

    from callgate.integrations.langchain import CallgateMiddleware
    from tests.integrations.langchain_agents import FileSaver, ScriptedChat, call, says, tool_messages

    class DiesAfter(AgentMiddleware[Any, Any, Any]):
        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            output = await handler(request)
            if moment == "after":
                die()
            return output

    saver = FileSaver(folder / "checkpoints")
    tools = [tool(refunds(folder, moment))]
    model = ScriptedChat(steps=[says(call("refund", order="A7")), says(text="done")])
    config: Any = {"configurable": {"thread_id": "thread"}}
    async with Engine(import_tools(tools), journal=SqliteJournal(folder / "calls.db")) as engine:
        agent = create_agent(model, tools, middleware=[DiesAfter(), CallgateMiddleware(engine)], checkpointer=saver)
        if moment == "resume":
            saver.load()
        start: Any = None if moment == "resume" else {"messages": [HumanMessage("go")]}
        result = await agent.ainvoke(start, config, durability="sync")
    return str(tool_messages(result)[0].content)


async def pydantic_ai(folder: Path, moment: str) -> str:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessagesTypeAdapter
    from pydantic_ai.tools import Tool
    from pydantic_ai.toolsets import WrapperToolset

    from callgate.integrations.pydantic_ai import CallgateToolset
    from tests.integrations.contract import Call
    from tests.integrations.test_pydantic_ai_contract import scripted, told_in

    class DiesAfter(WrapperToolset[Any]):
        async def call_tool(self, *given: Any) -> Any:
            output = await super().call_tool(*given)
            if moment == "after":
                die()
            return output

    tools = [Tool(refunds(folder, moment))]
    saved = folder / "messages"
    async with Engine(import_tools(tools), journal=SqliteJournal(folder / "calls.db")) as engine:
        agent = Agent(scripted([Call("refund", {"order": "A7"})], "done"), toolsets=[DiesAfter(CallgateToolset(tools, engine))])
        history = ModelMessagesTypeAdapter.validate_json(saved.read_bytes()) if moment == "resume" else None
        async with agent.iter(None if history else "go", message_history=history) as run:
            async for _ in run:
                saved.write_bytes(ModelMessagesTypeAdapter.dump_json(run.all_messages()))
        return told_in(run.all_messages())["c1"].text


async def openai_agents(folder: Path, moment: str) -> str:
    from agents import RunHooks, Runner, RunState, function_tool

    from tests.integrations.contract import Call
    from tests.integrations.test_openai_agents_contract import QUIET, agent_of, told_in

    class DiesAfter(RunHooks[Any]):
        async def on_tool_end(self, *_: Any) -> None:
            if moment == "after":
                die()

    tools = [function_tool(refunds(folder, moment), needs_approval=True)]
    saved = folder / "state.json"
    async with Engine(import_tools(tools), journal=SqliteJournal(folder / "calls.db")) as engine:
        if moment == "resume":
            agent = agent_of(engine, tools, "done", run="case-7")
        else:
            agent = agent_of(engine, tools, [Call("refund", {"order": "A7"})], "done", run="case-7")
            saved.write_text((await Runner.run(agent, "go", run_config=QUIET)).to_state().to_string(), encoding="utf-8")
        state = await RunState.from_string(agent, saved.read_text(encoding="utf-8"))
        state.approve(state.get_interruptions()[0])
        return told_in(await Runner.run(agent, state, run_config=QUIET, hooks=DiesAfter()))["c1"].text


async def agent_framework(folder: Path, moment: str) -> str:
    from agent_framework import Agent, AgentSession, Content, FunctionMiddleware, Message, tool

    from callgate.integrations.agent_framework import callgate_middleware
    from tests.integrations.agent_framework_agents import ScriptedClient, told_by
    from tests.integrations.contract import Call

    class DiesAfter(FunctionMiddleware):
        async def process(self, context: Any, call_next: Any) -> None:
            await call_next()
            if moment == "after":
                die()

    tools = [tool(refunds(folder, moment), approval_mode="always_require")]
    saved, asked = folder / "session.json", folder / "request.json"
    async with Engine(import_tools(tools), journal=SqliteJournal(folder / "calls.db")) as engine:
        middleware = [DiesAfter(), *callgate_middleware(engine)]
        steps: list[Any] = ["done"] if moment == "resume" else [[Call("refund", {"order": "A7"})], "done"]
        agent: Agent[Any] = Agent(client=ScriptedClient(*steps), tools=tools, middleware=middleware)
        if moment != "resume":
            session = AgentSession(session_id="case-7")
            (request,) = (await agent.run("go", session=session)).user_input_requests
            saved.write_text(json.dumps(session.to_dict()), encoding="utf-8")
            asked.write_text(json.dumps(request.to_dict()), encoding="utf-8")
        answer = Content.from_dict(json.loads(asked.read_text(encoding="utf-8"))).to_function_approval_response(approved=True)
        await agent.run(Message("user", [answer]), session=AgentSession.from_dict(json.loads(saved.read_text(encoding="utf-8"))))
        return told_by(agent)["c1"].text


AGENTS = {"agent_framework": agent_framework, "langchain": langchain, "openai_agents": openai_agents, "pydantic_ai": pydantic_ai}
_IMPORTS = {
    "agent_framework": "tests.integrations.agent_framework_agents",
    "langchain": "tests.integrations.langchain_agents",
    "openai_agents": "tests.integrations.test_openai_agents_contract",
    "pydantic_ai": "tests.integrations.test_pydantic_ai_contract",
}
"""The module that imports the framework."""


def main(words: list[str]) -> None:
    framework, folder = words
    import_module(_IMPORTS[framework])
    for moment in MOMENTS:
        (place := Path(folder, moment)).mkdir()
        assert _ended(framework, place, moment) == -signal.SIGKILL
        assert _ended(framework, place, "resume") == 0


def _ended(framework: str, folder: Path, moment: str) -> int | None:
    """Return how a process ends that works until the moment, or goes on."""
    process = get_context("fork").Process(target=_work, args=(framework, folder, moment))
    process.start()
    process.join()
    return process.exitcode


def _work(framework: str, folder: Path, moment: str) -> None:
    (folder / "said").write_text(asyncio.run(AGENTS[framework](folder, moment)), encoding="utf-8")
