"""What `from callgate import ...` gives, in a fresh interpreter: names, modules, and what to write instead of a wrong name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.waiting import COMMAND_S


def run(code: str) -> str:
    """Return the last line that a fresh interpreter prints."""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=COMMAND_S)
    return (ran.stdout + ran.stderr).strip().splitlines()[-1]


@pytest.mark.parametrize("module", ["agent", "engine", "errors", "gateway", "mcp", "memory", "policy", "testing", "tools"])
def test_a_module_is_imported_from_the_package_also_if_a_class_has_nearly_its_name(module: str) -> None:
    assert run(f"from callgate import {module}; print({module}.__name__)") == f"callgate.{module}"


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("SQLiteJournal", "from callgate import SqliteJournal"),
        ("rawcall", "from callgate import RawCall"),
        ("Gateway", "from callgate.gateway import Gateway"),
        ("CallgateToolNode", "from callgate.integrations.langgraph import CallgateToolNode"),
    ],
)
def test_a_name_that_is_nearly_right_is_answered_with_what_to_write(name: str, written: str) -> None:
    assert run(f"from callgate import {name}") == f"ImportError: cannot import name '{name}' from 'callgate'. Write: {written}"


def test_a_name_that_is_unknown_is_no_attribute() -> None:
    assert run("import callgate; print(hasattr(callgate, 'nothing'), hasattr(callgate, 'memory'))") == "False False"


@pytest.mark.parametrize("module", ["callgate.agent", "callgate.demo"])
def test_the_patterns_of_calls_in_text_are_not_loaded_before_a_model_needs_them(module: str) -> None:
    """They take a tenth of a second, each time that a process starts."""
    assert run(f"import sys, {module}; print('callgate.models.dialects' in sys.modules)") == "False"
