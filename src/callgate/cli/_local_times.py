"""Write the times of a record for a person: in the local time zone. A time that this zone does not have is `?`."""

from __future__ import annotations

from datetime import datetime

__all__ = ["local_date_and_time", "local_day_and_minute", "local_time"]

_UNKNOWN = "?"


def local_date_and_time(at_ns: int) -> str:
    at = _local(at_ns)
    return f"{at:%Y-%m-%d %H:%M:%S}" if at is not None else _UNKNOWN


def local_day_and_minute(at_ns: int) -> str:
    at = _local(at_ns)
    return f"{at:%m-%d %H:%M}" if at is not None else _UNKNOWN


def local_time(at_ns: int) -> str:
    """Return the time of day to the millisecond, with the day unless that is today."""
    at = _local(at_ns)
    if at is None:
        return _UNKNOWN
    day = "" if at.date() == datetime.now(at.tzinfo).date() else f"{at:%Y-%m-%d} "
    return f"{day}{at:%H:%M:%S}.{at_ns // 1_000_000 % 1_000:03d}"


def _local(at_ns: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(at_ns // 1_000_000_000).astimezone()
    except (OverflowError, ValueError, OSError):
        return None
