"""A function's signature and docstring become a tool's schema, and JSON values are converted to the annotated types."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import functools
import pathlib
import subprocess
import sys
import uuid
from collections.abc import Callable
from typing import Annotated, Any, Literal, Optional, TypedDict

import msgspec
import pytest
from pydantic import BaseModel, Field

from callgate._schema import FunctionSchema, compile_schema, function_schema, text_formats
from callgate.errors import UsageError
from callgate.tools import ToolContext, ToolRegistry, tool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Options(TypedDict, total=False):
    deep: bool


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.0


class Box(msgspec.Struct):
    corner: Point
    tags: list[str] = []


class Order(BaseModel):
    item: str
    count: int = Field(ge=1, description="How many.")


def read(function: Callable[..., Any]) -> FunctionSchema:
    made = function_schema(function, "shop.py:1", context_type=ToolContext)
    compile_schema(made.parameters, "shop.py:1")
    if made.output is not None:
        compile_schema(made.output, "shop.py:1", any_root=True)
    return made


def property_of(made: FunctionSchema, name: str) -> dict[str, Any]:
    found: dict[str, Any] = made.parameters["properties"][name]
    return found


def test_a_signature_gives_types_defaults_and_required_parameters() -> None:
    """Requirement C64: one signature gives one schema."""

    def find(text: str, limit: int = 5, *, exact: bool = False, tags: list[str] | None = None, mode: Literal["a", "b"] = "a") -> str:
        return text

    made = read(find)
    assert made.parameters == {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "limit": {"type": "integer", "default": 5},
            "exact": {"type": "boolean", "default": False},
            "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": None},
            "mode": {"enum": ["a", "b"], "default": "a"},
        },
        "required": ["text"],
    }
    assert made.plain
    assert made.context is None


def test_a_parameter_without_annotation_accepts_any_value() -> None:
    """The type is not guessed from the default."""

    def find(what, limit=5):  # type: ignore[no-untyped-def]
        return what, limit

    made = read(find)
    assert property_of(made, "what") == {}
    assert property_of(made, "limit") == {"default": 5}


def test_a_default_of_none_allows_none() -> None:
    """The model may send the default that the signature has."""

    def find(text: str = None) -> None:  # type: ignore[assignment]  # noqa: RUF013 - authors write it like this
        del text

    assert compile_schema(read(find).parameters, "t").is_valid({"text": None})


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (Colour, "red", Colour.RED),
        (Point, {"x": 1}, Point(1, 0.0)),
        (Box, {"corner": {"x": 1, "y": 2}, "tags": ["t"]}, Box(Point(1, 2.0), ["t"])),
        (Options, {"deep": True}, {"deep": True}),
        (set[int], [1, 2], {1, 2}),
        (tuple[int, str], [1, "a"], (1, "a")),
        (datetime.datetime, "2024-01-02T03:04:05", datetime.datetime(2024, 1, 2, 3, 4, 5)),
        (uuid.UUID, "00000000-0000-0000-0000-000000000001", uuid.UUID(int=1)),
        (decimal.Decimal, "1.50", decimal.Decimal("1.50")),
        (pathlib.Path, "/a/b", pathlib.Path("/a/b")),
        (bytes, "YWI=", b"ab"),
        (Point | None, None, None),
        (list[Point], [{"x": 1}], [Point(1)]),
        (dict[str, Colour], {"a": "blue"}, {"a": Colour.BLUE}),
        (dict[int, int], {"1": 2}, {1: 2}),
        (dict[datetime.date, list[int]], {"2024-01-02": [1]}, {datetime.date(2024, 1, 2): [1]}),
        (Annotated[int, msgspec.Meta(ge=1, le=9, description="D")], 5, 5),
        (Order, {"item": "a", "count": 2}, Order(item="a", count=2)),
        (list[Order], [{"item": "a", "count": 1}], [Order(item="a", count=1)]),
        (Annotated[int, Field(ge=3)], 5, 5),
        (Any, {"a": [1]}, {"a": [1]}),
        (object, 5, 5),
        (int | str, "5", "5"),
        (float, 5, 5),
    ],
    ids=str,
)
def test_a_valid_json_value_is_converted_to_the_annotated_type(kind: Any, given: Any, expected: object) -> None:
    """The conversion is strict: text stays text. The schema has already validated the value."""

    def take(value: Any) -> None:
        del value

    take.__annotations__["value"] = kind
    made = read(take)
    assert compile_schema(made.parameters, "t").is_valid({"value": given})
    assert made.problems({"value": given}) == []
    assert made.convert({"value": given}) == {"value": expected}


@pytest.mark.parametrize("kind", [Point, Order, list[Order], set[int]], ids=str)
def test_typed_values_accept_integral_floats_as_integers(kind: Any) -> None:
    """JSON Schema accepts 1.0 as an integer, so the conversion must not refuse it."""

    def take(value: Any) -> None:
        del value

    take.__annotations__["value"] = kind
    order: dict[str, Any] = {"item": "a", "count": 2.0}
    given = {Point: {"x": 1.0}, Order: order}.get(kind, [order] if kind == list[Order] else [1.0])
    assert read(take).problems({"value": given}) == []


def test_a_value_that_cannot_be_converted_to_its_type_is_refused_with_a_reason() -> None:
    """Text that is not a date is refused before the tool starts."""

    def plan(day: datetime.date) -> None:
        del day

    made = read(plan)
    assert compile_schema(made.parameters, "t").is_valid({"day": "soon"})
    assert not compile_schema(made.parameters, "t", formats=text_formats()).is_valid({"day": "soon"})
    assert [problem.path for problem in made.problems({"day": "soon"})] == ["/day"]


def test_constraints_of_annotations_appear_in_the_schema() -> None:
    """Both the constraints of msgspec and those of pydantic are used."""

    def take(a: Annotated[int, msgspec.Meta(ge=1)], b: Annotated[int, Field(le=9, description="B.")], c: Order) -> None:
        del a, b, c

    made = read(take)
    assert property_of(made, "a")["minimum"] == 1
    assert property_of(made, "b") == {"type": "integer", "maximum": 9, "description": "B."}
    checked = compile_schema(made.parameters, "t")
    assert not checked.is_valid({"a": 1, "b": 9, "c": {"item": "x", "count": 0}})
    assert checked.is_valid({"a": 1, "b": 9, "c": {"item": "x", "count": 1}})


def test_an_integer_field_of_pydantic_does_not_accept_true() -> None:
    """Pydantic itself accepts true as 1."""

    def take(order: Order) -> None:
        del order

    assert not compile_schema(read(take).parameters, "t").is_valid({"order": {"item": "a", "count": True}})


@pytest.mark.parametrize(
    "text",
    [
        "Find things.\n\nLooks everywhere.\n\nArgs:\n    text: What to\n        look for.\n    limit: How many.\n\nReturns:\n    A list.",
        "Find things.\n\nLooks everywhere.\n\nParameters\n----------\ntext : str\n    What to look for.\nlimit : int\n    How many.\n",
        "Find things.\n\nLooks everywhere.\n\n:param text: What to look for.\n:param limit: How many.\n:returns: A list.",
    ],
    ids=["google", "numpy", "sphinx"],
)
def test_the_docstring_describes_tool_and_parameters(text: str) -> None:
    """The summary and the long description belong to the tool, and each parameter's line belongs to the parameter."""

    def find(text: str, limit: int = 1) -> None:
        del text, limit

    find.__doc__ = text
    made = read(find)
    assert made.description == "Find things.\n\nLooks everywhere."
    assert property_of(made, "text")["description"] == "What to look for."
    assert property_of(made, "limit")["description"] == "How many."


