"""Write a recorded run as a pytest file. Pure text.

The file is short and meant to be read and edited; the recorded data is in a file beside it (`run_file`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from callgate.calls import Text
from callgate.policy.default_rules import CAREFULLY
from callgate.replay.rebuild_run import Replay

__all__ = ["as_test", "was_careful"]

_ODD = re.compile(r"[^\w .,:;/!?()@#%&+=<>'-]")
_TASK = 60


def as_test(replay: Replay, test: Path, data: Path, *, tools: Sequence[str], policy: str) -> str:
    """Return the text of a test file.

    Args:
        replay: The run.
        test: The path of the test file.
        data: The path of the recorded data, in the same folder.
        tools: The sources of tools, as on the command line.
        policy: The rule file; empty for no rules, or for the default rules of `callgate run`.
    """
    folder = test.resolve().parent
    imported, rules = _rules_code(replay, policy, folder)
    given = "\n".join(f"            {_source_code(spec, folder)}," for spec in tools)
    return f'''"""Run {_docstring_text(replay.run, 60)}, as it was recorded.

Does everything around the model still do the same? What the model said and what
the tools gave is in {_docstring_text(data.name, 60)}. The loop, the rules and the
schemas and checks of the tools are those of today; no tool's code is entered.
Written by `callgate replay --export`; change it as you like.
"""

from __future__ import annotations

from pathlib import Path

{imported}from callgate.testing import RecordedRun, load_tools

HERE = Path(__file__).parent
RUN = RecordedRun.load(HERE / {_literal(data.name)})


def test_{_test_name(replay.run)}_goes_as_it_went() -> None:
    """{_describe_run(replay)}"""
    again = RUN.again(
        tools=load_tools(
{given}
        ),
        policies={rules},
    )
    assert again.differences == ()
'''


def was_careful(replay: Replay) -> bool:
    """Whether the run used the default rules of `callgate run`."""
    return any(call.decision is not None and call.decision.rule.partition(f"({CAREFULLY}")[1] != "" for call in replay.calls)


def _rules_code(replay: Replay, policy: str, folder: Path) -> tuple[str, str]:
    """Return the import for the rules, and the rules' expression."""
    if policy:
        return "from callgate import Rules\n", f"[Rules.load({_path_code(policy, folder)})]"
    return ("from callgate.policy import careful\n", "[careful()]") if was_careful(replay) else ("", "[]")


def _describe_run(replay: Replay) -> str:
    calls = f"{len(replay.calls)} call{'' if len(replay.calls) == 1 else 's'}"
    task = replay.began.task if replay.began is not None else None
    if task is None:
        return f"{calls}, without a model."
    parts = (Text(text=task.content),) if isinstance(task.content, str) else task.content
    text = " ".join(part.text for part in parts if isinstance(part, Text))
    return f"{_docstring_text(text, _TASK)!r}: {calls}, {_docstring_text(replay.end.turn_status or 'no end', 40)}."


def _docstring_text(text: str, most: int) -> str:
    """Return text that is safe inside a docstring."""
    plain = _ODD.sub("?", " ".join(text.split())).replace("'", "`")
    return plain if len(plain) <= most else plain[: most - 1] + "…"


def _test_name(run: str) -> str:
    return re.sub(r"\W+", "_", run.encode("ascii", "ignore").decode()).strip("_").lower()[:60] or "the_run"


def _source_code(spec: str, folder: Path) -> str:
    """Return a source of tools relative to the test's folder."""
    place, colon, attribute = spec.rpartition(":") if ":" in spec else (spec, "", "")
    if not place.endswith(".py"):
        return _literal(spec)
    return _path_code(place, folder, behind=f"{colon}{attribute}")


def _path_code(file: str, folder: Path, behind: str = "") -> str:
    return f"HERE / {_literal(os.path.relpath(Path(file).resolve(), folder) + behind)}"


def _literal(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
