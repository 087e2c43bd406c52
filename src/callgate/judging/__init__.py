"""Let a model judge calls that the rules alone do not decide. It can make a verdict stricter, never weaker.

`judge` asks the model within a budget, `judge_prompt` writes the model's input, `judge_answer` reads its output. A judge is given to an
engine among its policies; the gate asks it last (`callgate.protocols.CallJudge`). Knows no engine.
"""

from __future__ import annotations

from callgate.judging.judge import Judge, JudgeLimits
from callgate.protocols import CallJudge, JudgeContext, Judgment

__all__ = ["CallJudge", "Judge", "JudgeContext", "JudgeLimits", "Judgment"]