def test_the_context_parameter_is_not_in_the_schema() -> None:
    """The parameter is found by its type, whatever its name is, and also where it may be None."""

    def one(text: str, ctx: ToolContext) -> None:
        del text, ctx

    def two(text: str, *, where: Optional[ToolContext] = None) -> None:  # noqa: UP045 - tests the old spelling
        del text, where

    assert (read(one).context, list(read(one).parameters["properties"])) == ("ctx", ["text"])
    assert (read(two).context, list(read(two).parameters["properties"])) == ("where", ["text"])


def test_string_annotations_resolve_types_of_the_enclosing_function() -> None:
    """`from __future__ import annotations` works for functions that are defined inside functions."""

    class Local(msgspec.Struct):
        n: int

    def take(value: Local, more: list[Local] | None = None) -> None:
        del value, more

    assert read(take).convert({"value": {"n": 1}}) == {"value": Local(1)}


def test_signatures_of_wrapped_partial_and_bound_functions_are_read() -> None:
    """Tools are often decorated functions or methods of objects."""

    def plain(a: int, b: int = 2) -> None:
        del a, b

    @functools.wraps(plain)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        plain(*args, **kwargs)

    class Holder:
        def method(self, a: int) -> None:
            del a

        def __call__(self, a: int) -> None:
            del a

    assert list(read(wrapped).parameters["properties"]) == ["a", "b"]
    assert list(read(functools.partial(plain, b=3)).parameters["properties"]) == ["a", "b"]
    assert list(read(Holder().method).parameters["properties"]) == ["a"]
    assert list(read(Holder()).parameters["properties"]) == ["a"]


