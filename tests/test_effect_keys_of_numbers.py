"""The key of an effect that is made of numbers: equal numbers make one key, however the model writes them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from callgate import Engine, RawCall, tool
from tests.effect_ledger import Ledger
from tests.effect_tools import refunding
from tests.engine_calls import call, said


@pytest.mark.parametrize(
    "numbers", ["50 50.0 5e1", "0.1 0.10 1e-1", "1e18 1000000000000000000 1e+18", "1e300 1.0e300", "0 -0.0 0.0", '"50" "50.0" 50']
)
async def test_equal_numbers_make_one_key(numbers: str, ledger: Ledger) -> None:
    @tool(key="pay:{invoice}:{amount}")
    async def pay(invoice: str, amount: float) -> str:
        """Pay."""
        ledger.write(f"{invoice} {amount}")
        return "paid"

    async with Engine([pay]) as engine:
        for number in numbers.split():
            result = await said(engine, RawCall(name="pay", arguments=f'{{"invoice": "A", "amount": {number}}}'))
            assert result.status == "ok", result.text
    assert len(ledger.lines()) == 1


@pytest.mark.parametrize("amounts", [["50", "50.0", "5e1", "050"], ["0", "-0.00"], ["12.50", "12.5"]])
async def test_equal_decimals_make_one_key(amounts: list[str], ledger: Ledger) -> None:
    @tool(key="pay:{amount}")
    async def pay(amount: Decimal) -> str:
        """Pay."""
        ledger.write(str(amount))
        return "paid"

    async with Engine([pay]) as engine:
        for amount in amounts:
            assert (await said(engine, call("pay", amount=amount))).status == "ok"
        await said(engine, call("pay", amount="7"))
    assert len(ledger.lines()) == 2


async def test_numbers_inside_of_a_value_of_a_key_are_equal_too(ledger: Ledger) -> None:
    @tool(key="pay:{parts}")
    async def pay(parts: list[dict[str, float]]) -> str:
        """Pay."""
        ledger.write("paid")
        return "paid"

    async with Engine([pay]) as engine:
        for amount in (5, 5.0, 5.5):
            await said(engine, call("pay", parts=[{"amount": amount}]))
    assert len(ledger.lines()) == 2


async def test_a_whole_number_is_written_in_the_key_as_an_integer(ledger: Ledger) -> None:
    async with Engine([refunding(ledger, key="refund:{order}:{cents}")]) as engine:
        await said(engine, call("refund", order="A7", cents=50))
        again = await said(engine, call("refund", order="A7", cents=50))
    assert "refund:A7:50)" in again.text
