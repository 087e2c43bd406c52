"""Runs to replay: tools that write to a ledger outside the engine, rules, and scripted conversations with every kind of call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from callgate import Engine, Rules, Scope, Tool, ToolContext, tool
from callgate.agent import Agent, RunResult
from callgate.messages import ToolCall
from callgate.models.model_events import Finished, FinishReason
from tests.agent.scripted_model import Answer, Script, call, ends, says
from tests.effect_ledger import Ledger

RUN = "the-run"
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
"""

CALLS: dict[str, tuple[str, object]] = {
    "ok": ("look", {"what": "a"}),
    "coerced": ("pay", '{"to": "ann", "cents": "5"}'),
    "denied": ("pay", {"to": "bob", "cents": 5}),
    "asked": ("pay", {"to": "ann", "cents": 5000}),
    "failed": ("broken", {}),
    "killed": ("end_it", {}),
    "unknown": ("nobody", {}),
    "invalid": ("pay", {"cents": []}),
    "malformed": ("look", '{"what": '),
    "text": ("look", {"what": "ü\u2028\x00"}),
    "large": ("fill", {"bytes": 40_000}),
}


def tools_of(ledger: Ledger, control: list[Engine] | None = None) -> list[Tool]:
    """Return tools that record their executions in the ledger."""
    engines = control if control is not None else []

    @tool(effect="none")
    async def look(what: str) -> str:
        """Look."""
        ledger.write(f"look {what!a}")
        return f"saw {what}"

    @tool
    async def pay(to: str, cents: int = 1) -> dict[str, object]:
        """Pay."""
        ledger.write(f"pay {to} {cents}")
        return {"paid": cents, "to": to}

    @tool(effect="none")
    async def broken() -> None:
        """Fail."""
        ledger.write("broken")
        raise ValueError("no such thing")

    @tool(effect="none")
    async def fill(bytes: int) -> str:
        """Fill."""
        ledger.write("fill")
        return "x" * bytes

    @tool
    async def end_it(context: ToolContext) -> str:
        """Kill the conversation of this call."""
        ledger.write("end_it")
        engines[0].control.kill(context.scope.conversation, "killed by the user")
        return "too late"

    return [look, pay, broken, fill, end_it]


def rules(text: str = RULES, where: str = "rules.toml") -> Rules:
    return Rules.parse(text, where=where)


def message(kinds: Sequence[str], number: int, said: str = "") -> Answer:
    """Return a message with these kinds of calls; its call ids are reused by other messages."""
    calls: list[ToolCall] = []
    for place, kind in enumerate(kinds):
        name, arguments = CALLS[kind]
        calls.append(call(name, arguments, id=f"c{place}", position=place))
    return says(*([said] if said else []), *calls) if kinds else says(said or f"Answer {number}.")


def cut_message() -> Answer:
    """Return a message that the provider truncated within a call."""
    reason: FinishReason = "length"
    broken = call("look", '{"what": "a', id="c0")
    end: Finished = ends(broken, reason=reason)
    return [*says(broken)[:1], end]


def script(plan: Sequence[Sequence[str]]) -> Script:
    turns: list[Answer] = [message(kinds, number, f"Turn {number}.") for number, kinds in enumerate(plan)]
    return Script(*turns, *(message((), 90 + number) for number in range(4)))


async def run_of(agent: Agent, *, allow: bool = True, **options: Any) -> RunResult:
    """Run the agent to its end, answering every approval."""
    result = await agent.run("Do it.", conversation="c", scope=Scope(run=RUN, principal="eve"), **options)
    for _ in range(8):
        if result.pending is None:
            break
        for approval_id in {one.approval_id: None for one in result.pending.approvals}:
            await agent.engine.answer(approval_id, allow=allow, by="dora")
        result = await agent.resume(result)
    return result


def plain(value: object) -> Any:
    """Return decoded JSON, or the value itself."""
    return json.loads(value) if isinstance(value, bytes) else value
