"""A recorded run is judged again with other rules or tools: the differences are reported, and nothing is run."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import Allow, Deny, Engine, Limits, MemoryJournal, RawCall, Rules, Scope, SqliteJournal, Tool, before_call, tool
from callgate.agent import Agent
from callgate.errors import UsageError
from callgate.protocols import Policy, Verdict
from callgate.replay import JudgedRun, Replay, judge_again
from callgate.stage_types import ValidatedCall
from tests.agent.scripted_model import Script, call, says
from tests.cli.shell import environment
from tests.effect_ledger import Ledger
from tests.replay.sample_runs import CALLS, RULES, RUN, rules, run_of, script, tools_of
from tests.waiting import COMMAND_S

ALL = [["ok", "denied", "failed"], ["coerced", "unknown", "invalid"], ["asked", "ok"], ["malformed", "text"]]
PLANS = st.lists(st.lists(st.sampled_from(sorted(CALLS)), min_size=1, max_size=3), min_size=0, max_size=4)


async def record(ledger: Ledger, plan: Sequence[Sequence[str]], *, allow: bool = True, **options: Any) -> Replay:
    engines: list[Engine] = []
    async with Engine(tools_of(ledger, engines), policies=[rules()], **options) as engine:
        engines.append(engine)
        async with Agent(script(plan), engine) as agent:
            await run_of(agent, allow=allow)
        return Replay.of(engine.journal, RUN, engine.blobs)


def shown(judged: JudgedRun) -> list[tuple[str, str, str]]:
    """Return each differing call with its number, its recorded verdict and its new verdict."""
    return [
        (one.call.short, one.call.decision.word if one.call.decision else "", one.now.word if one.now else "") for one in judged.differences
    ]


@pytest.mark.parametrize("allow", [True, False])
async def test_judging_again_by_the_same_rules_finds_no_difference(allow: bool, ledger: Ledger) -> None:
    replay = await record(ledger, ALL, allow=allow)
    ran = ledger.lines()
    judged = await judge_again(replay, tools_of(ledger), [rules()])
    assert [(one.change, one.unjudged) for one in judged.calls if one.call.decision] == [("", "")] * sum(
        one.decision is not None for one in replay.calls
    )
    assert (judged.differences, judged.follows, judged.changed) == ((), "", ())
    assert ledger.lines() == ran


@given(plan=PLANS, allow=st.booleans())
@settings(max_examples=20, deadline=None)
def test_any_run_judged_by_its_own_rules_and_tools_has_no_difference(
    plan: list[list[str]], allow: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """For any recorded run."""

    async def differences() -> JudgedRun:
        ledger = Ledger(tmp_path_factory.mktemp("run") / "ledger")
        return await judge_again(await record(ledger, plan, allow=allow), tools_of(ledger), [rules()])

    judged = asyncio.run(differences())
    assert judged.differences == ()


async def test_another_policy_reports_each_call_it_decides_differently_and_the_rule(ledger: Ledger) -> None:
    """`replay RUN --policy other.toml` reports the differences."""
    replay = await record(ledger, [["ok"], ["coerced", "denied"], ["ok"]])
    stricter = rules('default = "deny"\n\n[[rule]]\nid = "looks"\nverdict = "allow"\ntool = "look"\n', where="other.toml")
    judged = await judge_again(replay, tools_of(ledger), [stricter])
    assert shown(judged) == [("1/1", "allow", "deny")]
    (one,) = judged.differences
    assert one.now is not None
    assert one.now.rule == "default (other.toml)"
    assert [two.change for two in judged.calls] == ["rule", "verdict", "words", "rule"]
    assert [two.beyond for two in judged.calls] == [False, False, False, True]
    assert "From here on the run would have gone differently" in judged.follows


async def test_a_rule_at_another_line_or_in_another_file_is_no_difference(ledger: Ledger) -> None:
    """Also if a denial contains the rule with its location, because the rule has no reason of its own."""
    replay = await record(ledger, ALL)
    judged = await judge_again(replay, tools_of(ledger), [rules(f"# moved\n\n{RULES}", where="moved.toml")])
    assert {one.change for one in judged.calls} == {""}
    plain = '[[rule]]\nid = "no-a"\nverdict = "deny"\ntool = "look"\n'
    async with Engine(tools_of(ledger), policies=[rules(plain)], run="bare") as engine:
        await engine.call(RawCall(name="look", arguments='{"what": "a"}'))
        replay = Replay.of(engine.journal, "bare")
    (one,) = (await judge_again(replay, tools_of(ledger), [rules(f"\n{plain}")])).calls
    assert one.change == ""


@pytest.mark.parametrize(
    ("text", "then", "now"),
    [
        ('[[rule]]\nid = "a"\nverdict = "ask"\ntool = "look"\n', "allow", "ask"),
        ("", "deny", "allow"),
    ],
)
async def test_a_changed_verdict_reports_its_consequence_for_the_run(text: str, then: str, now: str, ledger: Ledger) -> None:
    replay = await record(ledger, [["ok" if then == "allow" else "denied"]])
    judged = await judge_again(replay, tools_of(ledger), [rules(text)])
    assert shown(judged)[0][1:] == (then, now)
    assert {"ask": "waited for a human", "allow": "its result is unknown"}[now] in judged.follows


async def test_a_recorded_approval_applies_only_to_the_same_call_of_the_same_tool(ledger: Ledger) -> None:
    """An approval applies to the unchanged tool, these arguments and this run, once."""
    replay = await record(ledger, [["asked"], ["ok"]])
    asks_all = '[[rule]]\nid = "all"\nverdict = "ask"\n'
    judged = await judge_again(replay, tools_of(ledger), [rules(asks_all)])
    assert shown(judged) == [("1/2", "allow", "ask")]
    assert [one.now.word for one in judged.calls if one.now] == ["ask", "allow", "ask"]
    tools = [one for one in tools_of(ledger) if one.name != "pay"]

    @tool
    async def pay(to: str, cents: int = 1) -> dict[str, object]:
        """Pay, but not as before."""
        return {}

    judged = await judge_again(replay, [*tools, pay], [rules()])
    assert shown(judged) == [("0/1", "allow", "ask")]


async def test_a_changed_tool_reports_calls_that_it_refuses_or_runs_with_other_arguments(ledger: Ledger) -> None:
    """With a changed schema, a verdict changes only if validation refuses the call or changes its arguments."""
    replay = await record(ledger, [["ok"], ["coerced", "denied", "invalid"]])
    tools = [one for one in tools_of(ledger) if one.name not in ("look", "pay")]

    @tool(effect="none")
    async def look(what: int) -> str:
        """Look at a number."""
        raise AssertionError

    @tool
    async def pay(to: str, cents: float = 1.0, currency: str = "EUR") -> dict[str, object]:
        """Pay in some currency."""
        raise AssertionError

    judged = await judge_again(replay, [*tools, look, pay])
    assert shown(judged) == [("0/0", "allow", "refused"), ("1/1", "allow", "allow")]
    assert [one.change for one in judged.differences] == ["verdict", "arguments"]
    assert judged.changed == ("look", "pay")
    now = judged.differences[1].now
    assert now is not None
    assert b'"currency":"EUR"' in now.arguments
    assert "other arguments" in (await judge_again(replay, [*tools, *(one for one in tools_of(ledger) if one.name == "look"), pay])).follows


async def test_a_missing_tool_raises_usage_error_with_its_name(ledger: Ledger) -> None:
    replay = await record(ledger, [["ok"], ["coerced"]])
    with pytest.raises(UsageError, match="called pay"):
        await judge_again(replay, [one for one in tools_of(ledger) if one.name != "pay"], [rules()])


async def test_additional_tools_make_no_difference(ledger: Ledger) -> None:
    replay = await record(ledger, [["unknown"]])

    @tool(effect="none")
    async def nobody() -> None:
        """Do nothing."""

    assert (await judge_again(replay, [*tools_of(ledger), nobody], [rules()])).differences == ()


async def test_decisions_of_the_loop_or_of_a_limit_are_not_judged_again(ledger: Ledger) -> None:
    """Limits are not rules, and the record does not contain them."""

    @tool(category="dangerous", requires_actor=False)
    async def blast() -> str:
        """Blast."""
        return "done"

    same = [call("look", {"what": "a"}, id=str(n)) for n in range(1)]
    model = Script(*(says(*same) for _ in range(6)), says("x", call("blast", id="a"), call("blast", id="b", position=1)), says("Done."))
    engine = Engine([*tools_of(ledger), blast], limits=Limits(dangerous_per_tick=1))
    async with engine, Agent(model, engine) as agent:
        await agent.run("Go.", scope=Scope(run=RUN))
        replay = Replay.of(engine.journal, RUN)
    judged = await judge_again(replay, [*tools_of(ledger), blast], [rules()])
    assert judged.differences == ()
    assert any("stuck_loop" in one.unjudged for one in judged.calls)
    assert [one.decision.code for one in replay.calls if one.decision and one.decision.code] == ["dangerous_limit"]


async def test_a_rejection_by_a_hook_is_judged_again_only_with_the_hooks(ledger: Ledger) -> None:
    hook = before_call(kind="reject")(lambda call: "Not a." if call.arguments.get("what") == "a" else None)
    async with Engine(tools_of(ledger), hooks=[hook], run="bare") as engine:
        await engine.call(RawCall(name="look", arguments='{"what": "a"}'))
        replay = Replay.of(engine.journal, "bare")
    (without,) = (await judge_again(replay, tools_of(ledger), [])).calls
    assert "give the hooks" in without.unjudged
    (with_it,) = (await judge_again(replay, tools_of(ledger), [], hooks=[hook])).calls
    assert (with_it.change, with_it.unjudged) == ("", "")


async def test_a_call_with_incomplete_recorded_arguments_is_not_judged(ledger: Ledger) -> None:
    async with Engine(tools_of(ledger), run="bare") as engine:
        await engine.call(RawCall(name="look", arguments='{"what": "' + "x" * 70_000 + '"}'))
        replay = Replay.of(engine.journal, "bare")
    (one,) = (await judge_again(replay, tools_of(ledger), [rules('default = "deny"')])).calls
    assert (one.now, one.differs) == (None, False)
    assert "the journal has the first" in one.unjudged


async def test_a_failing_or_slow_policy_is_a_deny(ledger: Ledger) -> None:
    class Broken:
        async def decide(self, call: ValidatedCall) -> Verdict:
            raise RuntimeError("no")

    class Slow:
        async def decide(self, call: ValidatedCall) -> Verdict:
            await asyncio.Event().wait()
            return Allow()

    replay = await record(ledger, [["ok"]])
    policies: list[Policy] = [Broken(), Slow()]
    for policy in policies:
        judged = await judge_again(replay, tools_of(ledger), [policy], limits=Limits(policy_timeout_s=0.01))
        assert shown(judged) == [("0/0", "allow", "deny")]


def test_a_deliberate_turn_is_judged_with_the_tools_it_offered(ledger: Ledger) -> None:
    """A tool that the turn did not offer is blocked in the record and in the new judgement."""

    async def go() -> JudgedRun:
        async with Agent(
            Script(says(call("look", {"what": "a"}), call("pay", {"to": "ann"}, position=1)), says("Done.")), tools=tools_of(ledger)
        ) as agent:
            await agent.run("Look.", scope=Scope(run=RUN), deliberate=True, expose=["look"])
            replay = Replay.of(agent.engine.journal, RUN)
        return await judge_again(replay, tools_of(ledger), [])

    judged = asyncio.run(go())
    assert [one.call.decision.word for one in judged.calls if one.call.decision] == ["allow", "refused"]
    assert judged.differences == ()


WORDS = st.sampled_from(["allow", "ask", "deny"])
OF_PAY = ['"arguments.to" = "bob"', '"arguments.cents" = { above = 10 }']
OF_LOOK = ['"arguments.what" = ["a", "b"]']
OF_ANY = ['effect = "none"', ""]
ABOUT = {"*": [*OF_PAY, *OF_LOOK, *OF_ANY], "look": [*OF_LOOK, *OF_ANY], "pay": [*OF_PAY, *OF_ANY], "nobody": OF_ANY}
RULE = st.tuples(WORDS, st.sampled_from([(name, when) for name, conditions in ABOUT.items() for when in conditions]))


def written(default: str, given: list[tuple[str, tuple[str, str]]]) -> str:
    """Return the text of a rules file."""
    tables = [
        f'[[rule]]\nid = "r{number}"\nverdict = "{verdict}"\ntool = "{name}"\noptional = true\n'
        + (f"when = {{ {when} }}\n" if when else "")
        for number, (verdict, (name, when)) in enumerate(given)
    ]
    return f'default = "{default}"\n' + "\n".join(tables)


POLICY = st.builds(written, WORDS, st.lists(RULE, max_size=4))
PAYS = st.fixed_dictionaries(
    {"to": st.sampled_from(["ann", "bob", 5])}, optional={"cents": st.sampled_from([1, "11", 9000, 2.0, "x"]), "more": st.none()}
)
LOOKS = st.fixed_dictionaries({"what": st.sampled_from(["a", "b", True])})
ODD = st.sampled_from(["", "{", "[]", "null", '{"to": "ann", "to": "bob"}', "{'what': 'a'}", '{"what": "\\ud800"}'])
RAW = st.one_of(
    st.builds(RawCall, name=st.sampled_from(["pay", "Pay"]), arguments=PAYS.map(json.dumps)),
    st.builds(RawCall, name=st.sampled_from(["look", "functions.look"]), arguments=LOOKS.map(json.dumps)),
    st.builds(RawCall, name=st.sampled_from(["look", "payy", " "]), arguments=ODD, closed=st.sampled_from(["sealed", "cut"])),
)


@given(raws=st.lists(RAW, min_size=3, max_size=8), then=POLICY, now=POLICY)
@settings(max_examples=40, deadline=None)
def test_judging_again_decides_like_an_engine_with_the_same_rules(
    raws: list[RawCall], then: str, now: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The replay uses the engine's own stages: verdict, rule and text are the same, whatever rules the record was made with."""
    ledger = Ledger(tmp_path_factory.mktemp("run") / "ledger")

    async def recorded(policy: str) -> Replay:
        async with Engine(tools_of(ledger), policies=[rules(policy)], run="bare") as engine:
            for raw in raws:
                await engine.call(raw)
            return Replay.of(engine.journal, "bare")

    async def both() -> tuple[Replay, JudgedRun]:
        return await recorded(now), await judge_again(await recorded(then), tools_of(ledger), [rules(now)])

    live, judged = asyncio.run(both())
    for real, one in zip(live.calls, judged.calls, strict=True):
        if one.now is None:
            assert real.decision is None
            continue
        assert real.decision is not None
        assert (one.now.word, one.now.rule, one.now.code) == (real.decision.word, real.decision.rule, real.decision.code)
        assert (one.now.said, one.now.arguments) == (real.decision.said, real.decision.arguments)


