"""Write the times of a record for a person: in the local time zone. A time that this zone does not have is `?`."""

from __future__ import annotations

from datetime import datetime

__all__ = ["local_date_and_time", "local_day_and_minute", "local_time_of_day"]


def local_date_and_time(at_ns: int) -> str:
    return _write(at_ns, "%Y-%m-%d %H:%M:%S")


def local_day_and_minute(at_ns: int) -> str:
    return _write(at_ns, "%m-%d %H:%M")


def local_time_of_day(at_ns: int) -> str:
    """Return the time of day to the millisecond."""
    return _write(at_ns, f"%H:%M:%S.{at_ns // 1_000_000 % 1_000:03d}")


def _write(at_ns: int, form: str) -> str:
    try:
        return datetime.fromtimestamp(at_ns // 1_000_000_000).astimezone().strftime(form)
    except (OverflowError, ValueError, OSError):
        return "?"
