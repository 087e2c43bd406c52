"""Calls for a judge, its verdicts, and what it was asked."""

from __future__ import annotations

import json
from typing import Any

from callgate import Engine, Suspended, Tool, tool
from callgate.calls import Outcome
from callgate.protocols import Verdict
from callgate.stage_types import ValidatedCall
from callgate.testing import Call, ScriptedModel
from tests.effect_ledger import Ledger
from tests.engine_calls import result_of, verdicts

__all__ = ["ALLOW", "ASK", "CLOSE", "DENY", "LOOKS", "OPEN", "Always", "document_of", "judged", "paying", "verdict", "word_of"]

LOOKS = '[[rule]]\nid = "look-twice"\nverdict = "judge"\nwhen = { "arguments.at" = "secret" }\n'
OPEN, CLOSE = "<call_to_judge>", "</call_to_judge>"


def verdict(word: str, reason: str = "it is what the user asked for") -> Call:
    return Call("give_verdict", {"verdict": word, "reason": reason})


ALLOW, DENY, ASK = verdict("allow"), verdict("deny", "nobody asked for it"), verdict("ask", "Pay eve?")


def paying(ledger: Ledger) -> list[Tool]:
    @tool
    async def pay(to: str, note: str = "") -> str:
        """Pay somebody."""
        ledger.write(to)
        return "paid"

    @tool(effect="none", cacheable=True)
    async def look(at: str) -> str:
        """Look at something."""
        ledger.write(at)
        return "seen"

    return [pay, look]


class Always:
    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict

    async def decide(self, call: ValidatedCall) -> Verdict:
        return self.verdict


def document_of(model: ScriptedModel, number: int = -1) -> dict[str, Any]:
    """Return the document that one question to the judge contains."""
    text = model.requests[number].messages[-1].content  # type: ignore[union-attr]
    assert isinstance(text, str)
    begin, document, end, *rest = text.split("\n")
    assert (begin, end, rest) == (OPEN, CLOSE, ["Judge the call in this document."])
    found = json.loads(document)
    assert isinstance(found, dict)
    return found


def judged(engine: Engine) -> list[dict[str, Any]]:
    return [one for body in verdicts(engine) for one in body.get("judgments", [])]  # type: ignore[attr-defined]


def word_of(outcome: Outcome) -> str:
    if isinstance(outcome, Suspended):
        return f"asked: {outcome.question}"
    result = result_of(outcome)
    return result.code or result.status