TOOLS = """
from callgate import tool

@tool
def pay(to: str) -> str:
    '''Pay.'''
    with open("ledger", "a") as ledger:
        ledger.write(to)
    return "paid"
"""
WATCHED = """
import asyncio, sys
sys.dont_write_bytecode = True
import callgate.replay, callgate._journal.sqlite_journal, callgate.policy, apsw, jsonschema_rs, tools
from callgate import Rules
from callgate._journal import open_reader
from callgate.replay import Replay, judge_again

bad = []
STARTS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.system", "os.spawn")
REACHES = ("socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo")
WRITES = ("os.mkdir", "os.remove", "os.rename", "os.link", "os.symlink", "os.truncate", "os.chmod", "shutil.move", "shutil.rmtree")

def watch(name, given):
    if name in (*STARTS, *REACHES, *WRITES) or (name == "open" and isinstance(given[2], int) and given[2] & 0o3):
        bad.append((name, str(given)[:200]))

async def whole():
    replay = Replay.of(open_reader("journal.db"), "bare")
    for policies in ([Rules.parse('default = "deny"')], None, []):
        judged = await judge_again(replay, [tools.pay], policies)
    return replay, judged

sys.addaudithook(watch)
replay, judged = asyncio.run(whole())
print(len(replay.calls), len(judged.calls), bad)
"""


