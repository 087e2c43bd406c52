"""Times as arguments: in the forms that people and models write."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest

from callgate import Engine, tool
from tests.engine_calls import call, said


@dataclasses.dataclass
class Slot:
    start: datetime.time
    note: str
    until: datetime.datetime | None = None


TIMES: list[tuple[str, datetime.time]] = [
    ("10:00", datetime.time(10)),
    ("10:00:30", datetime.time(10, 0, 30)),
    ("10:00Z", datetime.time(10, tzinfo=datetime.UTC)),
    ("10:00+00:00", datetime.time(10, tzinfo=datetime.UTC)),
]


@pytest.mark.parametrize(("text", "time"), TIMES)
async def test_a_time_without_seconds_is_a_time_wherever_a_type_has_one(text: str, time: datetime.time) -> None:
    """Other text is left as it is."""
    got: list[object] = []

    @tool
    def take(at: datetime.time, slots: list[Slot], by: dict[str, tuple[datetime.time, str]], maybe: datetime.time | None = None) -> int:
        """Take."""
        got.extend([at, slots[0].start, slots[0].note, by["a"], maybe, slots[0].until])
        return 1

    slot = {"start": text, "note": "10:00", "until": f"2024-01-31T{text}"}
    async with Engine([take]) as engine:
        result = await said(engine, call("take", at=text, slots=[slot], by={"a": [text, "10:00"]}, maybe=text))
    assert result.status == "ok", result.text
    assert got == [time, time, "10:00", (time, "10:00"), time, datetime.datetime.combine(datetime.date(2024, 1, 31), time)]


@pytest.mark.parametrize(
    ("kind", "text", "form"),
    [
        (datetime.time, "25:00", "time, such as 12:00:00"),
        (datetime.time, "10am", "time, such as 12:00:00"),
        (datetime.timedelta, "1:00:00", "duration, such as PT1H30M"),
        (datetime.timedelta, "1 day", "duration, such as PT1H30M"),
        (datetime.datetime, "2024-01-31 25:00", "date-time, such as 2024-01-31T12:00:00Z"),
    ],
)
async def test_text_that_is_no_time_is_refused_with_the_form_to_use(kind: Any, text: str, form: str) -> None:
    def take(at: Any) -> None:
        """Take."""

    take.__annotations__["at"] = kind
    async with Engine([tool(take)]) as engine:
        result = await said(engine, call("take", at=text))
    assert f'at: expected text in the format {form}, got \\"{text}\\"' in result.text
