"""The tables of the reference match the code: no entry is missing, and none is invented."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import tomllib
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from msgspec import Struct

import callgate
from callgate import EventQuery, Hook, Judge, Limits, ProcessLimits, RetryPolicy, Tool, _engine_limits, errors, inbox, testing
from callgate.agent import PRESETS, AgentEvent, Budget, Settings
from callgate.agent.repetition import StuckLimits
from callgate.cli import _exit_codes as _exits
from callgate.cli._app import app
from callgate.cli._command_options import RunOptions
from callgate.cli._log_commands import log_app
from callgate.cli._run_agent import _CODES
from callgate.cli._run_events import CommandEvent
from callgate.errors import FAILURE_CLASSES, CallFailed
from callgate.events import KINDS
from callgate.judging import JudgeLimits
from callgate.loop_decision import RUN_STATUS, LoopRules
from callgate.memory import MemoryLimits
from callgate.models.dialects import DIALECTS
from callgate.models.http_transport import Retries, Timeouts
from callgate.models.providers import PROVIDERS
from callgate.models.wire import known_apis
from callgate.policy.call_facts import FACTS
from callgate.policy.rule_conditions import TESTS
from callgate.policy.rule_file import RULE_KEYS
from callgate.recorded_calls import ToolCallEntry
from callgate.replay.judge_again import _DIFFERS, Change
from callgate.replay.run_calls import Word
from callgate.stream import PassStatus
from callgate.tools.declaration_checks import _EFFECT_OF
from callgate.undo import Conflict
from tests.acceptance.test_payload_and_context import CONTEXT

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "callgate"


def table(page: str, heading: str) -> dict[str, tuple[str, ...]]:
    """Return the first table under a heading, as a dict from the first column, without backticks, to the other columns."""
    text = f"\n{(ROOT / page).read_text(encoding='utf-8')}".split(f"\n{heading}\n", 1)[1]
    rows = re.search(r"^\|.*\n\|[-|]+\n((?:\|.*\n)*)", text, re.MULTILINE)
    assert rows is not None
    cells = [tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))) for line in rows[1].splitlines()]
    return {first.replace("`", ""): tuple(rest) for first, *rest in cells}


def test_documented_public_names_match_the_code() -> None:
    assert list(table("docs/reference/public-names.md", "## `callgate`")) == callgate.__all__
    modules = {f"callgate.{path.stem}" for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert set(table("docs/reference/public-names.md", "## Modules")) == {name for name in modules if "._" not in name}


def public_values() -> list[type[Any]]:
    """Return the data classes that callgate's public modules export, and those in their fields."""
    modules = [importlib.import_module(name) for name in ("callgate", *table("docs/reference/public-names.md", "## Modules"))]
    found: dict[type[Any], None] = {}
    waiting: list[Any] = [getattr(module, name) for module in modules for name in getattr(module, "__all__", ())]
    while waiting:
        one = waiting.pop()
        if isinstance(one, type) and (issubclass(one, Struct) or is_dataclass(one)) and one not in found:
            found[one] = None
            waiting += get_type_hints(one).values()
        waiting += get_args(one)
    return list(found)


def test_public_data_classes_are_frozen_with_three_exceptions() -> None:
    """A value does not change after it was handed out. Only a running tool and a tool's validator write to theirs, and a summary is filled
    event by event.
    """
    settings = {one: getattr(one, "__struct_config__", None) or getattr(one, "__dataclass_params__", None) for one in public_values()}
    changeable = {one.__name__ for one, found in settings.items() if found is None or not found.frozen}
    assert changeable == {"CallSummary", "ToolContext", "ValidationResult"}


def test_public_data_classes_take_keyword_fields_except_a_fixed_list() -> None:
    """A keyword field can be added anywhere. Only classes with few fields that are written often take them by position."""
    parameters = {one: inspect.signature(one).parameters.values() for one in public_values()}
    by_position = [one.__name__ for one, found in parameters.items() if any(each.kind is not each.KEYWORD_ONLY for each in found)]
    assert sorted(by_position) == [
        "Aborted", "Answered", "ArgumentsDelta", "Call", "CallEnd", "CallEnded", "CallOpened", "CallReopened", "CallSealed", "CallStarted",
        "Demo", "End", "Ending", "Fail", "Keywords", "MessageBegan", "MessageEnded", "Notice", "Pause", "Raise", "Raw", "ReasoningDelta",
        "Restarted", "RunEnded", "Suspended", "SystemMessage", "TextDelta", "Thought", "TouchedKeys", "UserMessage",
    ]  # fmt: skip


