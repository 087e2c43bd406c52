"""Tests of the limits on a tool's live output and on its stored output."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from callgate._runners.exception_results import clean, describe
from callgate._runners.output_limits import LiveText, OutputTail

pieces = st.lists(st.tuples(st.text(max_size=30), st.sampled_from(["stdout", "stderr"]), st.floats(0, 0.6)), max_size=40)


@given(pieces)
def test_output_below_the_rate_limit_is_shown_at_once_and_in_order(given_pieces: list[tuple[str, str, float]]) -> None:
    live, now = LiveText(), 0.0
    for text, stream, wait in given_pieces:
        now += wait
        assert live.offer(text, stream, now) == [(text, stream)]
    assert live.rest() == []


@given(pieces, st.integers(1, 60))
def test_output_above_the_rate_limit_stays_complete_and_ordered_within_a_stream(
    given_pieces: list[tuple[str, str, float]], per_second: int
) -> None:
    live, now = LiveText(per_second), 0.0
    shown: list[tuple[str, str]] = []
    for text, stream, wait in given_pieces:
        now += wait
        shown += live.offer(text, stream, now)
    shown += live.rest()
    for stream in ("stdout", "stderr"):
        written = "".join(text for text, name, _ in given_pieces if name == stream)
        assert "".join(text for text, name in shown if name == stream) == written


@given(st.lists(st.text(max_size=50), max_size=50), st.integers(1, 40))
def test_the_output_tail_keeps_the_end_and_counts_dropped_characters(texts: list[str], limit: int) -> None:
    tail = OutputTail(limit)
    for text in texts:
        tail.add(text)
    kept, written = tail.text(), "".join(texts)
    assert written.endswith(kept)
    assert len(kept.encode()) <= limit
    assert tail.dropped == len(written) - len(kept)


@given(st.text(st.characters(codec=None), max_size=200), st.integers(1, 2_000))
def test_clean_returns_encodable_text_of_bounded_length(text: str, times: int) -> None:
    found = clean(text * times)
    found.encode()
    assert len(found) <= 6 * 65_536 + 60


class UndescribableError(BaseException):
    def __str__(self) -> str:
        raise RuntimeError


@given(st.sampled_from([UndescribableError, ValueError, SystemExit, KeyError]), st.text(st.characters(codec=None), max_size=50))
def test_every_exception_can_be_described(kind: type[BaseException], text: str) -> None:
    for part in describe(kind(text)):
        assert part.encode()
