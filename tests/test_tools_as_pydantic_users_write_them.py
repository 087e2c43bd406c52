"""Tools as developers write them who know pydantic: methods, `Field` defaults, text in `Annotated`, dates, results."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import pathlib
import uuid
from typing import Annotated, Any, Literal

import pytest
from pydantic import AliasChoices, AliasPath, BaseModel, Field, field_validator

from callgate import Engine, Tool, ToolContext, UsageError, tool
from tests.engine_calls import call, said


class Shop:
    def __init__(self, discount: int) -> None:
        self.discount = discount

    @tool(effect="none")
    async def price(self, article: str, cents: int = 100) -> str:
        """Say a price."""
        return f"{article}: {cents - self.discount}"

    @tool
    async def who(self, context: ToolContext) -> str:
        """Say which call this is."""
        return f"{context.uid} {self.discount}"

    @staticmethod
    @tool
    async def opening(day: str) -> str:
        """Say when it is open."""
        return f"never on {day}"

    @tool(runner="process")
    def pack(self, article: str) -> str:
        """Pack."""
        return article


class Branch(Shop):
    pass


class Prices:
    cents = 5

    @classmethod
    @tool(effect="none")
    def below(cls, count: int) -> int:
        """Say a price."""
        return count * cls.cents

    @tool(effect="none")
    @classmethod
    def above(cls, count: int) -> int:
        """Say a price."""
        return count * cls.cents


class Dear(Prices):
    cents = 50


class Names:
    """A class as a name space: its functions have no `self`."""

    @tool
    async def add(a: int, b: int) -> int:  # noqa: N805
        """Add."""
        return a + b


@pytest.mark.parametrize("shop", [Shop, Branch])
async def test_a_method_of_an_object_is_a_tool_without_self_in_its_schema(shop: type[Shop]) -> None:
    one = shop(20)
    async with Engine([one.price, one.who, one.opening]) as engine:
        assert (await said(engine, call("price", article="lamp"))).text == "lamp: 80"
        assert (await said(engine, call("who"))).text.endswith(" 20")
        assert (await said(engine, call("opening", day="Sunday"))).text == "never on Sunday"
        price = engine.tools.get("price")
        assert price is not None
        assert (set(price.schema.properties), price.effect) == ({"article", "cents"}, "none")
    assert await one.price("lamp", cents=50) == "lamp: 30"


@pytest.mark.parametrize("name", ["below", "above"])
@pytest.mark.parametrize(("prices", "price"), [(Prices, "10"), (Prices(), "10"), (Dear, "100"), (Dear(), "100")])
async def test_a_class_method_is_a_tool_without_cls_in_its_schema(prices: Any, price: str, name: str) -> None:
    """The decorators may stand in either order."""
    async with Engine([getattr(prices, name)]) as engine:
        assert set(engine.tools.openai()[0]["function"]["parameters"]["properties"]) == {"count"}
        assert (await said(engine, call(name, count=2))).text == price
    assert getattr(prices, name)(count=2) == int(price)


async def test_each_object_has_its_own_tool() -> None:
    cheap, dear = Shop(90), Shop(0)
    async with Engine([cheap.price]) as first, Engine([dear.price]) as second:
        assert [(await said(engine, call("price", article="x"))).text for engine in (first, second)] == ["x: 10", "x: 100"]


def test_a_method_without_its_object_is_refused_with_what_to_write() -> None:
    with pytest.raises(UsageError, match=r"Shop\.price is a method.*Shop\(\.\.\.\)\.price"):
        Engine([Shop.price])


def test_a_method_is_refused_for_a_process_because_its_object_is_not_there() -> None:
    with pytest.raises(UsageError, match="is a method of an object"):
        Engine([Shop(1).pack])


async def test_a_function_in_a_class_that_takes_no_self_stays_a_function() -> None:
    async with Engine([Names.add]) as engine:
        assert (await said(engine, call("add", a=1, b=2))).text == "3"


def aliased(alias: Any) -> Any:
    """Return a function with a parameter that has this alias."""

    def function(one: int = Field(validation_alias=alias), two: int = 2) -> int:
        """Add."""
        return one + two

    return function


def made_list() -> list[str]:
    return ["made"]


@tool
async def search(
    query: Annotated[str, "What to look for."],
    limit: int = Field(10, ge=1, description="How many."),
    tags: list[str] = Field(default_factory=made_list),  # noqa: B008
    word: str = Field(min_length=2),
    page: Annotated[int, Field(3, le=9)] = 2,
) -> str:
    """Search.

    Args:
        query: Not this: the annotation is nearer.
    """
    tags.append(query)
    return f"{query} {limit} {tags} {word} {page}"


async def test_a_field_as_default_gives_its_default_and_its_constraints() -> None:
    async with Engine([search]) as engine:
        schema = engine.tools.openai()[0]["function"]["parameters"]
        assert schema["properties"]["limit"] == {"type": "integer", "default": 10, "minimum": 1, "description": "How many."}
        assert schema["properties"]["query"]["description"] == "What to look for."
        assert schema["required"] == ["query", "word"]
        for _ in range(2):  # a factory makes a new default for each call
            assert (await said(engine, call("search", query="q", word="ab"))).text == "q 10 ['made', 'q'] ab 2"
        refused = await said(engine, call("search", query="q", word="a", limit=0, page=10))
    assert refused.code == "schema_invalid"
    assert all(f"{name}: expected" in refused.text for name in ("limit", "word", "page"))


def test_a_field_default_is_filled_in_for_a_tool_that_is_called_directly() -> None:
    @tool
    def count(limit: int = Field(10, ge=1)) -> int:
        """Count."""
        return limit

    assert (count(), count(5), count(limit=6)) == (10, 5, 6)


async def test_an_alias_is_the_name_of_the_argument_for_the_model_and_the_function_gets_its_parameter() -> None:
    @tool(key="copy:{from}")
    def copy(
        ctx: ToolContext,
        from_: str = Field(alias="from", min_length=1),
        count: Annotated[int, Field(validation_alias=AliasChoices("times", "n"))] = 3,
        day: datetime.date = Field(datetime.date(2024, 1, 31), alias="on"),  # noqa: B008
    ) -> str:
        """Copy.

        Args:
            count: How often.
        """
        return f"{from_} {count} {day:%d.%m.%Y}"

    async with Engine([copy]) as engine:
        schema = engine.tools.openai()[0]["function"]["parameters"]
        assert (list(schema["properties"]), schema["required"]) == (["from", "times", "on"], ["from"])
        assert schema["properties"]["times"]["description"] == "How often."
        assert (await said(engine, call("copy", **{"from": "a"}))).text == "a 3 31.01.2024"
        assert (await said(engine, call("copy", **{"from": "b", "times": "5", "on": "2024-02-01"}))).text == "b 5 01.02.2024"
        refused = await said(engine, call("copy", **{"from": "", "times": "many"}))
        assert "- from: expected" in refused.text.replace("\\n", "\n")
        assert "- times: expected an integer" in refused.text
        assert "'from_' is not an argument" in (await said(engine, call("copy", from_="a"))).text


@pytest.mark.filterwarnings("error")
def test_an_alias_is_read_without_a_warning_of_pydantic() -> None:
    @tool
    def move(from_: str = Field(alias="from")) -> str:
        """Move."""
        return from_

    assert move(from_="a") == "a"


REFUSED_FIELDS: dict[str, tuple[Any, str]] = {
    "no annotation": (
        lambda limit=Field(10, ge=1): limit,  # noqa: B008
        "'limit' has a Field and no annotation.* limit: int = Field",
    ),
    "a path as alias": (aliased(AliasPath("a", 0)), "'one' has the alias AliasPath.*Give the alias as text"),
    "an alias that is taken": (aliased("two"), "two parameters whose argument has the same name"),
}


@pytest.mark.parametrize(("function", "said"), REFUSED_FIELDS.values(), ids=REFUSED_FIELDS)
def test_a_field_that_a_model_could_not_use_is_refused(function: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        tool(function)


class Booking(BaseModel):
    day: datetime.date
    guest: str = Field(max_length=3)
    at: list[datetime.datetime] = []


@dataclasses.dataclass
class Stay:
    start: datetime.date
    until: datetime.datetime | None = None
    id: uuid.UUID | None = None


@tool
async def book(booking: Booking, stay: Stay, when: datetime.datetime, days: list[datetime.time]) -> str:
    """Book."""
    return f"{booking.day.year} {stay.start.year} {when.year} {len(days)}"


VALID: dict[str, Any] = {
    "booking": {"day": "2024-01-31", "guest": "ann", "at": ["2024-01-31T12:00:00"]},
    "stay": {"start": "2024-01-31", "until": "2024-01-31T12:00:00+02:00", "id": "123e4567-e89b-12d3-a456-426614174000"},
    "when": "2024-01-31T12:00:00",
    "days": ["12:00:00"],
}


async def test_dates_that_their_types_read_are_accepted() -> None:
    async with Engine([book]) as engine:
        assert (await said(engine, call("book", **VALID))).text == "2024 2024 2024 1"


async def test_every_invalid_date_is_reported_at_once_with_its_path_and_what_it_got() -> None:
    wrong: dict[str, Any] = {
        "booking": {"day": "soon", "guest": "anna", "at": ["2024-01-31T12:00:00", "noon"]},
        "stay": {"start": "31.1.2024", "until": "later", "id": "A7"},
        "when": "2024",
        "days": ["12:00:00", "noon", 5],
    }
    async with Engine([book]) as engine:
        result = await said(engine, call("book", **wrong))
    assert result.code == "schema_invalid"
    places = ("booking.day", "booking.guest", "booking.at[1]", "stay.start", "stay.until", "stay.id", "when", "days[1]", "days[2]")
    assert [place for place in places if f"- {place}: expected" not in result.text.replace("\\n", "\n")] == []
    assert 'expected text in the format date, such as 2024-01-31, got \\"soon\\"' in result.text
    assert "pydantic" not in result.text
    assert "RFC3339" not in result.text


class Range(BaseModel):
    start: int
    end: int

    @field_validator("end")
    @classmethod
    def after(cls, end: int) -> int:
        if end < 5:
            raise ValueError("the end must be 5 or more")
        return end


@dataclasses.dataclass
class Even:
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError("the number is odd")


async def test_what_only_the_types_own_code_refuses_has_a_path_too() -> None:
    @tool
    async def take(range: Range, even: dict[str, Even], odd: Even) -> str:
        """Take."""
        return str(range.end + len(even) + odd.number)

    async with Engine([take]) as engine:
        result = await said(engine, call("take", range={"start": 1, "end": 2}, even={"a": {"number": 3}}, odd={"number": 1}))
    text = result.text.replace("\\n", "\n")
    assert "- range.end: the end must be 5 or more; got 2" in text
    assert "- even" in text
    assert "- odd: the number is odd; got an object with 'number'" in text


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (int, "many", "expected an integer, got"),
        (float, "much", "expected a number, got"),
        (bool, "yes", "expected true or false, got"),
        (int | None, "none", "expected an integer, or null"),
        (Literal["a", "b"], "c", 'expected one of \\"a\\", \\"b\\", got'),
        (list[int], ["x"], "[0]: expected an integer, got"),
        (int, True, "expected an integer, got true"),
        (float, False, "expected a number, got false"),
        (str, None, "expected text, got null"),
        (str, 5, "expected text, got 5"),
        (str, ["x"], "expected text, got a list of 1"),
        (str | None, {"a": 1}, "expected text, or null, got"),
        (str | list[int], ["x"], "[0]: expected an integer, got"),
    ],
    ids=str,
)
async def test_a_result_that_is_not_of_the_annotated_type_is_refused(kind: Any, value: object, words: str) -> None:
    async def give() -> Any:
        """Give."""
        return value

    give.__annotations__["return"] = kind
    async with Engine([tool(give)]) as engine:
        result = await said(engine, call("give"))
    assert (result.status, result.code) == ("error", "output_schema")
    assert words in result.text


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *[(int, 5), (float, 5), (float | None, None), (str, "x"), (str | None, None), (bool, False), (int | bool, True)],
        *[(str, datetime.date(2024, 1, 31)), (str, b"x"), (decimal.Decimal, decimal.Decimal("1.5")), (pathlib.Path, pathlib.Path("a"))],
        *[(uuid.UUID, uuid.UUID(int=1)), (datetime.timedelta, datetime.timedelta(hours=1)), (Any, 5), (str | Any, 5), (bytes, b"x")],
    ],
    ids=str,
)
async def test_a_result_that_the_annotation_allows_is_accepted(kind: Any, value: object) -> None:
    async def give() -> Any:
        """Give."""
        return value

    give.__annotations__["return"] = kind
    async with Engine([tool(give)]) as engine:
        assert (await said(engine, call("give"))).status == "ok"


async def test_formats_of_a_schema_that_a_user_wrote_stay_comments() -> None:
    class Plan(Tool):
        name, description, category = "plan", "Plan.", "safe_chain"
        parameters = {"type": "object", "properties": {"day": {"type": "string", "format": "date"}}}
        requires_actor = False

        async def execute(self, actor: str, **params: Any) -> dict[str, Any]:
            return {"success": True, "data": params["day"]}

    async with Engine([Plan()]) as engine:
        assert (await said(engine, call("plan", day="soon"))).data == "soon"
