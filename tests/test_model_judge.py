"""A model as judge of calls: which calls it judges, what its verdict does, and how it is reached."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from callgate import Allow, Engine, Judge, Modify, Rules, Scope, Suspended, UsageError, tool
from callgate.builtins.command import run_command
from callgate.builtins.files import FileTools
from callgate.judging import JudgeLimits
from callgate.models.model_events import Usage
from callgate.models.providers import model as provider_model
from callgate.protocols import CallJudge, Policy, Verdict
from callgate.replay import Replay, judge_again
from callgate.stage_types import ValidatedCall
from callgate.testing import Call, End, Item, ScriptedModel, ScriptedServer, Thought
from tests.effect_ledger import Ledger
from tests.engine_calls import call, result_of, said, verdicts
from tests.judged_calls import ALLOW, ASK, DENY, LOOKS, document_of, judged, paying, verdict, word_of


async def test_a_judge_skips_reads_and_judges_writes_commands_and_calls_a_rule_marks(ledger: Ledger, tmp_path: object) -> None:
    model = ScriptedModel([DENY, DENY, DENY, DENY])
    rules = Rules.parse(LOOKS)
    async with Engine([*paying(ledger), *FileTools().tools(), run_command], policies=[rules, Judge(model)]) as engine:
        scope = Scope(workspace=str(tmp_path))
        asked = []
        for raw in (
            call("look", at="this"),
            call("list_files"),
            call("pay", to="ann"),
            call("write_file", path="a.txt", content="x"),
            call("run_command", command="ls"),
            call("look", at="secret"),
        ):
            before = len(model.requests)
            result = await said(engine, raw, scope)
            assert result.success is (len(model.requests) == before)
            asked.append(len(model.requests) - before)
    assert asked == [0, 0, 1, 1, 1, 1]
    assert document_of(model)["wanted_by_rule"] == "look-twice (rules:1)"
    assert ledger.lines() == ["this"]


async def test_a_judge_with_reads_enabled_judges_reads(ledger: Ledger) -> None:
    async with Engine(paying(ledger), policies=[Judge(ScriptedModel([DENY]), reads=True)]) as engine:
        assert (await said(engine, call("look", at="this"))).code == "judge_denied"


async def test_a_judge_judges_a_dangerous_tool_that_declares_no_effect() -> None:
    """A command that only reads is still a command."""
    ran: list[str] = []

    @tool(category="dangerous", effect="none")
    async def shell(command: str) -> str:
        """Run a command that only reads."""
        ran.append(command)
        return "read"

    async with Engine([shell], policies=[Judge(ScriptedModel([DENY, ALLOW]))]) as engine:
        results = [await said(engine, call("shell", command=command)) for command in ("cat secrets", "ls")]
    assert ([result.code for result in results], ran) == (["judge_denied", None], ["ls"])


async def test_a_default_verdict_of_judge_sends_unmatched_calls_to_the_judge(ledger: Ledger) -> None:
    rules = Rules.parse('default = "judge"\n[[rule]]\nid = "free"\nverdict = "allow"\nwhen = { "arguments.at" = "free" }\n')
    model = ScriptedModel([ALLOW])
    async with Engine(paying(ledger), policies=[rules, Judge(model)]) as engine:
        results = [await said(engine, call("look", at=at)) for at in ("free", "else")]
    assert [result.metadata.rule for result in results] == ["free (rules:2)", "default (rules)"]
    assert len(model.requests) == 1


# What a verdict does


async def test_a_judgment_is_recorded_with_its_verdict(ledger: Ledger) -> None:
    used = Usage(input_tokens=300, output_tokens=20)
    script: list[list[Item]] = [[Thought("hm"), verdict(word), used] for word in ("allow", "deny", "ask")]
    async with Engine(paying(ledger), policies=[Judge(ScriptedModel(script, name="careful-1"))]) as engine:
        outcomes = [await engine.call(call("pay", to=to)) for to in ("ann", "bob", "eve")]
        given = verdicts(engine)
    assert [body["verdict"] for body in given] == ["allow", "deny", "ask"]
    for body in given:
        (one,) = cast("list[dict[str, Any]]", body["judgments"])
        assert one.pop("duration_ms") >= 0
        expected = {"verdict": body["verdict"], "reason": "it is what the user asked for", "judge": "scripted:careful-1"}
        assert one == expected | {"input_tokens": 300, "output_tokens": 20}
    assert isinstance(outcomes[2], Suspended)
    assert "it is what the user asked for" in result_of(outcomes[1]).text
    assert ledger.lines() == ["ann"]


@pytest.mark.parametrize("turned", [False, True], ids=["rules first", "judge first"])
@pytest.mark.parametrize(
    ("rule", "answer", "ends", "asked"),
    [
        ("deny", ALLOW, "policy_denied", 0),
        ("ask", ALLOW, "asked: really? (arguments.to is 'ann')", 1),
        ("ask", ASK, "asked: really? (arguments.to is 'ann')", 1),
        ("ask", DENY, "judge_denied", 1),
        ("judge", ALLOW, "ok", 1),
        ("judge", ASK, "asked: Pay eve?", 1),
        ("allow", DENY, "judge_denied", 1),
        ("allow", ASK, "asked: Pay eve?", 1),
    ],
)
async def test_the_strictest_verdict_of_rules_and_judge_wins(
    ledger: Ledger, rule: str, answer: Call, ends: str, asked: int, *, turned: bool
) -> None:
    model = ScriptedModel([answer])
    text = f'[[rule]]\nid = "r"\nverdict = "{rule}"\ntool = "pay"\nwhen = {{ "arguments.to" = "ann" }}\nreason = "really?"\n'
    policies: list[Policy | CallJudge] = [Rules.parse(text), Judge(model)]
    async with Engine(paying(ledger), policies=policies[::-1] if turned else policies) as engine:
        outcome = await engine.call(call("pay", to="ann"))
    assert word_of(outcome) == ends
    assert len(model.requests) == asked
    assert ledger.lines() == (["ann"] if ends == "ok" else [])


async def test_judges_are_asked_in_order_until_the_first_deny(ledger: Ledger) -> None:
    models = [ScriptedModel([answer]) for answer in (ALLOW, ASK, DENY, ALLOW)]
    async with Engine(paying(ledger), policies=[Judge(model) for model in models]) as engine:
        assert (await said(engine, call("pay", to="ann"))).code == "judge_denied"
        assert [one["verdict"] for one in judged(engine)] == ["allow", "ask", "deny"]
    assert [len(model.requests) for model in models] == [1, 1, 1, 0]


async def test_the_judge_sees_the_arguments_that_the_tool_gets(ledger: Ledger) -> None:
    class ToBob:
        async def decide(self, call: ValidatedCall) -> Verdict:
            return Modify(arguments={"to": "bob"}, reason="ann moved") if call.arguments["to"] == "ann" else Allow()

    model = ScriptedModel([ALLOW])
    async with Engine(paying(ledger), policies=[Judge(model), ToBob()]) as engine:
        await said(engine, call("pay", to="ann"))
    assert document_of(model)["arguments"] == {"to": "bob", "note": ""}
    assert "ann moved" in document_of(model)["notes"][0]
    assert ledger.lines() == ["bob"]


async def test_every_call_is_judged_anew_even_with_a_cached_result(ledger: Ledger) -> None:
    """A cached result does not bypass the judge."""
    model = ScriptedModel([ALLOW, DENY, ALLOW])
    async with Engine(paying(ledger), policies=[Judge(model, reads=True)]) as engine:
        codes = [(await said(engine, call("look", at=at))).code for at in ("this", "this", "that")]
    assert codes == [None, "judge_denied", None]


@pytest.mark.parametrize(("again", "ends"), [(ASK, "ok"), (ALLOW, "ok"), (DENY, "judge_denied")])
async def test_an_approved_call_is_judged_again(ledger: Ledger, again: Call, ends: str) -> None:
    """An approval answers the judge's question, but does not override a deny."""
    async with Engine(paying(ledger), policies=[Judge(ScriptedModel([ASK, again]))]) as engine:
        asked = await engine.call(call("pay", to="eve"), Scope(run="r"))
        assert isinstance(asked, Suspended)
        await engine.answer(asked.approval_id, allow=True, by="ann")
        assert word_of(await engine.call(call("pay", to="eve"), Scope(run="r"))) == ends
    assert ledger.lines() == (["eve"] if ends == "ok" else [])


