"""Lookup of tools: the allowlist first, then exact names, then almost right names, and the error if there is no tool."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import Engine
from callgate._pipeline.resolve import resolve
from callgate.argument_checks import matching_name, possible_names
from callgate.calls import RawCall, Scope
from callgate.errors import ToolBlocked, UnknownTool
from callgate.stage_types import ParsedCall, ResolvedCall
from callgate.tools import Tool, ToolRegistry
from tests.canonical_json import canonical
from tests.engine_calls import said


class Named(Tool):
    description = "Does nothing."
    parameters = {"type": "object"}
    category = "safe_chain"
    requires_actor = False

    def __init__(self, name: str, *aliases: str) -> None:
        self.name = name
        self.aliases = aliases


TOOLS = ToolRegistry([Named("read_file", "cat"), Named("search"), Named("Search2"), Named("café")])


def resolved(name: str, scope: Scope | None = None, tools: ToolRegistry = TOOLS) -> ResolvedCall:
    return resolve(ParsedCall(uid="u", raw=RawCall(name=name), arguments={}), tools, scope or Scope())


@pytest.mark.parametrize("name", ["read_file", "cat"])
def test_an_exact_name_or_alias_is_found_without_a_note(name: str) -> None:
    """Requirements C10 and D4."""
    call = resolved(name)
    assert call.tool.name == "read_file"
    assert call.notes == ()


@pytest.mark.parametrize(
    "name",
    [" read_file\n", '"read_file"', "`read_file`", "READ_FILE", "read-file", ' "functions.Read-File" ', "CAT", "functions.cat"],
)
def test_an_almost_right_name_resolves_with_a_note(name: str) -> None:
    """White space, quotes, a prefix, case and `-` for `_` are ignored if exactly one tool can be meant."""
    call = resolved(name)
    assert call.tool.name == "read_file"
    assert [note.kind for note in call.notes] == ["name"]


@pytest.mark.parametrize("prefix", ["", "functions.", "default_api.", "default_api:", "Tools."])
@pytest.mark.parametrize(
    "suffix", ["", "()", " ()", ":", ":0", " ", "<|channel|>commentary", " <|constrain|>json", "<|channel|>commentary <|constrain|>json"]
)
def test_what_models_add_to_a_name_is_ignored(prefix: str, suffix: str) -> None:
    """The name of the tools' list in the prompt, parentheses, the index of the call, and special tokens that a server left in."""
    assert resolved(f"{prefix}read_file{suffix}").tool.name == "read_file"


@pytest.mark.parametrize(
    "name",
    [
        "read_file\u200b",
        "re\u0430d_file",
        "cafe\u0301",
        "CAFÉ",
        "\uff52ead_file",
        "read_file.__init__",
        "read_file(path)",
        "read_file<|channel|>commentary to=search",
        "read_file<channel>",
        "<|channel|>read_file",
        "other.read_file",
        "functions.functions.read_file",
        "multi_tool_use.read_file",
        "read_file/../search",
        "mcp__srv__read_file",
        "functions.",
        '"',
        "\ud800",
        "read_file" * 5000,
    ],
    ids=lambda name: ascii(name)[:30],
)
def test_a_lookalike_name_does_not_resolve_to_a_tool(name: str) -> None:
    """There is no Unicode folding, because a look-alike must not reach a tool."""
    with pytest.raises(UnknownTool) as caught:
        resolved(name)
    assert len(str(caught.value).encode()) <= 4096
    assert canonical([str(caught.value), caught.value.details])


def test_an_ambiguous_name_is_unknown() -> None:
    """A folded name resolves only if exactly one tool has it."""
    assert matching_name("SEARCH", ["search", "Search"]) is None
    assert matching_name("Search", ["search", "Search"]) == "Search"
    assert matching_name("a-b", ["a_b", "A-B"]) is None


def test_an_unknown_tool_error_lists_close_and_available_names() -> None:
    """Requirement D6: the model can correct itself."""
    with pytest.raises(UnknownTool) as caught:
        resolved("serch")
    assert caught.value.details == {"suggestions": ["search", "Search2"]}
    assert "'search'" in str(caught.value)
    assert "read_file" in str(caught.value)


def test_an_unknown_tool_error_is_bounded_with_many_tools() -> None:
    """The limit is 4 KiB."""
    many = ToolRegistry([Named(f"tool_{number:04d}_{'x' * 40}") for number in range(500)])
    with pytest.raises(UnknownTool) as caught:
        resolved("nothing", tools=many)
    assert len(str(caught.value).encode()) <= 4096
    assert "more" in str(caught.value)


def deliberate(*names: str) -> Scope:
    return Scope(deliberate=True, allowed_tools=frozenset(names))


