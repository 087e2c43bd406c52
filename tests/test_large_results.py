"""Large results: the model gets an excerpt, the whole result is stored, and the rest can be read in parts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import Engine, Limits, Scope, tool
from callgate._json import plain_bytes
from callgate._json.truncated_result import excerpt
from callgate.builtins import result_tools
from tests.effect_ledger import Ledger
from tests.engine_calls import bodies, call, said


@tool(effect="none")
async def log(lines: int) -> str:
    """Return this many lines."""
    return "\n".join(f"line {n}" for n in range(lines))


@tool(effect="none")
async def table(rows: int) -> list[dict[str, int]]:
    """Return this many rows."""
    return [{"row": n} for n in range(rows)]


async def test_a_result_within_the_budget_is_shown_whole() -> None:
    async with Engine([log]) as engine:
        result = await said(engine, call("log", lines=100))
    assert result.text.splitlines()[-1] == "line 99"
    assert (result.metadata.truncated, result.metadata.blob) == (False, None)


async def test_a_large_text_shows_head_and_tail_and_how_to_read_the_rest() -> None:
    async with Engine([log]) as engine:
        for one in result_tools(engine.blobs):
            engine.register(one)
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


@pytest.mark.parametrize(
    "names", [set(), {"read_result"}, {"search_result"}, {"read_result", "search_result"}], ids=["none", "read", "search", "both"]
)
async def test_a_large_result_names_only_tools_that_the_model_can_call(names: set[str]) -> None:
    async with Engine([log]) as engine:
        for one in result_tools(engine.blobs):
            if one.name in names:
                engine.register(one)
        result = await said(engine, call("log", lines=100_000))
    assert {name for name in ("read_result", "search_result") if name in result.text} == names
    assert ("No tool here reads the rest" in result.text) is not bool(names)
    assert result.metadata.blob is not None


async def test_a_large_result_names_no_tool_that_deliberate_mode_does_not_offer() -> None:
    async with Engine([log]) as engine:
        for one in result_tools(engine.blobs):
            engine.register(one)
        result = await said(engine, call("log", lines=100_000), Scope(allowed_tools=frozenset({"log", "search_result"})))
    assert "search_result(" in result.text
    assert "read_result(" not in result.text


async def test_a_tool_of_the_hosts_own_with_that_name_is_not_named() -> None:
    @tool(effect="none")
    async def read_result(number: int) -> str:
        """Read the result of a match."""
        return str(number)

    async with Engine([log, read_result]) as engine:
        assert "read_result" not in (await said(engine, call("log", lines=100_000))).text


async def test_the_model_can_read_and_search_what_was_left_out() -> None:
    async with Engine([log]) as engine:
        for one in result_tools(engine.blobs):
            engine.register(one)
        digest = str((await said(engine, call("log", lines=100_000))).metadata.blob)
        found = await said(engine, call("search_result", digest=digest, query="line 54321"))
        assert "line 54321" in found.text
        page = await said(engine, call("read_result", digest=digest, offset=0, limit=50))
        assert "line 0" in page.text


async def test_an_excerpt_of_a_large_list_keeps_whole_items_from_both_ends() -> None:
    async with Engine([table]) as engine:
        result = await said(engine, call("table", rows=20_000))
    shown = result.content[0].text  # type: ignore[union-attr]
    assert '{"row":0}' in shown
    assert '{"row":19999}' in shown
    assert "of 20000 items left out" in shown


async def test_an_excerpt_of_an_object_keeps_small_members_and_shortens_the_large_one() -> None:
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


async def test_a_result_above_result_inline_bytes_is_recorded_by_reference() -> None:
    async with Engine([log], limits=Limits(result_inline_bytes=10_000)) as engine:
        result = await said(engine, call("log", lines=10_000))
        (recorded,) = bodies(engine, "call.completed")
    assert result.structured is None
    assert recorded["structured"] is None
    assert recorded["metadata"]["blob"] == result.metadata.blob  # type: ignore[index]


async def test_an_error_text_is_bounded() -> None:
    @tool(effect="none")
    async def fail() -> None:
        """Fail with a long text."""
        raise ValueError("x" * 1_000_000)

    async with Engine([fail]) as engine:
        result = await said(engine, call("fail"))
    assert len(result.text.encode()) <= Limits().error_bytes


async def test_the_whole_value_of_a_large_declared_failure_is_stored() -> None:
    answer = {"success": False, "error": "build failed", "data": [f"line {n}" for n in range(50_000)]}

    @tool(effect="none")
    async def build() -> dict[str, Any]:
        """Build."""
        return answer

    async with Engine([build]) as engine:
        for one in result_tools(engine.blobs):
            engine.register(one)
        result = await said(engine, call("build"))
        digest = str(result.metadata.blob)
        assert engine.blobs.get(digest) == plain_bytes(answer)
        found = await said(engine, call("search_result", digest=digest, query="line 31337"))
    assert (result.failure_class, result.error, result.structured) == ("tool_declared", "build failed", answer)
    assert (result.metadata.truncated, result.metadata.bytes) == (True, len(plain_bytes(answer)))
    assert len(result.text.encode()) <= Limits().error_bytes
    for shown in ('"status":"error"', '"error":"build failed"', '"line 0"', '"line 49999"', f"read_result(digest='{digest}'"):
        assert shown in result.text
    assert "line 31337" in found.text


async def test_a_small_failure_is_shown_whole() -> None:
    @tool(effect="none")
    async def build() -> dict[str, Any]:
        """Build."""
        return {"success": False, "error": "build failed", "data": ["line 1"]}

    async with Engine([build]) as engine:
        result = await said(engine, call("build"))
    assert (result.metadata.truncated, result.metadata.blob, len(result.content)) == (False, None, 1)


async def test_a_failure_above_result_inline_bytes_is_recorded_by_reference() -> None:
    @tool(effect="none")
    async def build() -> dict[str, Any]:
        """Build."""
        return {"success": False, "error": "build failed", "data": "x" * 20_000}

    async with Engine([build], limits=Limits(result_inline_bytes=10_000)) as engine:
        result = await said(engine, call("build"))
        (recorded,) = bodies(engine, "call.completed")
    assert result.structured is None
    assert recorded["metadata"]["blob"] == result.metadata.blob  # type: ignore[index]


@pytest.mark.parametrize(
    "value",
    [
        {"k" * 2_000_000: 1},
        {f"{n}{'x' * 20_000}": n for n in range(100)},
        {f"{n}{'x' * 20_000}": n for n in range(1000)},
        {"a": {"k" * 99_999: {}}},
    ],
    ids=["one", "a hundred", "a thousand", "inside"],
)
async def test_long_keys_are_shortened_in_an_excerpt(value: dict[str, Any]) -> None:
    @tool(effect="none")
    async def look() -> dict[str, Any]:
        """Look."""
        return value

    async with Engine([look]) as engine:
        result = await said(engine, call("look"))
        assert engine.blobs.get(str(result.metadata.blob)) == plain_bytes(value)
    shown = result.content[0].text  # type: ignore[union-attr]
    assert 8_000 < len(shown) <= Limits().content_bytes
    assert "bytes left out" in shown


def test_an_excerpt_encodes_a_large_value_at_most_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds for values of any shape."""
    encoded = 0

    def counting(part: object) -> bytes:
        nonlocal encoded
        raw = plain_bytes(part)
        encoded += len(raw)
        return raw

    monkeypatch.setattr("callgate._json.truncated_result.plain_bytes", counting)
    row = [["z" * 1000] * 10] * 10
    for value in (
        [row] * 20,
        {str(n): {"a": row, "b": "y" * 9000} for n in range(20)},
        [[[[[[row] * 20]]]]],
        {"k" * 999_999: 1},
        [[row] * 20, 1],
    ):
        encoded, raw = 0, plain_bytes(value)
        excerpt(raw, value, 16_384)
        assert encoded <= 1.1 * len(raw)


