"""The programs on the how-to pages of frameworks: each runs before and after the change, which has at most ten lines."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import COMMAND_S

_HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
_DIFF = re.compile(r"^```diff (\w+)\n(.*?)^```\n\n^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CHANGED = 10

_LANGCHAIN = """
from tests.integrations.langchain_agents import ScriptedChat, call, says
scripted = ScriptedChat(steps=[
    says({calls}), says(call("book_table", "c2", city="Rome", guests=2)), says(text="Done.")])
def init_chat_model(name):
    return scripted
"""
_PYDANTIC_AI = """
from tests.integrations.contract import Call
from tests.integrations.test_pydantic_ai_contract import scripted as messages, told_in
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
first = messages([Call("balance"), Call("transfer", {"to": "Bob", "amount": 10}, "c2")])
def answer(history, info):
    told = told_in(history)
    return ModelResponse(parts=[TextPart(", ".join(one.text for one in told.values()))]) if told else first.function(history, info)
scripted = FunctionModel(answer)
"""
_BOOKING = """
from tests.integrations.contract import Call
calls = [Call("get_weather", {"city": "Rome"}), Call("book_table", {"city": "Rome", "guests": 2}, "c2")]
"""
_OPENAI_AGENTS = (
    _BOOKING
    + """
from agents import set_tracing_disabled
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
def answer(call):
    outputs = [item["output"] for item in call.input if item.get("type") == "function_call_output"]
    return ModelStep(output=[assistant_message(" ".join(outputs))])
set_tracing_disabled(True)
scripted = ScriptedModel([[function_call(one.name, one.arguments, call_id=one.id) for one in calls], ModelStep(responder=answer)])
"""
)
_AGENT_FRAMEWORK = (
    _BOOKING
    + """
import sys
from types import SimpleNamespace
from tests.integrations.agent_framework_agents import ScriptedClient, told_in
class Client(ScriptedClient):
    def _inner_get_response(self, *, messages, **options):
        told = told_in(messages)
        self._steps = iter([" ".join(one.text for one in told.values()) if told else calls])
        return super()._inner_get_response(messages=messages, **options)
sys.modules["agent_framework.openai"] = SimpleNamespace(OpenAIChatClient=lambda model: Client())
scripted = None
"""
)
_PRELUDES = {
    ("use-with-langchain", "agent"): _LANGCHAIN.replace("{calls}", 'call("get_weather", city="Rome")'),
    ("use-with-langchain", "graph"): _LANGCHAIN.replace('says({calls}), says(call("book', 'says(call("book'),
    ("use-with-pydantic-ai", "agent"): _PYDANTIC_AI,
    ("use-with-openai-agents", "agent"): _OPENAI_AGENTS,
    ("use-with-agent-framework", "agent"): _AGENT_FRAMEWORK,
}
"""What replaces the model of a program, by page and name of the program."""


def _programs() -> list[tuple[str, str, str, str]]:
    return [
        (page, found[1], found[2], found[3])
        for page in dict.fromkeys(page for page, _ in _PRELUDES)
        for found in _DIFF.finditer(_text(page))
    ]


def _text(page: str) -> str:
    return (_HOW_TO / f"{page}.md").read_text(encoding="utf-8")


def _side(diff: str, mark: str) -> str:
    """Return the program before (`-`) or after (`+`) the change."""
    return "".join(f"{line[1:]}\n" for line in diff.splitlines() if line[:1] in (mark, " ", ""))


_FORKING = """
import os, runpy, sys
sys.path[:] = sys.argv[1:]
runpy.run_path("prelude.py")
for folder in ("before", "after"):
    if (child := os.fork()) == 0:
        os.chdir(folder)
        os.dup2(os.open("shown", os.O_WRONLY | os.O_CREAT, 0o600), 1)
        runpy.run_path("program.py", run_name="__main__")
        sys.exit()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
"""Runs both programs in processes that are forked from one that has imported the framework, which takes more than a second."""


def _run_both(diff: str, prelude: str, folder: Path) -> tuple[str, str]:
    """Return what the programs before and after the change print, each in the folder of its name."""
    (folder / "prelude.py").write_text(prelude, encoding="utf-8")
    for name, mark in (("before", "-"), ("after", "+")):
        (folder / name).mkdir()
        (folder / name / "program.py").write_text(prelude + _with_scripted_model(_side(diff, mark)), encoding="utf-8")
    command = [sys.executable, "-c", _FORKING, *sys.path]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    assert ended.returncode == 0, ended.stderr
    before, after = ((folder / name / "shown").read_text(encoding="utf-8") for name in ("before", "after"))
    return before, after


def _with_scripted_model(program: str) -> str:
    for model in ('init_chat_model("openai:gpt-5").bind_tools([book_table])', '"openai:gpt-5"', '"gpt-5"'):
        program = program.replace(model, "scripted")
    return program


@pytest.mark.slow
@pytest.mark.parametrize(("page", "name", "diff", "shown"), _programs(), ids=[f"{page} {name}" for page, name, *_ in _programs()])
def test_a_tutorial_program_works_before_and_after_a_change_of_at_most_ten_lines(
    page: str, name: str, diff: str, shown: str, tmp_path: Path
) -> None:
    assert sum(line.startswith(("+", "-")) for line in diff.splitlines()) <= _CHANGED
    before, after = _run_both(diff, _PRELUDES[page, name], tmp_path)
    assert not (tmp_path / "before" / "calls.db").exists()
    assert (tmp_path / "after" / "calls.db").exists()
    assert before == after
    for line in shown.splitlines():
        assert line in after


def test_all_pages_have_their_programs() -> None:
    assert {(page, name) for page, name, *_ in _programs()} == set(_PRELUDES)
