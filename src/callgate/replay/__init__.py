"""Replay: a run made again from its record, judged again by other rules, asked again of another model. Starts no tool.

`Replay.of` reconstructs; what the rest of the room does with it can judge a call and hand out what is on record, and has no way to run
anything: there is no engine and no runner in it.
"""

from __future__ import annotations

from callgate.replay.ask_model import ModelAnswer, ModelComparison, ask_again
from callgate.replay.calls import Decision, ReplayedCall
from callgate.replay.judge_again import ComparedVerdict, JudgedRun, judge_again
from callgate.replay.replay import RecordedPass, Replay, ReplayDifference, RunEnd

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
