"""`Agent(output=T)` for every kind of type: described to the model, parsed strictly, or refused with one sentence."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any, Union

import msgspec
import pytest
from typing_extensions import TypedDict

from callgate.agent import Agent
from callgate.errors import UsageError
from tests.agent.scripted_model import Script, says

pydantic = pytest.importorskip("pydantic", reason="the types of pydantic need pydantic")


class Place(pydantic.BaseModel):  # type: ignore[misc,name-defined]
    name: str
    floor: int = 0


@dataclasses.dataclass
class Visit:
    place: Place
    guests: list[str]


@dataclasses.dataclass
class Tour:
    visits: list[Visit]
    before: Tour | None = None


class Move(TypedDict):
    to: Place


class Point(msgspec.Struct):
    x: int


class Line(msgspec.Struct):
    points: tuple[Point, ...]


class Mixed(msgspec.Struct):
    place: Place


HALL = {"name": "Hall", "floor": 2}
VISIT = Visit(Place(**HALL), ["Ann"])
OF_PYDANTIC: list[tuple[Any, Any, Any]] = [
    (Place, HALL, Place(**HALL)),
    (list[Place], [HALL], [Place(**HALL)]),
    (dict[str, Place], {"a": HALL}, {"a": Place(**HALL)}),
    (Place | None, None, None),
    (Union[Place, int], HALL, Place(**HALL)),  # noqa: UP007
    (Visit, {"place": HALL, "guests": ["Ann"]}, VISIT),
    (Tour, {"visits": [{"place": HALL, "guests": ["Ann"]}]}, Tour([VISIT])),
    (list[Move], [{"to": HALL}], [{"to": Place(**HALL)}]),
]
OF_MSGSPEC: list[tuple[Any, Any, Any]] = [
    (list[Point], [{"x": 1}], [Point(1)]),
    (dict[str, Line], {"a": {"points": [{"x": 1}]}}, {"a": Line((Point(1),))}),
    (Point | None, {"x": 1}, Point(1)),
    (list[pathlib.PurePosixPath], ["/a"], [pathlib.PurePosixPath("/a")]),
]


@pytest.mark.parametrize(("kind", "written", "value"), OF_PYDANTIC + OF_MSGSPEC, ids=range(12))
async def test_an_answer_of_any_supported_type_is_described_by_a_schema_and_parsed(kind: Any, written: Any, value: Any) -> None:
    """Pydantic parses every type that contains a pydantic type at any depth."""
    model = Script(says('{"no": "way"}'), says(json.dumps(written)))
    async with Agent(model, output=kind) as agent:
        result = await agent.run("Where?")
    assert (result.status, result.output, type(result.output)) == ("completed", value, type(value))
    assert model.requests[0].output_schema
    assert "not what was asked for" in str(model.seen[1][-1])


async def test_pydantic_types_nested_in_an_output_type_are_validated_strictly() -> None:
    async with Agent(Script(*[says('[{"name": "Hall", "floor": "2"}]')] * 3), output=list[Place]) as agent:
        result = await agent.run("Where?")
    assert result.status == "failed"
    assert result.reason.endswith(": 0.floor: Input should be a valid integer.")


@pytest.mark.parametrize("kind", [Mixed, list[Mixed], list[Place | Point], list[object], print, "Place", 3], ids=range(7))
def test_an_unsupported_output_type_is_refused_with_the_supported_types(kind: Any) -> None:
    with pytest.raises(UsageError, match="Take standard types, dataclasses and TypedDicts") as caught:
        Agent(Script(), output=kind)
    said = str(caught.value)
    assert caught.value.code == "schema_refused"
    assert ("\n" in said, len(said) < 400) == (False, True)