def test_documented_agent_events_match_the_code() -> None:
    """The table has each event that `agent.stream` may yield, with all of its fields."""
    shown = {name: row[-1].replace("`", "") for name, row in table("docs/reference/agent-events.md", "# Events of an agent").items()}
    assert shown == {kind.__name__: ", ".join(kind.__struct_fields__) for kind in get_args(AgentEvent)}


def test_documented_limits_match_the_code() -> None:
    shown = table("docs/reference/limits.md", "# Limits")
    assert {name: row[0] for name, row in shown.items()} == {name: f"`{getattr(Limits(), name)!r}`" for name in Limits.__struct_fields__}
    retries = {name: row[0] for name, row in table("docs/reference/limits.md", "## Retries").items()}
    journal = {name: row[0] for name, row in table("docs/reference/limits.md", "## A journal on disk or on a server").items()}
    assert journal == {
        name: f"`{getattr(_engine_limits, name)!r}`"
        for name in _engine_limits.__all__
        if name.endswith("_S") or name.startswith("JOURNAL_")
    }
    memory = {name: row[0] for name, row in table("docs/reference/limits.md", "## A memory").items()}
    assert memory == {name: f"`{getattr(MemoryLimits(), name)!r}`" for name in MemoryLimits.__struct_fields__}
    assert retries == {name: f"`{getattr(RetryPolicy(), name)!r}`" for name in RetryPolicy.__struct_fields__}


def test_documented_judge_and_process_limits_match_the_code() -> None:
    judge = {name: row[0] for name, row in table("docs/reference/judge.md", "## Limits").items()}
    expected = {f"limits.{name}": f"`{getattr(JudgeLimits(), name)!r}`" for name in JudgeLimits.__struct_fields__}
    assert judge == {"timeout_s": f"`{inspect.signature(Judge).parameters['timeout_s'].default!r}`"} | expected
    process = {name: row[0] for name, row in table("docs/reference/runners.md", "## Process workers").items()}
    assert process == {name: f"`{getattr(ProcessLimits(), name)!r}`" for name in ProcessLimits.__struct_fields__}


def test_documented_providers_and_deadlines_match_the_code() -> None:
    shown = table("docs/reference/providers.md", "## Keys and addresses")
    keys = {name: f"`{of.key_name}`" + ("" if of.key_needed else ", optional") for name, of in PROVIDERS.items()}
    assert shown == {name: (keys[name], of.base_url + of.version or "yours") for name, of in PROVIDERS.items()}
    deadlines = {name: row[0] for name, row in table("docs/reference/providers.md", "## Deadlines").items()}
    assert deadlines == {name: f"`{getattr(Timeouts(), name)!r}`" for name in Timeouts.__struct_fields__}
    retries = {name: row[0] for name, row in table("docs/reference/providers.md", "## Retries").items()}
    assert retries == {name: f"`{getattr(Retries(), name)!r}`" for name in Retries.__struct_fields__}


def test_documented_log_queries_entries_and_commands_match_the_code() -> None:
    page = "docs/reference/log.md"
    fields_of_a_query = [name for cell in table(page, "## Queries") for name in split(cell)]
    assert sorted(fields_of_a_query) == sorted(EventQuery.__struct_fields__)
    entries = (ROOT / page).read_text(encoding="utf-8").split("## Entries of calls", 1)[1].split("\n## ", 1)[0]
    assert set(ToolCallEntry.__struct_fields__) <= set(re.findall(r"`(\w+)`", entries))
    commands = [cell.split()[0] for cell in table(page, "## Commands")]
    assert sorted(commands) == sorted(name for name in log_app if not name.startswith("-"))


def test_every_command_is_documented() -> None:
    shown = " ".join(table("docs/reference/command-line.md", "## Commands"))
    assert {name for name in app if not name.startswith("-")} <= set(re.findall(r"[a-z]+", shown))


def test_documented_inbox_functions_match_the_code() -> None:
    shown = {name.split("(")[0] for name in table("docs/reference/inbox.md", "## Functions and commands")}
    assert shown == {name for name in inbox.__all__ if inspect.isfunction(getattr(inbox, name))}


def test_documented_undo_refusals_match_the_code() -> None:
    assert set(table("docs/reference/undo.md", "## Refusals")) == set(get_args(get_type_hints(Conflict)["why"]))


