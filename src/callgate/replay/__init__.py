"""Replay a recorded run: rebuild it from its journal, judge it by other rules, or ask another model. Starts no tool.

`Replay.of` rebuilds a run. The other modules judge its calls again, ask another model, find its tools, and write it to
a file or a test. None of them can run a tool: the package imports no engine and no runner.
"""

from __future__ import annotations

from callgate.replay.ask_model import ModelAnswer, ModelComparison, ask_again
from callgate.replay.judge_again import ComparedVerdict, JudgedRun, judge_again
from callgate.replay.rebuild_run import RecordedPass, Replay, ReplayDifference, RunEnd
from callgate.replay.run_calls import Decision, ReplayedCall

__all__ = [
    "ComparedVerdict",
    "Decision",
    "JudgedRun",
    "ModelAnswer",
    "ModelComparison",
    "RecordedPass",
    "Replay",
    "ReplayDifference",
    "ReplayedCall",
    "RunEnd",
    "ask_again",
    "judge_again",
]