texts = st.text(max_size=30) | st.builds(str.__mul__, st.text(min_size=1, max_size=3), st.integers(0, 2000))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
)


@given(values, st.integers(200, 2000))
def test_an_excerpt_never_exceeds_its_budget(value: Any, budget: int) -> None:
    raw = value.encode() if isinstance(value, str) else plain_bytes(value)
    assert len(excerpt(raw, value, budget).encode()) <= budget


@given(values)
def test_the_smallest_excerpt_says_how_much_was_left_out(value: Any) -> None:
    raw = value.encode() if isinstance(value, str) else plain_bytes(value)
    shown = excerpt(raw, value, 0)
    assert len(shown) <= 60
    assert raw == b"" or "left out" in shown or value in ([], {})


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=500), st.integers(40, 200))
def test_an_excerpt_of_text_never_splits_a_character(text: str, budget: int) -> None:
    shown = excerpt(text.encode(), text, budget)
    head, _, tail = shown.partition("\n... ")
    assert text.startswith(head)
    assert text.endswith(tail.partition(" ...\n")[2])


async def test_the_message_and_image_metadata_of_a_result_are_bounded() -> None:
    """A note says what was omitted."""

    @tool(effect="none")
    async def chatty() -> dict[str, object]:
        """Return a long message and large metadata."""
        return {"success": True, "data": 1, "message": "m" * 10_000, "image_metadata": {"pixels": "p" * 20_000}}

    async with Engine([chatty]) as engine:
        result = await said(engine, call("chatty"))
    assert result.message is not None
    assert len(result.message) <= engine.limits.error_bytes + len(" [cut]")
    assert result.image_metadata is None
    assert any("image_metadata has" in note.text for note in result.metadata.notes)
    assert result.data == 1