def test_a_tool_outside_the_allowlist_is_blocked_before_lookup() -> None:
    """Requirements A25 to A28."""
    with pytest.raises(ToolBlocked) as caught:
        resolved("read_file", deliberate("search", "Search2"))
    assert caught.value.details == {
        "status": "blocked_by_deliberate_tool_mode",
        "function_name": "read_file",
        "allowed_tools": ["Search2", "search"],
    }
    assert caught.value.failure_class == "blocked_deliberate"


def test_an_empty_allowlist_blocks_every_tool() -> None:
    """None means that there is no allowlist."""
    with pytest.raises(ToolBlocked):
        resolved("search", deliberate())
    assert resolved("search", Scope(deliberate=True)).tool.name == "search"


def test_the_allowlist_has_no_effect_without_deliberate_mode() -> None:
    """Requirement A25: a call is blocked only if all three conditions hold."""
    assert resolved("search", Scope(allowed_tools=frozenset())).tool.name == "search"


def test_the_allowlist_applies_to_the_tool_that_an_almost_right_name_means() -> None:
    """The spelling of a name neither bypasses the allowlist nor causes a block."""
    assert resolved("SEARCH2 ", deliberate("Search2")).tool.name == "Search2"
    with pytest.raises(ToolBlocked) as caught:
        resolved("Read-File", deliberate("search"))
    assert caught.value.details is not None
    assert caught.value.details["function_name"] == "read_file"


def test_the_allowlist_applies_to_the_tool_of_an_alias() -> None:
    """An alias neither bypasses the allowlist nor causes a block."""
    assert resolved("cat", deliberate("read_file")).tool.name == "read_file"
    with pytest.raises(ToolBlocked):
        resolved("cat", deliberate("search"))


def test_an_unknown_name_in_deliberate_mode_lists_only_allowed_tools() -> None:
    """The model is not told of tools that are hidden in this turn."""
    with pytest.raises(ToolBlocked) as caught:
        resolved("nothing_like_it", deliberate("search"))
    assert "read_file" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("SEARCH", ["search", "Search"], ["search", "Search"]),
        ("functions.X", ["x", "functions.x"], ["functions.x", "x"]),
        ("functions.x", ["x", "Functions.x"], ["Functions.x", "x"]),
        ("a-b()", ["a_b", "A-b"], ["a_b", "A-b"]),
    ],
)
async def test_a_name_that_several_tools_may_have_runs_none_and_names_all(name: str, known: list[str], meant: list[str]) -> None:
    """The model has to say which one it means."""
    async with Engine([Named(one) for one in known]) as engine:
        result = await said(engine, RawCall(name=name, arguments="{}"))
    assert (result.code, result.metadata.attempts) == ("unknown_tool", 0)
    assert all(repr(one) in result.text for one in meant)
    assert "Did you mean" in result.text


def test_an_alias_of_another_tool_makes_a_name_ambiguous() -> None:
    """An alias counts as much as a name."""
    tools = ToolRegistry([Named("show", "Cat"), Named("cat_")])
    assert resolved("CAT", tools=tools).tool.name == "show"
    with pytest.raises(UnknownTool) as caught:
        resolved("CAT-", tools=ToolRegistry([Named("show", "cat-"), Named("cat_")]))
    assert caught.value.details == {"suggestions": ["show", "cat_"]}


names = st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True)
close_names = st.sampled_from(
    ["x", "X", "a_b", "a-b", "A_b", "functions.x", "Functions.x", "tools.x", "functions", "tool", "x_", "default_api.a-b"]
)
DECORATIONS = (
    "{}",
    " {}\n",
    "`{}`",
    "functions.{}",
    "default_api:{}",
    "TOOLS.{}",
    "{}()",
    "{}:",
    "functions.{}:3",
    "{}<|channel|>commentary",
)


@given(st.sets(close_names, min_size=1), st.sampled_from(DECORATIONS), st.booleans(), st.booleans(), st.data())
def test_a_decorated_name_means_its_tool_or_several_but_never_another_one(
    known: set[str], decoration: str, swapped: bool, dashed: bool, data: st.DataObject
) -> None:
    """Whatever other tools there are: the result is the tool whose name was decorated, or nothing, or a tool that is called exactly so."""
    name = data.draw(st.sampled_from(sorted(known)))
    spelled = name.swapcase() if swapped else name
    spelled = spelled.replace("_", "-") if dashed else spelled
    written = decoration.format(spelled)
    found = possible_names(written, known)
    exact = {spelled, written, written.strip(" \n`")} & known
    assert found == [name] or exact & set(found) or (len(found) > 1 and name in found)
    assert matching_name(written, known) == (found[0] if len(found) == 1 else None)


def test_an_allowed_name_without_a_tool_is_unknown() -> None:
    """The allowlist has the name, but the registry does not. Only tools that are in both are suggested."""
    with pytest.raises(UnknownTool) as caught:
        resolved("serch", deliberate("serch", "search"))
    assert "search" in str(caught.value)
    assert "read_file" not in str(caught.value)
