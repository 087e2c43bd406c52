"""The examples that a newcomer copies pass the strictest type check as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from callgate import Aborted, Answered, Engine, Restarted, Suspended, UsageError, tool
from callgate.calls import Outcome
from tests.engine_calls import call

ROOT = Path(__file__).parent.parent
PAGES = [
    ("README.md", 1),
    ("docs/how-to/use-your-own-loop.md", None),
    ("docs/how-to/stream-responses.md", None),
    ("docs/reference/own-loops.md", None),
]


def test_the_examples_of_pages_pass_mypy_strict(tmp_path: Path) -> None:
    """The README's second example is a fragment without types."""
    for page, most in PAGES:
        blocks = re.findall(r"```python\n(?!# not run)(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
        assert blocks
        example = tmp_path / f"{Path(page).stem.replace('-', '_')}.py"
        example.write_text("\n\n".join(blocks[:most]), encoding="utf-8")
    # With the options of `make check`, so that each uses what the other has cached.
    config = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    command = [sys.executable, "-m", "mypy", "--strict", *config, "."]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(PAGES)} source files" in done.stdout


async def test_an_answered_call_has_the_message_to_append() -> None:
    @tool
    async def add(a: int) -> int:
        """Add."""
        return a + 1

    async with Engine([add]) as engine:
        outcome = await engine.call(call("add", id="c1", a=1))
    assert isinstance(outcome, Answered)
    assert outcome.message() == {"role": "tool", "tool_call_id": "c1", "content": "2"}


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (
            Suspended("r/0/0", 1, "Pay A7?"),
            r"A human has to decide.*Pay A7\?.*engine\.approve\('r/0/0'\) or engine\.deny\(.*hand the same call in",
        ),
        (Aborted("error", "It has no name."), r"Aborted, error\): It has no name\. Add no message of it, and end the turn"),
        (Restarted("r/0/0"), "add no message, and ask the model again"),
    ],
    ids=["suspended", "aborted", "restarted"],
)
def test_an_outcome_without_a_result_says_what_to_do_instead_of_appending(outcome: Outcome, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        outcome.message()