class FullDisk:
    """A blob store that cannot store anything."""

    def put(self, data: bytes) -> str:
        raise OSError("no space left on device")

    def get(self, digest: str) -> bytes | None:
        return None


@pytest.mark.parametrize("effect", ["none", "once"])
async def test_a_result_whose_blob_cannot_be_stored_succeeds_and_says_so(effect: Any, ledger: Ledger) -> None:
    """A failing store never fails the call. The outcome is known, so the call is not `unknown`, and the same call may run again."""

    @tool(effect=effect)
    async def export(lines: int) -> str:
        """Write this many lines, and return them."""
        ledger.write("exported")
        return "\n".join(f"line {n}" for n in range(lines))

    async with Engine([export], blobs=FullDisk()) as engine:
        first = await said(engine, call("export", lines=60_000))
        again = await said(engine, call("export", lines=60_000))
        [recorded, _] = bodies(engine, "call.completed")
    for result in (first, again):
        assert (result.status, result.failure_class) == ("ok", None)
        assert (result.metadata.truncated, result.metadata.blob, result.metadata.bytes) == (True, None, len(str(first.structured)))
        assert "line 0\n" in result.text
        assert "line 59999" in result.text
        assert "could not be stored" in result.text
        assert "do not repeat it" in result.text
        assert "digest" not in result.text
    assert str(recorded["structured"]).splitlines()[54_321] == "line 54321"
    assert len(ledger.lines()) == 2


async def test_a_failure_whose_blob_cannot_be_stored_keeps_its_error() -> None:
    """The model gets as much of the tool's failure as fits."""

    @tool(effect="once")
    async def build() -> dict[str, Any]:
        """Build."""
        return {"success": False, "error": "it does not compile", "log": "x" * 100_000}

    async with Engine([build], blobs=FullDisk()) as engine:
        result = await said(engine, call("build"))
    assert (result.status, result.failure_class) == ("error", "tool_declared")
    assert "it does not compile" in result.text
    assert "could not be stored" in result.text
