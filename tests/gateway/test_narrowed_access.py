"""While two configurations count, a principal may do only what both say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.gateway import Principal
from callgate.gateway._access.narrowed_access import NarrowedTokens
from callgate.gateway.tokens import StaticTokens

_LETTERS = st.text("ab.*?[]!", max_size=5)
_PATTERNS = st.lists(_LETTERS, max_size=3).map(tuple)


async def both(one: Principal, other: Principal) -> Principal:
    found = await NarrowedTokens(StaticTokens({"token": one}), StaticTokens({"token": other})).principal_of("token")
    assert found is not None
    return found


@given(some=_PATTERNS, others=_PATTERNS, name=st.text("ab.*?[", max_size=4))
async def test_a_tool_is_offered_only_if_both_lists_of_patterns_have_it(some: tuple[str, ...], others: tuple[str, ...], name: str) -> None:
    one, other = Principal(name="alice", tools=some), Principal(name="alice", tools=others)
    if (await both(one, other)).may_use(name):
        assert one.may_use(name)
        assert other.may_use(name)


@pytest.mark.parametrize(
    ("some", "others", "kept"),
    [
        (("*",), ("git.*", "look"), ("git.*", "look")),
        (("git.*",), ("git.log", "git.d*", "look"), ("git.log", "git.d*")),
        (("git.*", "look"), ("look", "buy"), ("look",)),
        (("*log",), ("git*",), ()),
    ],
)
async def test_patterns_stay_that_the_other_list_includes(some: tuple[str, ...], others: tuple[str, ...], kept: tuple[str, ...]) -> None:
    narrowed = await both(Principal(name="alice", tools=some), Principal(name="alice", tools=others))
    assert narrowed.tools == kept


@pytest.mark.parametrize(
    ("field", "less", "more"),
    [
        ("role", "client", "operator"),
        ("parallel", 1, 2),
        ("queued", 1, 2),
        ("pending", 1, 2),
        ("approves", False, True),
        ("servers", ("git",), None),
        ("servers", (), ("git",)),
    ],
)
async def test_the_lesser_of_two_rights_counts(field: str, less: Any, more: Any) -> None:
    one, other = Principal(name="alice", **{field: less}), Principal(name="alice", **{field: more})
    assert await both(one, other) == await both(other, one) == one


async def test_servers_that_follow_from_tools_are_not_added_to_by_a_list_of_servers() -> None:
    narrowed = await both(Principal(name="alice", tools=("look",)), Principal(name="alice", tools=("look",), servers=("git",)))
    assert narrowed.servers == ()


async def test_a_token_that_stands_for_two_principals_is_not_valid() -> None:
    one, other = StaticTokens({"token": Principal(name="alice")}), StaticTokens({"token": Principal(name="bob")})
    assert await NarrowedTokens(one, other).principal_of("token") is None
