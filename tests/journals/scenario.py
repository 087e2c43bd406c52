"""The calls and runs of the fixture journals, one of every kind, and the later calls that continue them.

The tools, rules and hooks must be the same when a journal is written and when a later version opens it, so this module must not change: an
approval is bound to the definition of its tool. Each effect is a line in a ledger outside the engine.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from callgate import Engine, Limits, RawCall, Retryable, RetryPolicy, Rules, Scope, Suspended, Tool, ToolContext, before_call, tool
from callgate.agent import Agent
from callgate.calls import Outcome
from callgate.protocols import Journal
from tests.agent.scripted_model import Answer, Script, call, says
from tests.effect_ledger import Ledger

__all__ = [
    "AGENT_APPROVED",
    "AGENT_CUT",
    "AGENT_DONE",
    "AGENT_WAITING",
    "CALLS",
    "CUT",
    "NOT_YET",
    "SCOPE",
    "WAITING",
    "agent_approved",
    "agent_cut_off",
    "agent_done",
    "agent_on",
    "agent_waiting",
    "call_cut_off",
    "calls",
    "engine_on",
    "raw",
]

CALLS, WAITING, CUT = "calls", "waiting", "cut"
AGENT_DONE, AGENT_WAITING, AGENT_CUT, AGENT_APPROVED = "agent-done", "agent-waiting", "agent-cut", "agent-approved"
NOT_YET = "not yet"
"""The argument of a `stall` that ends its process between its approval and its start."""
SCOPE = Scope(run=CALLS, conversation="talk", turn=1, principal="team", actor="ann")
LIMITS = Limits(result_inline_bytes=2_000, content_bytes=1_024, approval_s=3e9)  # approvals must stay open for decades
RULES = """
[[rule]]
id = "no-bob"
verdict = "deny"
tool = "pay"
when = { "arguments.to" = "bob" }
reason = "Bob is not paid. Ask the operator."

[[rule]]
id = "ask-much"
verdict = "ask"
tool = "pay"
when = { "arguments.cents" = { above = 1000 } }
reason = "Pay that much?"