# Models of every kind, and other ways to reach the judge


@pytest.mark.parametrize(
    ("answer", "ends"),
    [
        ('{"verdict": "allow", "reason": "fine"}', "ok"),
        ('{"verdict": "deny", "reason": "no"}', "judge_denied"),
        ('Sure: {"verdict": "allow", "reason": "fine"}', "judge_failed"),
        (['{"verdict": "allow", "reason": "fine"}', End("length")], "judge_failed"),
    ],
)
async def test_a_model_without_native_tools_gives_its_verdict_as_one_json_object(ledger: Ledger, answer: Any, ends: str) -> None:
    model = ScriptedModel([answer], native_tools=False)
    async with Engine(paying(ledger), policies=[Judge(model)]) as engine:
        assert word_of(await engine.call(call("pay", to="ann"))) == ends
    assert (model.requests[0].tools, model.requests[0].output_schema is not None) == ((), True)


@pytest.mark.parametrize(
    ("api", "provider", "forced"),
    [
        ("openai.chat", "openai-compatible:any", {"type": "function", "function": {"name": "give_verdict"}}),
        ("anthropic.messages", "anthropic:any", {"type": "tool", "name": "give_verdict"}),
    ],
)
async def test_a_provider_model_is_forced_to_call_give_verdict(
    ledger: Ledger, api: str, provider: str, forced: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    async with ScriptedServer([ALLOW, DENY, "I allow it."], api=api) as server:
        judge = Judge(provider_model(provider, base_url=server.url))
        async with Engine(paying(ledger), policies=[judge]) as engine:
            ends = [word_of(await engine.call(call("pay", to=to))) for to in ("ann", "bob", "eve")]
            (first, *_) = judged(engine)
        await judge.close()
        sent = json.loads(server.requests[0].body) if isinstance(server.requests[0].body, (bytes, str)) else server.requests[0].body
    assert ends == ["ok", "judge_denied", "judge_failed"]
    assert sent["tool_choice"] == forced
    assert first["judge"].endswith(":any")


async def test_a_search_leaves_out_files_that_a_rule_requires_to_be_judged(tmp_path: Any) -> None:
    """The judge is asked about calls, and not about the files that a search finds."""
    (tmp_path / "a.txt").write_text("needle")
    (tmp_path / "b.key").write_text("needle")
    rules = Rules.parse('[[rule]]\nid = "keys"\nverdict = "judge"\nwhen = { path = { suffix = ".key" } }\n')
    model = ScriptedModel([ALLOW])
    async with Engine(FileTools().tools(), policies=[rules, Judge(model)]) as engine:
        found = await said(engine, call("grep_files", pattern="needle"), Scope(workspace=str(tmp_path)))
        assert "b.key" not in found.text
        assert (await said(engine, call("read_file", path="b.key"), Scope(workspace=str(tmp_path)))).success
    assert len(model.requests) == 1


async def test_judge_again_asks_a_given_judge_and_leaves_calls_unjudged_without_one(ledger: Ledger) -> None:
    tools = paying(ledger)
    async with Engine(tools, run="r") as engine:
        await said(engine, call("look", at="secret"))
        await said(engine, call("look", at="else"))
        replay = Replay.of(engine.journal, "r")
    rules = Rules.parse(LOOKS)
    (first, second) = (await judge_again(replay, tools, policies=[rules])).calls
    assert first.unjudged == "a rule has the verdict judge, and no judge was given"
    assert second.now is not None
    judged = await judge_again(replay, tools, policies=[rules, Judge(ScriptedModel([DENY]))])
    assert [one.differs for one in judged.calls] == [True, False]


@pytest.mark.parametrize(
    "options",
    [
        {"model": 5},
        {"model": ScriptedModel},
        {"model": "nobody:x"},
        {"timeout_s": 0},
        {"limits": {"calls": 2}},
        {"instructions": None},
        {"reads": "yes"},
        {"budget": 5},
    ],
    ids=str,
)
def test_a_judge_with_invalid_options_is_refused_at_construction(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Judge(**{"model": ScriptedModel([]), **options})
    with pytest.raises(UsageError):
        JudgeLimits(calls=-1)