def with_args(*args: int) -> None: ...
def with_kwargs(**kwargs: int) -> None: ...
def by_position(a: int, /) -> None: ...
def with_callable(f: Callable[[], int]) -> None: ...
def with_unknown(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821 - undefined on purpose
def with_two(a: ToolContext, b: ToolContext) -> None: ...


@pytest.mark.parametrize("function", [with_args, with_kwargs, by_position, with_callable, with_unknown, with_two])
def test_a_signature_that_a_json_object_cannot_fill_is_refused(function: Callable[..., Any]) -> None:
    """Such a signature is refused at registration, and the error names the place."""
    with pytest.raises(UsageError, match=r"shop\.py:1") as caught:
        function_schema(function, "shop.py:1", context_type=ToolContext)
    assert caught.value.code == "schema_refused"


def test_an_explicit_schema_replaces_the_signature() -> None:
    """The function may then have parameters that a signature cannot describe."""
    given = {"type": "object", "properties": {"f": {}, "n": {"type": "integer"}, "day": {"type": "string"}}}

    def take(f: Callable[[], int], day: datetime.date, **more: Any) -> None:
        del f, day, more

    made = function_schema(take, "shop.py:1", context_type=ToolContext, parameters=given)
    assert made.parameters == given
    assert made.convert({"f": 1, "n": 2, "day": "2024-01-02"}) == {"f": 1, "n": 2, "day": datetime.date(2024, 1, 2)}


def returning(kind: Any) -> FunctionSchema:
    def give() -> Any: ...

    give.__annotations__["return"] = kind
    return read(give)


@pytest.mark.parametrize("kind", [None, Any, object, Callable, type], ids=str)
def test_a_return_annotation_that_allows_anything_checks_no_result(kind: Any) -> None:
    """What is not promised is not checked."""
    assert returning(kind).result is None


@pytest.mark.parametrize("kind", [None, Any, str, int, bool, float | None, Literal["a"], object, Callable, type], ids=str)
def test_a_return_annotation_without_structure_gives_no_output_schema(kind: Any) -> None:
    """Only a structure is part of what the tool declares, and so of its identity."""
    assert returning(kind).output is None


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (dict, {"any": [1, None]}),
        (dict[str, int], {"a": 1}),
        (list[str], ["a"]),
        (Options, {"deep": True, "more": 1}),
        (Point, {"x": 1, "y": 0.0}),
        (Box, {"corner": {"x": 1, "y": 0}, "tags": []}),
        (Order, {"item": "a", "count": 1}),
        (dict | None, None),
        (int, 5),
        (bool, False),
        (float | None, None),
        (float, 2),
        (Literal["a"], "a"),
    ],
    ids=str,
)
def test_a_return_annotation_becomes_the_schema_of_results(kind: Any, value: object) -> None:
    """The schema accepts every value that the annotation allows."""
    output = returning(kind).result
    assert output is not None
    assert compile_schema(output, "t", any_root=True).is_valid(value)


def test_converting_arguments_returns_a_new_dict() -> None:
    """The tool may add and remove arguments."""

    def take(a: int) -> None:
        del a

    arguments = {"a": 1}
    values = read(take).convert(arguments)
    assert values == arguments
    assert values is not arguments


def test_typed_arguments_are_validated_before_the_function_runs() -> None:
    """The tool has a validator of its own only if a conversion can fail."""

    @tool(description="Plans.")
    def plan(day: datetime.date) -> None:
        del day

    @tool(description="Adds.")
    def add(a: int) -> int:
        return a

    tools = ToolRegistry([plan, add])
    bound = [tools.get("plan"), tools.get("add")]
    assert [one is not None and one.own_validator for one in bound] == [True, False]
    assert not plan.validate_parameters({"day": "soon"}).valid


def test_pydantic_is_imported_only_by_annotations_that_use_it() -> None:
    """Pydantic is an extra. If it is missing, the error names the command that installs it."""
    code = (
        "import sys; sys.modules['pydantic'] = None\n"
        "from typing import Annotated\nimport types\n"
        "from callgate._schema import function_schema\n"
        "def plain(a: int, b: list[str]) -> dict: ...\n"
        "function_schema(plain, 'x.py:1', context_type=type('C', (), {}))\n"
        "class Ge: ...\n"
        "Ge.__module__ = 'annotated_types'\n"
        "def typed(a: Annotated[int, Ge()]) -> None: ...\n"
        "try: function_schema(typed, 'x.py:1', context_type=type('C', (), {}))\n"
        "except Exception as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "pip install 'callgate[pydantic]'" in said