[[rule]]
id = "the-rest"
verdict = "allow"
"""


def _nothing() -> None:
    """The default `on_stall`: `stall` does nothing to its process."""


def _kill_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def tools_of(ledger: Ledger, on_stall: Callable[[], None]) -> list[Tool]:
    @tool(effect="none")
    async def look(what: str) -> str:
        """Look."""
        ledger.write(f"look {what}")
        return f"saw {what}"

    @tool(effect="none", cacheable=True, cache_scope="session")
    async def price(of: str) -> int:
        """Say what something costs."""
        ledger.write(f"price {of}")
        return 7

    @tool(effect="none")
    async def fill(size: int) -> str:
        """Give much text."""
        ledger.write("fill")
        return "0123456789" * (size // 10)

    @tool(effect="none")
    async def broken() -> None:
        """Fail."""
        ledger.write("broken")
        raise ValueError("no such thing")

    @tool(effect="idempotent", retry=RetryPolicy(base_s=0.001))
    async def save(path: str, text: str, context: ToolContext) -> str:
        """Write a file; the first attempt at one that is called `busy` fails."""
        ledger.write(f"save {path} {text} {context.attempt}")
        if path.endswith("busy") and context.attempt == 1:
            raise Retryable("the disk is busy")
        return f"saved {path}"

    @tool
    async def pay(to: str, cents: int = 1) -> dict[str, Any]:
        """Pay."""
        ledger.write(f"pay {to} {cents}")
        return {"paid": cents, "to": to}

    @tool(effect="idempotent")
    async def pay_all(people: list[str], context: ToolContext) -> str:
        """Pay several people."""
        given = [(await context.call("pay", {"to": name})).status for name in people]
        return ", ".join(given)

    @tool
    async def stall(why: str) -> str:
        """Act, and may end the process before it answers."""
        ledger.write(f"stall {why}")
        on_stall()
        return "done"

    return [look, price, fill, broken, save, pay, pay_all, stall]


@before_call("save", kind="transform")
def in_folder(call: Any) -> dict[str, Any] | None:
    """Keep files in one folder."""
    path = call.arguments["path"]
    return None if path.startswith("kept/") else {**call.arguments, "path": f"kept/{path}"}


def engine_on(journal: Journal, ledger: Ledger, on_stall: Callable[[], None] = _nothing) -> Engine:
    @before_call("stall")
    async def about_to_stall(call: Any) -> None:
        """Make all recorded events durable and end the process, if the call is meant to end before its start."""
        if call.arguments["why"] == NOT_YET and on_stall is not _nothing:
            await journal.durable(max(event.position for event in journal.read()))
            on_stall()

    rules = Rules.parse(RULES, where="rules.toml")
    hooks = [in_folder, about_to_stall]
    return Engine(tools_of(ledger, on_stall), policies=[rules], hooks=hooks, journal=journal, limits=LIMITS, run="engine")


def agent_on(engine: Engine, *answers: Answer) -> Agent:
    return Agent(Script(*answers), engine)


def raw(name: str, arguments: str, id: str, key: str | None = None) -> RawCall:
    return RawCall(name=name, arguments=arguments, id=id, idempotency_key=key, reasoning=f"because of {id}")


async def calls(journal: Journal, ledger: Ledger) -> None:
    """Make calls that end in every possible way."""
    async with engine_on(journal, ledger) as engine:
        many = [
            raw("look", '{"what": "the sea"}', "c1"),
            raw("pay", '{"to": "ann", "cents": "5"}', "c2"),
            raw("pay", '{"to": "bob", "cents": 5}', "c3"),
            raw("save", '{"text": "hello", "path": "notes"}', "c4"),
            raw("save", '{"path": "busy", "text": "again"}', "c5"),
            raw("nobody", "{}", "c6"),
            raw("pay", '{"cents": []}', "c7"),
            raw("look", '{"what": ', "c8"),
        ]
        await engine.call_many(many, SCOPE)
        for one in (
            raw("price", '{"of": "tea"}', "c9"),
            raw("price", '{"of": "tea"}', "c10"),
            raw("fill", '{"size": 6000}', "c11"),
            raw("broken", "{}", "c12"),
            raw("pay_all", '{"people": ["cid", "dan"]}', "c13"),
            raw("pay", '{"to": "eve"}', "c14", key="order-1"),
            raw("pay", '{"to": "eve"}', "c14", key="order-1"),
        ):
            await engine.call(one, SCOPE)
        much = raw("pay", '{"to": "fay", "cents": 2000}', "c16")
        await engine.answer(_asked(await engine.call(much, SCOPE)), allow=True, by="dora")
        await engine.call(much, SCOPE)
        await engine.call(raw("pay", '{"cents": 3000, "to": "gil"}', "w1"), Scope(run=WAITING, principal="team"))


def _asked(outcome: Outcome) -> str:
    assert isinstance(outcome, Suspended), outcome
    return outcome.approval_id


async def agent_done(journal: Journal, ledger: Ledger) -> None:
    """Run an agent from its task to its end."""
    async with engine_on(journal, ledger) as engine:
        answers = (
            says("I look first.", call("look", {"what": "the shop"}, id="a0"), call("price", {"of": "tea"}, id="a1", position=1)),
            says(call("pay", {"to": "hal", "cents": 9}, id="a2"), call("pay", {"to": "bob"}, id="a3", position=1)),
            says("Hal is paid."),
        )
        async with agent_on(engine, *answers) as agent:
            await agent.run("Pay Hal and Bob.", conversation="shop", scope=Scope(run=AGENT_DONE))


async def agent_waiting(journal: Journal, ledger: Ledger) -> None:
    """Run an agent until it waits for an approval."""
    async with engine_on(journal, ledger) as engine:
        answers = (
            says("I pay.", call("look", {"what": "the bill"}, id="b0"), call("pay", {"to": "ida", "cents": 4000}, id="b1", position=1)),
        )
        async with agent_on(engine, *answers) as agent:
            await agent.run("Pay Ida.", conversation="bill", scope=Scope(run=AGENT_WAITING))


async def call_cut_off(journal: Journal, ledger: Ledger) -> None:
    """Make a call whose process ends before the result. This function does not return."""
    engine = engine_on(journal, ledger, _kill_process)
    await engine.call(raw("stall", '{"why": "one call"}', "k1", key="order-2"), Scope(run=CUT))


async def agent_cut_off(journal: Journal, ledger: Ledger) -> None:
    """Run an agent whose process ends in the middle of its second message. This function does not return."""
    engine = engine_on(journal, ledger, _kill_process)
    answers = (
        says(call("pay", {"to": "jon", "cents": 2}, id="d0")),
        says("On.", call("look", {"what": "the rest"}, id="d1"), call("stall", {"why": "a run"}, id="d2", position=1)),
    )
    await agent_on(engine, *answers).run("Pay Jon, then stall.", conversation="cut", scope=Scope(run=AGENT_CUT))


async def agent_approved(journal: Journal, ledger: Ledger) -> None:
    """Run an agent whose process ends after a call is allowed and before it starts. This function does not return."""
    engine = engine_on(journal, ledger, _kill_process)
    await agent_on(engine, says(call("stall", {"why": NOT_YET}, id="e0"))).run("Stall.", scope=Scope(run=AGENT_APPROVED))
