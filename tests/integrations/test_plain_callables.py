"""Plain callables in `import_tools`: functions, methods, partials and objects that can be called."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from callgate import Engine, RawCall, UsageError, tool
from callgate.integrations import import_tools


class Order(BaseModel):
    id: str
    count: int = Field(ge=1)


def price(item: str, currency: str) -> str:
    """Look up a price.

    Args:
        item: Which item.
        currency: In which currency.
    """
    return f"{item} in {currency}"


async def rate(currency: str, day: Annotated[str, "The day."] = "today") -> str:
    """Look up a rate."""
    return f"{currency} {day}"


class PriceList:
    """Knows the prices."""

    def __init__(self, shop: str) -> None:
        self.shop = shop

    def __call__(self, item: str) -> str:
        return f"{item} at {self.shop}"

    async def place(self, order: Order, note: str = "") -> str:
        """Place an order."""
        return f"{order.count} x {order.id} at {self.shop}{note}"

    @staticmethod
    def half(number: int) -> float:
        """Halve a number."""
        return number / 2


def shown(engine: Engine) -> dict[str, tuple[str, dict[str, Any]]]:
    return {bound.name: (bound.effect, dict(bound.schema.source)) for bound in engine.tools}


async def call(engine: Engine, name: str, **arguments: object) -> str:
    return str((await engine.call(RawCall(name=name, arguments=arguments))).message()["content"])


async def test_methods_and_objects_are_tools_with_effects_by_name() -> None:
    shop = PriceList("Roma")
    async with Engine(import_tools([shop, shop.place, PriceList.half], {"price_list": "none", "half": "none"})) as engine:
        assert {name: effect for name, (effect, _) in shown(engine).items()} == {"price_list": "none", "place": "once", "half": "none"}
        assert shown(engine)["price_list"][1]["properties"] == {"item": {"type": "string"}}
        assert await call(engine, "price_list", item="pear") == "pear at Roma"
        assert await call(engine, "place", order={"id": "A7", "count": 2}) == "2 x A7 at Roma"
        assert await call(engine, "half", number=3) == "1.5"
        assert "count" in await call(engine, "place", order={"id": "A7", "count": 0})
        assert engine.tools.openai()[0]["function"]["description"] == "Knows the prices."


async def test_what_a_partial_has_bound_is_no_argument() -> None:
    tools = import_tools(
        [partial(price, currency="EUR"), partial(rate, "USD"), partial(PriceList("Roma").place, note="!")], {"price": "none"}
    )
    async with Engine(tools) as engine:
        assert shown(engine)["price"] == (
            "none",
            {"type": "object", "properties": {"item": {"type": "string", "description": "Which item."}}, "required": ["item"]},
        )
        assert shown(engine)["rate"][1]["properties"] == {"day": {"type": "string", "description": "The day.", "default": "today"}}
        shown_price = "pear in EUR\nNote: 'currency' is not an argument and was dropped. price takes item."
        assert await call(engine, "price", item="pear", currency="USD") == shown_price
        assert await call(engine, "rate") == "USD today"
        assert await call(engine, "place", order={"id": "A7", "count": 1}) == "1 x A7 at Roma!"


def by_position(item: str, /) -> str:
    """Look."""
    return item


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (PriceList.place, r"the method PriceList.place without its object. Give PriceList\(...\).place"),
        (partial(by_position), "by position only"),
        (len, "by position only"),
        (lambda item: item, "'<lambda>'.* cannot be used"),
        (PriceList, "is not a tool"),
    ],
    ids=["method", "partial", "builtin", "lambda", "class"],
)
def test_a_callable_that_cannot_be_a_tool_is_refused_with_the_reason(item: Callable[..., Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Engine(import_tools([item]))


async def test_a_function_without_a_docstring_is_described_by_its_name() -> None:
    def find_order(order: str) -> str:
        return f"found {order}"

    async with Engine(import_tools([find_order])) as engine:
        assert [bound.tool.description for bound in engine.tools] == ["find_order"]
        assert await call(engine, "find_order", order="A7") == "found A7"


def test_a_plain_function_gets_the_description_that_is_given() -> None:
    def tax(article: str) -> int:
        return len(article)

    (made,) = import_tools([tax], options={"tax": {"description": "Look up a price."}})
    assert made.description == "Look up a price."


def test_a_function_without_a_description_is_refused_with_the_way_to_give_one() -> None:
    @tool
    def tax(article: str) -> int:
        return len(article)

    with pytest.raises(UsageError, match=r"Tool 'tax' .* has no description\. Write a docstring, or give description="):
        Engine([tax])
