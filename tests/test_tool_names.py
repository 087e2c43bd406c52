"""Names of tools: those that register, and how they are written for providers that accept less."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import Engine, RawCall, UsageError
from callgate.models.wire.tool_names import WireNames
from callgate.tools import Tool
from tests.engine_calls import said

LONG = "a" * 64


class Named(Tool):
    description = "Returns its name."
    parameters = {"type": "object"}
    category = "safe_chain"
    requires_actor = False

    def __init__(self, name: str) -> None:
        self.name = name

    async def execute(self, actor: str, **params: Any) -> dict[str, Any]:
        return {"name": self.name}


NAMES = ["_private", "__x__", "a.b", "a/b", "a-b", "-a", ".a", "1st", "_", "A" * 128, f"{LONG}_one", f"{LONG}_two", "café"]


async def test_every_name_that_mcp_allows_registers_and_is_called() -> None:
    """Names differ in any character, also behind the 64th."""
    async with Engine([Named(name) for name in NAMES]) as engine:
        for name in NAMES:
            assert (await said(engine, RawCall(name=name, arguments="{}"))).structured == {"name": name}


@pytest.mark.parametrize("name", ["a b", "a\tb", "a:b", "a(b)", ".", "--", "/", "A" * 129, "a\n"])
def test_any_other_name_is_refused_with_the_rule(name: str) -> None:
    with pytest.raises(UsageError, match="at most 128 letters, digits"):
        Engine([Named(name)])


names = st.text(alphabet="aAz019_-./é", min_size=1, max_size=6) | st.sampled_from([*NAMES, "t_1st", "a_b", "A" * 65, "A" * 64])
ACCEPTED = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


@given(st.sets(names, max_size=12), st.booleans())
def test_names_for_a_provider_are_accepted_distinct_and_lead_back(own: set[str], dashes: bool) -> None:
    """A name that the provider accepts is sent as it is, and is always sent the same way, whichever tools are beside it."""
    mapped = WireNames(own, allow_dashes=dashes)
    sent = {name: mapped.to_wire(name) for name in own}
    assert len(set(sent.values())) == len(own)
    for name, wire in sent.items():
        assert ACCEPTED.fullmatch(wire)
        assert dashes or "-" not in wire
        assert mapped.original(wire) == name
        assert wire == name or not ACCEPTED.fullmatch(name) or (not dashes and "-" in name)
        assert WireNames([name], allow_dashes=dashes).to_wire(name) == wire


def test_a_name_that_looks_like_another_ones_wire_name_stays_its_own() -> None:
    """Made names have a digest; a tool that has exactly this name keeps it, and the other one gets a longer digest."""
    taken = WireNames(["a/b"]).to_wire("a/b")
    mapped = WireNames(["a/b", taken])
    assert mapped.to_wire(taken) == taken
    assert mapped.original(mapped.to_wire("a/b")) == "a/b"
