"""Statistics of many calls, compared with values that are computed by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate._call_statistics import percentile, plain, sealed_at, statistics
from callgate._call_summary import CallSummary
from callgate.events import Event


def call(uid: str, *, tool: str = "look", began: float = 0.0, took: float | None = 0.1, **more: object) -> CallSummary:
    ended = None if took is None else began + took
    return CallSummary(uid=uid, run="r", position=1, at_ns=1, began=began, tool=tool, starts=[began], ended=ended, status="ok", **more)  # type: ignore[arg-type]


def test_durations_count_only_calls_that_ran() -> None:
    calls = [call(f"{n}", took=n / 1000) for n in range(1, 101)]
    calls += [CallSummary(uid="x", run="r", position=1, at_ns=1, began=0.0, tool="look", status="error", failure_class="denied", ended=9.0)]
    found = statistics(calls, {})
    (tool,) = found.tools
    assert (round(tool.p50_ms), round(tool.p95_ms), round(tool.longest_ms)) == (50, 95, 100)
    assert (tool.calls, tool.statuses) == (101, {"ok": 100, "error": 1})
    assert found.failures == {"denied": 1}


def test_a_cached_result_saves_the_median_duration_of_its_tool_or_nothing() -> None:
    runs = [call("1", took=0.1), call("2", took=0.3), call("3", took=0.2)]
    cached = CallSummary(uid="4", run="r", position=1, at_ns=1, began=0.0, tool="look", status="ok", cached="tick", ended=0.01)
    unknown = CallSummary(uid="5", run="r", position=1, at_ns=1, began=0.0, tool="never ran", status="ok", cached="tick", ended=0.01)
    found = statistics([*runs, cached, unknown], {})
    assert (found.cached, round(found.cache_saved_ms)) == (2, 190)


def test_an_early_start_saves_the_time_it_ran_before_the_message_was_complete() -> None:
    calls = [call("early", began=1.0, took=0.5), call("long", began=1.0, took=5.0), call("late", began=3.0), call("alone", began=1.0)]
    found = statistics(calls, {"early": 2.0, "long": 2.0, "late": 2.0})
    assert (found.early, round(found.early_saved_ms)) == (2, 1500)


def test_statistics_of_no_calls_are_zero() -> None:
    found = statistics([], {})
    assert (found.calls, found.tools, found.cache_saved_ms) == (0, (), 0)
    assert plain(found)["tools"] == []


@pytest.mark.parametrize("body", [b"", b"[]", b'{"details":5}', b'{"details":{"calls":[1,null]}}', b'{"details":{"calls":"x"}}'])
def test_a_malformed_body_of_a_sealed_event_is_ignored(body: bytes) -> None:
    odd = Event(position=1, run="r", seq=1, kind="emission.sealed", call="", attempt=0, parents=(), at_ns=1, mono=1.0, body=body)
    assert sealed_at([odd]) == {}


@given(st.lists(st.floats(0, 1e6), min_size=1).map(sorted), st.sampled_from([0.5, 0.95]))
def test_a_percentile_is_a_value_that_covers_the_requested_share(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values)
