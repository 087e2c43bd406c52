"""A model as judge of calls: asked last, about what rules alone do not settle, and never for the better.

`judge` asks and keeps to a budget, `judge_prompt` writes what the model reads, `judge_answer` reads what it says. A judge is given to an
engine
among its policies; the gate asks it (`callgate.protocols.CallJudge`). Knows no engine.
"""

from __future__ import annotations

from callgate.judging.judge import Judge, JudgeLimits
from callgate.protocols import CallJudge, JudgeContext, Judgment

__all__ = ["CallJudge", "Judge", "JudgeContext", "JudgeLimits", "Judgment"]