def test_a_replay_starts_no_process_opens_no_connection_and_writes_no_file(tmp_path: Path) -> None:
    """Checked with the interpreter's audit hook, which sees every such operation."""
    (tmp_path / "tools.py").write_text(TOOLS, encoding="utf-8")
    namespace: dict[str, Any] = {}
    exec(compile(TOOLS.replace('"ledger"', repr(str(tmp_path / "ledger"))), "tools.py", "exec"), namespace)
    pay: Tool = namespace["pay"]

    async def recorded() -> None:
        async with Engine([pay], journal=SqliteJournal(tmp_path / "journal.db"), run="bare") as engine:
            for to in ("ann", "bob"):
                await engine.call(RawCall(name="pay", arguments=f'{{"to": "{to}"}}'))

    asyncio.run(recorded())
    assert (tmp_path / "ledger").read_text() == "annbob"
    words = [sys.executable, "-c", textwrap.dedent(WATCHED)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=COMMAND_S, env=environment())
    assert (done.stdout, done.stderr) == ("2 2 []\n", "")
    assert (tmp_path / "ledger").read_text() == "annbob"


def test_the_replay_package_uses_no_engine_runner_or_writable_journal() -> None:
    """The replay only compares what the gate returns: its sources contain no runner, engine or writable journal."""
    import callgate.replay as room

    sources = "".join(path.read_text(encoding="utf-8") for path in Path(str(room.__file__)).parent.glob("*.py"))
    for word in ("ApprovedCall", "RunRequest", "Engine(", "Executor", ".execute(", ".append(Draft", "Runners"):
        assert word not in sources


async def test_policies_written_in_python_are_judged_like_rules(ledger: Ledger) -> None:
    class NoLooks:
        async def decide(self, call: ValidatedCall) -> Verdict:
            return Deny(reason="no", rule="mine") if call.tool.name == "look" else Allow()

    replay = await record(ledger, [["ok"]], journal=MemoryJournal())
    judged = await judge_again(replay, tools_of(ledger), [NoLooks(), Rules.parse("")])
    assert judged.differences[0].now is not None
    assert judged.differences[0].now.rule == "mine"
