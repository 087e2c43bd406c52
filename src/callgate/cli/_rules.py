"""`callgate rules check`: check that a rule file is valid and that everything it names exists."""

from __future__ import annotations

from collections.abc import Sequence

from callgate._blob_store import MemoryBlobs
from callgate._terminal_text import one_line, printable
from callgate._tool_loading import load_tools
from callgate.cli import _exit_codes as _exits
from callgate.cli._console import output, print_json, say, tool_count
from callgate.errors import UsageError
from callgate.policy import Rules
from callgate.policy.rule_file import rules_text
from callgate.tools import ToolRegistry

__all__ = ["check_rules"]


def check_rules(file: str, specs: Sequence[str], *, as_json: bool) -> int:
    """Check a rule file against tools; return the exit code."""
    tools = tuple(ToolRegistry(load_tools(specs, MemoryBlobs())))
    text = rules_text(file)
    try:
        rules = Rules.parse(text, where=file)
        count, problems = len(rules.rules), rules.problems(tools)
    except UsageError as error:
        count, problems = 0, [str(error)]
    if as_json:
        print_json({"file": file, "rules": count, "tools": [tool.name for tool in tools], "problems": problems})
    elif problems:
        for problem in problems:
            say(printable(problem), "red")
    else:
        output().print(f"{one_line(file)}: {count} rules hold for {tool_count(len(tools))}.", markup=False, highlight=False)
    return _exits.FAILED if problems else _exits.OK
