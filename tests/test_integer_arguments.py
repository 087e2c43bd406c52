"""Integer arguments: what a model writes for an integer becomes exactly that integer for the tool."""

from __future__ import annotations

import json
from typing import Any

import pytest

from callgate import Engine, RawCall, ToolResult, tool
from tests.engine_calls import result_of, verdicts


@tool(effect="none")
async def add(a: int, b: int | None = None, ratio: float = 0.5, rows: list[int] | None = None) -> Any:
    """Return the arguments as text."""
    return {"a": repr(a), "b": repr(b), "ratio": repr(ratio), "rows": sorted({type(row).__name__ for row in rows or ()})}


@tool(
    effect="none",
    parameters={
        "type": "object",
        "properties": {
            "points": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
            "counts": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
        },
    },
)
async def plot(points: Any = (), counts: Any = ()) -> Any:
    """Return the types of the numbers."""
    return {
        "points": sorted({type(one).__name__ for point in points for one in point}),
        "counts": sorted({type(one).__name__ for one in counts}),
    }


async def told(arguments: str | dict[str, Any], name: str = "add", one: Any = None) -> ToolResult:
    async with Engine([one or {"add": add, "plot": plot}[name]]) as engine:
        return result_of(await engine.call(RawCall(name=name, arguments=arguments)))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("5.0", 5),
        ("-0.0", 0),
        ("1e3", 1000),
        ('"1e3"', 1000),
        ('"1.5E+3"', 1500),
        ('"5.00"', 5),
        ("2251799813685248.0", 2**51),
        ("9007199254740991.0", 2**53 - 1),
        ("9007199254740993.0", 2**53 + 1),
        ("1e18", 10**18),
        ('"1e18"', 10**18),
        ('"9007199254740993.0"', 2**53 + 1),
        ("-9223372036854775808.0", -(2**63)),
    ],
)
async def test_integral_floats_and_numeric_text_become_the_exact_integer(written: str, meant: int) -> None:
    """Integral floats and numbers written as text are converted to integers without loss, also where null is allowed."""
    result = await told(f'{{"a": {written}, "b": {written}}}')
    assert result.status == "ok", result.text
    assert (result.structured["a"], result.structured["b"]) == (repr(meant), repr(meant))  # type: ignore[index]
    assert [note.path for note in result.metadata.notes] == ["/a", "/b"]


@pytest.mark.parametrize("written", ["1e22", "18446744073709551616.0", '"1e22"', '"1e999"', '"1e-3"', "9007199254740993.5"])
async def test_a_number_that_is_no_64_bit_integer_is_refused(written: str) -> None:
    """Rounding would change the value, and a float would change the type."""
    result = await told(f'{{"a": {written}}}')
    assert (result.status, result.code) == ("error", "schema_invalid")
    assert "a: expected an integer" in result.text


async def test_an_integral_float_from_the_host_becomes_an_integer() -> None:
    """A mapping has no source text, so the float itself is converted."""
    result = await told({"a": 1e18, "ratio": 4.0})
    assert (result.structured["a"], result.structured["ratio"]) == (repr(10**18), "4.0")  # type: ignore[index]
    assert (await told({"a": 1e22})).code == "schema_invalid"


async def test_a_float_stays_a_float_where_the_schema_wants_a_number() -> None:
    """Only values whose schema type is integer are converted."""
    result = await told('{"a": 1, "ratio": 1e22}')
    assert result.structured["ratio"] == "1e+22"  # type: ignore[index]
    assert (await told('{"a": 1, "ratio": "1e22"}')).structured["ratio"] == "1e+22"  # type: ignore[index]


@pytest.mark.parametrize("size", [3, 1_001, 20_000])
async def test_a_long_list_of_integral_floats_becomes_integers(size: int) -> None:
    """Lists of any length are converted, also where the schema allows null instead of the list."""
    result = await told(json.dumps({"a": 1, "rows": [float(n) for n in range(size)]}))
    assert result.structured["rows"] == ["int"]  # type: ignore[index]


@pytest.mark.parametrize("size", [3, 2_000])
async def test_long_lists_of_floats_and_of_integers_are_converted_separately(size: int) -> None:
    """The conversion of one list does not depend on the other lists of the call."""
    arguments = {"points": [[1.0, 2.0]] * size, "counts": [3.0, None] * size}
    result = await told(json.dumps(arguments), "plot")
    assert result.structured == {"points": ["float"], "counts": ["NoneType", "int"]}


async def test_the_matching_alternative_of_a_schema_decides_the_number_type() -> None:
    """`width` is an integer in a box and a number in a line."""

    def shape(kind: str, width: str) -> dict[str, Any]:
        return {"type": "object", "properties": {"kind": {"const": kind}, "width": {"type": width}}, "required": ["kind", "width"]}

    shapes = {"type": "array", "items": {"anyOf": [shape("box", "integer"), shape("line", "number")]}}

    @tool(effect="none", parameters={"type": "object", "properties": {"shapes": shapes}})
    async def draw(shapes: Any) -> Any:
        """Draw."""
        return [repr(one["width"]) for one in shapes]

    result = await told('{"shapes": [{"kind": "box", "width": 2.0}, {"kind": "line", "width": 2.0}]}', "draw", draw)
    assert result.structured == ["2", "2.0"]


async def test_the_recorded_verdict_has_the_converted_integer() -> None:
    """The policy, the journal and the tool get the same value."""
    async with Engine([add]) as engine:
        await engine.call(RawCall(name="add", arguments='{"a": 9007199254740993.0}'))
        [verdict] = verdicts(engine)
    assert verdict["arguments"]["a"] == 2**53 + 1  # type: ignore[index]


async def test_an_integral_float_is_unchanged_without_coercion() -> None:
    """`coerce=False` turns the conversion off."""
    async with Engine([add], coerce=False) as engine:
        result = result_of(await engine.call(RawCall(name="add", arguments='{"a": 1e22}')))
    assert result.structured["a"] == "1e+22"  # type: ignore[index]
