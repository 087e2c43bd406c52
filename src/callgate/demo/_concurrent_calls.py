"""Demonstration 5: calls of one message run in parallel only if their declared effects and resources allow it."""

from __future__ import annotations

from itertools import combinations

from callgate._call_summary import CallSummary
from callgate.demo import tools
from callgate.demo._checks import Finding, finding
from callgate.demo._demo_run import DemoRun, calls_in, overlap, raw

__all__ = ["side_by_side"]


async def side_by_side(stage: DemoRun) -> list[Finding]:
    """Send three messages to the engine and check which of their calls ran in parallel.

    The first has reads, the second writes to declared accounts. The third has a call that declares no resources.
    """
    messages = [
        [raw("look_up", account=name) for name in "ABCD"],
        [raw("charge", account="A", cents=1), raw("charge", account="B", cents=2), raw("charge", account="A", cents=3)],
        [raw("look_up", account="A"), raw("send_letter", to="Ada"), raw("look_up", account="B"), raw("charge", account="C", cents=4)],
    ]
    async with stage.engine([tools.look_up, tools.charge, tools.send_letter]) as engine:
        for iteration, message in enumerate(messages):
            await engine.call_many(message, stage.scope(iteration=iteration))
    return _findings(stage)


def _findings(stage: DemoRun) -> list[Finding]:
    calls = calls_in(stage.journal)
    reads, charges, mixed = calls[:4], calls[4:7], calls[7:]
    wall, total = _wall(reads), sum(call.duration_ms for call in reads) / 1000
    together = all(overlap(one, other) for one, other in combinations(reads, 2))
    first_a, only_b, second_a = charges
    before, letter, *after = mixed
    charged = [entry.what for entry in stage.ledger.entries("effect") if entry.tool == "charge"]
    return [
        finding("four reads took the time of one", together, f"{wall:.2f} s for {total:.2f} s of waiting"),
        finding("writes of two accounts ran side by side", overlap(first_a, only_b), _when(first_a, only_b)),
        finding("two writes of one account did not", not overlap(first_a, second_a), _when(first_a, second_a)),
        finding("and kept their order", charged.index("A 1") < charged.index("A 3"), charged),
        finding("a call that declares nothing ran alone", not any(overlap(letter, other) for other in (before, *after)), _when(letter)),
        finding("nothing overtook it", before.starts < letter.starts < min(call.starts for call in after), "as the model ordered"),
        finding("every effect happened exactly once", len(stage.ledger.entries("effect")) == 5, f"{len(charged)} charges, 1 letter"),
    ]


def _wall(calls: list[CallSummary]) -> float:
    return max(call.ended or 0.0 for call in calls) - min(call.began for call in calls)


def _when(*calls: CallSummary) -> list[str]:
    """Return the start and end of each call, in milliseconds after the first call was received."""
    first = min(call.began for call in calls)
    return [f"{(call.starts[0] - first) * 1000:.0f} to {((call.ended or first) - first) * 1000:.0f} ms" for call in calls if call.starts]