def test_documented_hook_kinds_match_the_code() -> None:
    assert set(table("docs/reference/hooks.md", "# Hooks")) == set(get_args(get_type_hints(Hook)["kind"]))


def test_documented_names_of_callgate_testing_match_the_code() -> None:
    assert list(table("docs/reference/testing.md", "## What there is")) == testing.__all__


def test_documented_model_apis_match_the_code() -> None:
    assert set(table("docs/reference/models.md", "# Model APIs")) == set(known_apis())


def test_documented_agent_loop_settings_match_the_code() -> None:
    page = "docs/reference/agent.md"
    ends = {name: row[0].strip("`") for name, row in table(page, "## How a turn ends").items()}
    assert ends == dict(RUN_STATUS)
    assert set(table("docs/reference/agent-events.md", "## How a pass ends")) == set(get_args(PassStatus))
    assert set(table(page, "## Presets")) == set(PRESETS)
    settings = {name: row[0] for name, row in table(page, "## Settings").items()}
    assert list(settings) == list(Settings.__struct_fields__)
    plain = {name: value for name, value in settings.items() if name not in ("budget", "rules")}
    defaults = {name: getattr(Settings(), name) for name in plain}
    assert plain == {name: "none" if value is None else f"`{value}`" for name, value in defaults.items()}
    rules = {"failures": "`recover`", "errors_in_a_row": "`5`", "end_after_text": "none"}
    assert {name: row[0] for name, row in table(page, "## Loop rules").items()} == rules
    assert list(rules) == list(LoopRules.__struct_fields__)
    assert LoopRules() == LoopRules(failures="recover", errors_in_a_row=5, end_after_text=frozenset())
    assert {name: row[0] for name, row in table(page, "## Budget").items()} == {
        name: f"`{getattr(Budget(), name)}`" for name in Budget.__struct_fields__
    }
    assert {name: row[0] for name, row in table(page, "## Repetitions").items()} == {
        name: f"`{getattr(StuckLimits(), name)}`" for name in StuckLimits.__struct_fields__
    }


def test_documented_failure_classes_match_the_code() -> None:
    assert set(table("docs/reference/failures.md", "## Classes")) == FAILURE_CLASSES


def test_documented_failure_codes_match_the_code() -> None:
    """The tables have every code in the sources and no other, with the failure class of its error."""
    of_results = table("docs/reference/failures.md", "## Codes of results")
    raised = table("docs/reference/failures.md", "## Codes of errors that are raised")
    documented = {*of_results, *raised}
    given, literals = codes_in_the_sources()
    assert given <= documented
    assert documented <= literals
    for name in errors.__all__:
        kind: Any = getattr(errors, name)
        if inspect.isclass(kind) and issubclass(kind, CallFailed):
            assert f"`{kind.failure_class}`" in of_results[kind.code][0]
    assert {failure for row in of_results.values() for failure in re.findall(r"`(\w+)`", row[0])} <= FAILURE_CLASSES


def test_every_documented_error_of_the_module_of_errors_is_one_of_its_public_names() -> None:
    """A host that catches an error imports it by a name that no later version may drop."""
    rows = table("docs/reference/failures.md", "## Codes of errors that are raised").values()
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", " ".join(row)) if inspect.isclass(getattr(errors, name, None))}
    assert {"UsageError", "RunHeld"} <= documented
    assert documented <= set(errors.__all__)


