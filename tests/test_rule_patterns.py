"""Which tools a rule applies to: by name, by pattern, or by a list of both."""

from __future__ import annotations

import pytest

from callgate import Engine, Rules
from tests.effect_ledger import Ledger
from tests.effect_tools import paying
from tests.engine_calls import call, said


@pytest.mark.parametrize(
    ("entry", "denied"),
    [
        ('"pay"', True),
        ('"p*"', True),
        ('"*ay"', True),
        ('"p?y"', True),
        ('"[p]ay"', True),
        ('"*"', True),
        ('["l*", "p*"]', True),
        ('"*x*"', False),
        ('"l*"', False),
    ],
)
async def test_a_rule_applies_to_the_tools_its_pattern_matches(entry: str, denied: bool, ledger: Ledger) -> None:
    looking = paying(ledger)
    looking.name = "lax"
    rules = Rules.parse(f'[[rule]]\nid = "no"\nverdict = "deny"\ntool = {entry}')
    async with Engine([paying(ledger), looking], policies=[rules]) as engine:
        result = await said(engine, call("pay", to="ann"))
    assert (result.failure_class == "denied", ledger.lines() == []) == (denied, denied)
