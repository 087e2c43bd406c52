"""Arguments keep the order in which the model wrote their keys, and two orders of the same arguments are the same call."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import pytest

from callgate import Allow, Engine, RawCall, Scope, SqliteJournal, Suspended, Tool, Verified, after_call, before_call, tool
from callgate.agent import Agent
from callgate.policy import Rules
from callgate.recorded_calls import find_tool_calls
from callgate.replay import Replay, judge_again
from callgate.stage_types import ValidatedCall
from tests.agent.scripted_model import Script, says
from tests.agent.scripted_model import call as model_call
from tests.engine_calls import bodies, result_of, said

WRITTEN = '{"to":{"town":"Kiel","name":"ann","at":{"z":1,"a":2}},"cents":5,"by":"train"}'
SCOPE = Scope(run="r", turn=1, principal="team")


def as_written(arguments: object) -> str:
    return json.dumps(arguments, separators=(",", ":"))


def post_tool(runner: Literal["inline", "thread"], effect: Literal["none", "once"] = "once") -> Tool:
    if runner == "inline":

        @tool(name="post", effect=effect)
        async def post(to: dict[str, Any], cents: int, by: str) -> str:
            """Post."""
            return as_written(to)

        return post

    @tool(name="post", effect=effect)
    def post_in_thread(to: dict[str, Any], cents: int, by: str) -> str:
        """Post."""
        return as_written(to)

    return post_in_thread


@tool(name="post", runner="process")
def post_in_process(to: dict[str, Any], cents: int, by: str) -> str:
    """Post."""
    return as_written(to)


@tool(effect="none", parameters={"type": "object", "properties": {"by": {}, "cents": {}, "to": {}}})
async def echo(**given: Any) -> str:
    """Return the arguments as text."""
    return as_written(given)


def raw(arguments: str | Mapping[str, object] = WRITTEN, name: str = "post", id: str = "c1") -> RawCall:
    return RawCall(name=name, arguments=arguments, id=id)


@pytest.mark.parametrize(
    "made", [lambda: post_tool("inline"), lambda: post_tool("thread"), lambda: post_in_process], ids=["inline", "thread", "process"]
)
async def test_the_tool_gets_nested_keys_in_the_order_of_the_model(made: Callable[[], Tool]) -> None:
    async with Engine([made()]) as engine:
        assert (await said(engine, raw())).text == '{"town":"Kiel","name":"ann","at":{"z":1,"a":2}}'


@pytest.mark.parametrize("arguments", [WRITTEN, json.loads(WRITTEN)], ids=["text", "mapping"])
async def test_what_a_tool_takes_by_keywords_comes_in_the_order_of_the_model(arguments: str | Mapping[str, object]) -> None:
    async with Engine([echo]) as engine:
        assert (await said(engine, raw(arguments, "echo"))).text == WRITTEN


async def test_what_is_coerced_and_repaired_keeps_its_place_and_defaults_follow() -> None:
    @tool(effect="none")
    async def order(size: int = 3, what: str = "tea", hot: bool = True) -> str:
        """Order something."""
        return "ordered"

    async with Engine([order], repair=True) as engine:
        await said(engine, raw("{'what': 'milk', 'size': '2',}", "order"))
        [entry] = find_tool_calls(engine.journal)
        assert as_written(entry.arguments) == '{"what":"milk","size":2,"hot":true}'


async def test_hooks_and_policies_see_the_order_of_the_model() -> None:
    seen: list[str] = []

    @before_call("post", kind="reject")
    def refuse_nothing(call: ValidatedCall) -> None:
        seen.append(as_written(call.arguments))

    @before_call("post", kind="observe")
    def look_on(call: ValidatedCall) -> None:
        seen.append(as_written(call.arguments))

    @after_call("post", kind="observe")
    def look_back(call: ValidatedCall, result: object) -> None:
        seen.append(as_written(call.arguments))

    class Policy:
        async def decide(self, call: ValidatedCall) -> Allow:
            seen.append(as_written(call.arguments))
            return Allow(rule="all")

    hooks = [refuse_nothing, look_on, look_back]
    async with Engine([post_tool("inline")], hooks=hooks, policies=[Policy()]) as engine:
        await said(engine, raw())
    assert seen == [WRITTEN] * 4


async def test_the_journal_and_the_replay_keep_the_order_of_the_model(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with Engine([post_tool("inline")], journal=SqliteJournal(path)) as engine:
        await engine.call(raw(json.loads(WRITTEN)), SCOPE)
    journal = SqliteJournal(path)
    [entry] = find_tool_calls(journal)
    assert (as_written(entry.arguments), entry.received) == (WRITTEN, WRITTEN)
    [call] = Replay.of(journal, "r").calls
    assert call.decision is not None
    assert call.decision.arguments.decode() == WRITTEN
    assert journal.verify() is None
    await journal.close()


async def test_a_call_with_its_keys_in_another_order_is_the_same_call() -> None:
    """For the result that is stored, the approval that was given, and a run that is judged again."""
    rules = Rules.parse('[[rule]]\nid = "ask"\nverdict = "ask"\ntool = "post"\n', where="rules.toml")
    other = json.dumps(dict(reversed(json.loads(WRITTEN).items())))
    async with Engine([post_tool("inline")], policies=[rules]) as engine:
        asked = await engine.call(raw(id="c0"), SCOPE)
        assert isinstance(asked, Suspended)
        await engine.answer(asked.approval_id, allow=True, by="dora")
        first = result_of(await engine.call(raw(other), SCOPE))
        again = result_of(await engine.call(raw(), SCOPE))
        assert (first.status, again.metadata.replayed) == ("ok", True)
        judged = await judge_again(Replay.of(engine.journal, "r"), [post_tool("inline")], [rules])
        assert [one.change for one in judged.calls if one.now is not None] == ["", ""]


async def test_the_order_of_a_refused_question_is_the_order_of_the_model() -> None:
    rules = Rules.parse('[[rule]]\nid = "ask"\nverdict = "ask"\ntool = "post"\n', where="rules.toml")
    async with Engine([post_tool("inline")], policies=[rules]) as engine:
        await engine.call(raw(), SCOPE)
        assert as_written(bodies(engine, "call.verdict")[0]["arguments"]) == WRITTEN


async def test_a_resumed_run_asks_verify_with_the_arguments_that_the_model_wrote(tmp_path: Path) -> None:
    """The record of the start is known by the hash of its arguments, in whatever order they are."""
    asked: list[str] = []

    async def was_posted(arguments: dict[str, Any], key: str) -> Verified:
        asked.append(as_written(arguments))
        return Verified(happened=True, result="posted before")

    @tool(verify=was_posted)
    async def post(to: dict[str, Any], cents: int, by: str) -> str:
        """Post, and keep the journal as it is now: what a process that ends here would leave."""
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{tmp_path / 'journal.db'}{suffix}", f"{tmp_path / 'left.db'}{suffix}")
        return "posted"

    model = Script(says(model_call("post", WRITTEN, id="c1")), says("Done."))
    async with Agent(model, tools=[post], journal=SqliteJournal(tmp_path / "journal.db")) as agent:
        await agent.run("Post it.", scope=Scope(run="r"))
    async with Agent(Script(says("Done.")), tools=[post], journal=SqliteJournal(tmp_path / "left.db")) as agent:
        result = await agent.resume("r")
    assert asked == [WRITTEN]
    assert [one.text for one in result.results] == ["posted before"]
