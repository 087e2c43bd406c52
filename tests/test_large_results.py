"""A large result costs a small prompt, loses nothing, and the rest can be read."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from callgate import Engine, Limits, tool
from callgate._pipeline.excerpt import excerpt
from callgate.builtins import result_tools
from tests.door import bodies, call, said


@tool(effect="none")
async def log(lines: int) -> str:
    """Give so many lines."""
    return "\n".join(f"line {n}" for n in range(lines))


@tool(effect="none")
async def table(rows: int) -> list[dict[str, int]]:
    """Give so many rows."""
    return [{"row": n} for n in range(rows)]


async def test_a_result_within_the_budget_is_shown_whole() -> None:
    async with Engine([log]) as engine:
        result = await said(engine, call("log", lines=100))
    assert result.text.splitlines()[-1] == "line 99"
    assert (result.metadata.truncated, result.metadata.blob) == (False, None)


async def test_a_large_text_shows_head_and_tail_and_how_to_read_the_rest() -> None:
    async with Engine([log]) as engine:
        result = await said(engine, call("log", lines=100_000))
        assert len(result.text) < 20_000
        assert "line 0\n" in result.text
        assert "line 99999" in result.text
        assert "left out" in result.text
        assert f"digest='{result.metadata.blob}'" in result.text
        assert result.metadata.truncated
        whole = engine.blobs.get(str(result.metadata.blob))
    assert whole is not None
    assert len(whole) == result.metadata.bytes
    assert whole.decode().splitlines()[54_321] == "line 54321"


async def test_the_model_can_read_and_search_what_was_left_out() -> None:
    async with Engine([log]) as engine:
        for one in result_tools(engine.blobs):
            engine.register(one)
        digest = str((await said(engine, call("log", lines=100_000))).metadata.blob)
        found = await said(engine, call("search_result", digest=digest, query="line 54321"))
        assert "line 54321" in found.text
        page = await said(engine, call("read_result", digest=digest, offset=0, limit=50))
        assert "line 0" in page.text


async def test_a_large_list_keeps_whole_items_of_both_ends() -> None:
    async with Engine([table]) as engine:
        result = await said(engine, call("table", rows=20_000))
    shown = result.content[0].text  # type: ignore[union-attr]
    assert '{"row":0}' in shown
    assert '{"row":19999}' in shown
    assert "of 20000 items left out" in shown


async def test_an_object_keeps_its_small_members_and_shortens_the_large_one() -> None:
    @tool(effect="none")
    async def search() -> dict[str, Any]:
        """Search."""
        return {"matches": [{"line": n} for n in range(20_000)], "truncated": False, "files": 3}

    async with Engine([search]) as engine:
        shown = (await said(engine, call("search"))).content[0].text  # type: ignore[union-attr]
    assert '"truncated":false' in shown
    assert '"files":3' in shown
    assert '{"line":0}' in shown
    assert '{"line":19999}' in shown
    assert 10_000 < len(shown) <= 16_384 + 100


async def test_a_result_above_a_megabyte_is_recorded_by_reference() -> None:
    async with Engine([log], limits=Limits(result_inline_bytes=10_000)) as engine:
        result = await said(engine, call("log", lines=10_000))
        (recorded,) = bodies(engine, "call.completed")
    assert result.structured is None
    assert recorded["structured"] is None
    assert recorded["metadata"]["blob"] == result.metadata.blob  # type: ignore[index]


async def test_an_error_text_is_bounded() -> None:
    @tool(effect="none")
    async def fail() -> None:
        """Fail at length."""
        raise ValueError("x" * 1_000_000)

    async with Engine([fail]) as engine:
        result = await said(engine, call("fail"))
    assert len(result.text.encode()) <= Limits().error_bytes


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=30),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=8), inner),
)


@given(values, st.integers(40, 400))
def test_an_excerpt_keeps_its_budget_and_both_ends(value: Any, budget: int) -> None:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    shown = excerpt(text, value, budget)
    assert len(shown.encode("utf-8", "surrogatepass")) <= 2 * budget + 400


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=500), st.integers(40, 200))
def test_an_excerpt_of_text_never_tears_a_character(text: str, budget: int) -> None:
    shown = excerpt(text, text, budget)
    head, _, tail = shown.partition("\n... ")
    assert text.startswith(head)
    assert text.endswith(tail.partition(" ...\n")[2])
