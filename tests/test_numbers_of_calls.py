"""The numbers of arguments and results, as docs/reference/failures.md describes them."""

from __future__ import annotations

from typing import Any

import pytest

from callgate import Engine, RawCall, tool
from tests.engine_calls import said


@tool(effect="none")
def same(value: Any) -> dict[str, Any]:
    """Return the value, and numbers that arguments cannot have."""
    return {"value": value, "large": 10**30}


def written_call(number: str) -> RawCall:
    return RawCall(name="same", arguments=f'{{"value": {number}}}')


@pytest.mark.parametrize(
    ("written", "passed_on"),
    [
        ("-9223372036854775808", "-9223372036854775808"),
        ("[18446744073709551615]", "[18446744073709551615]"),
        ("0.12345678901234567890123", "0.12345678901234568"),
        ("18446744073709551617.0", "1.8446744073709552e+19"),
        ("1.10", "1.1"),
        ("1e2", "100.0"),
        ("-0", "0"),
        ("-0.0", "-0.0"),
    ],
)
async def test_a_number_is_passed_on_as_documented(written: str, passed_on: str) -> None:
    async with Engine([same]) as engine:
        result = await said(engine, written_call(written))
    assert repr(result.structured) == f"{{'value': {passed_on}, 'large': {10**30}}}"


@pytest.mark.parametrize("written", ["-9223372036854775809", "[18446744073709551616]", "1e400", "NaN", "-Infinity"])
async def test_a_number_out_of_range_is_refused_as_documented(written: str) -> None:
    async with Engine([same]) as engine:
        assert (await said(engine, written_call(written))).code == "bad_number"