def codes_in_the_sources() -> tuple[set[str], set[str]]:
    """Return each value given as `code` on the route, and every string constant."""
    given, literals = set[str](), set[str]()
    for path in SOURCE.rglob("*.py"):
        if {"builtins", "cli", "demo", "models", "testing", "_workspace"} & set(path.relative_to(SOURCE).parts):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                literals.add(node.value)
            value = node.value if isinstance(node, ast.keyword) and node.arg == "code" else None
            if isinstance(node, ast.ClassDef):
                given |= {code for line in node.body if (code := class_code(line))}
            if value is not None:
                given |= {part.value for part in ast.walk(value) if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    return given, literals


def class_code(line: ast.stmt) -> str:
    target = line.targets[0] if isinstance(line, ast.Assign) else line.target if isinstance(line, ast.AnnAssign) else None
    value = line.value if isinstance(line, (ast.Assign, ast.AnnAssign)) else None
    named = isinstance(target, ast.Name) and target.id == "code" and isinstance(value, ast.Constant)
    return value.value if named and isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def test_documented_event_kinds_match_the_code() -> None:
    assert {kind: row[0] for kind, row in table("docs/reference/events.md", "## Kinds").items()} == KINDS


def test_documented_rule_facts_conditions_and_keys_match_the_code() -> None:
    facts = {name: row[0] for name, row in table("docs/reference/rules.md", "## Facts").items()}
    assert facts.pop("arguments.NAME")
    assert facts == {name: fact.meaning for name, fact in FACTS.items()}
    assert set(table("docs/reference/rules.md", "## Conditions")) == set(TESTS)
    assert set(table("docs/reference/rules.md", "# Rules")) == RULE_KEYS
    judged = [row[0].split()[0] for row in table("docs/reference/rules.md", "## What is judged at most").values()]
    bounds = (
        _engine_limits.RULE_PATH_BYTES,
        _engine_limits.RULE_URL_CHARS,
        _engine_limits.RULE_COMMAND_CHARS,
        _engine_limits.RULE_TEXT_CHARS,
        _engine_limits.RULE_LIST_ITEMS,
    )
    assert judged == [str(bound) for bound in bounds]


def test_documented_tool_and_context_attributes_match_the_code() -> None:
    shown = {name: row[0] for name, row in table("docs/reference/tools.md", "## Attributes").items()}
    attributes = [name for name, kind in Tool.__annotations__.items() if "ClassVar" not in str(kind)]
    assert shown == {name: f"`{getattr(Tool, name)!r}`" for name in attributes}
    categories = {name: row[0].split("`")[1] for name, row in table("docs/reference/tools.md", "## Categories and effects").items()}
    assert categories == _EFFECT_OF
    cells = table("docs/reference/tool-context.md", "# The context of a tool")
    context = {re.sub(r"^await |\(.*", "", name) for cell in cells for name in split(cell)}
    assert context == CONTEXT


def split(cell: str) -> list[str]:
    return [cell] if "(" in cell else cell.split(", ")


def test_documented_replay_decisions_and_changes_match_the_code() -> None:
    assert set(table("docs/reference/replay.md", "## Decisions")) == set(get_args(Word))
    shown = table("docs/reference/replay.md", "## Changes")
    assert {"", *shown} == set(get_args(Change))
    assert {name for name, row in shown.items() if row[1] == "yes"} == _DIFFERS


def test_documented_exit_codes_match_the_code() -> None:
    shown = {row[0].strip("`"): int(code) for code, row in table("docs/reference/exit-codes.md", "# Exit codes").items()}
    assert shown == {name: getattr(_exits, name) for name in _exits.__all__}


def test_documented_dialects_match_the_code() -> None:
    shown = {name: (families, opener.strip("` ").replace("\\|", "|")) for name, (families, opener) in dialect_rows().items()}
    assert shown == {one.name: (one.families, one.openers[0].strip("` ")) for one in DIALECTS.values()}


def dialect_rows() -> dict[str, tuple[str, ...]]:
    return table("docs/reference/dialects.md", "## Dialects")


def test_documented_run_options_and_events_match_the_code() -> None:
    options = {f"--{option.name.replace('_', '-')}" for option in fields(RunOptions)}
    assert set(table("docs/reference/run.md", "## Options")) == options
    shown = {name: re.findall(r"`(\w+)`", row[0]) for name, row in table("docs/reference/run.md", "## Events").items()}
    assert shown == {kind.__struct_config__.tag: list(kind.__struct_fields__) for kind in get_args(CommandEvent)}


def test_documented_exit_codes_of_callgate_run_match_the_code() -> None:
    shown = table("docs/reference/exit-codes.md", "## Of `callgate run`")
    assert [row[0].strip("`") for row in shown.values()] == ["0", "1", "4", "5", "130", "129", "143"]
    assert [name.split(":")[0] for name in shown][:4] == sorted(_CODES, key=_CODES.__getitem__)


def test_the_architecture_page_lists_every_module_in_its_layer() -> None:
    """The layers are those that the import check enforces."""
    shown = table("ARCHITECTURE.md", "## Layers")
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"][0]["layers"]
    layers = [[name.strip().removeprefix("callgate.") for name in re.split("[|:]", layer)] for layer in contract]
    listed = [name for layer in layers for name in layer]
    assert list(shown) == listed
    assert [int(row[0]) for row in shown.values()] == [number for number, layer in enumerate(reversed(layers), 1) for _ in layer][::-1]
    present = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()} - {"__init__", "__main__"}
    assert set(listed) == present
