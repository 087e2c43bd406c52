"""Tools of a program whose import in a worker process takes longer than the timeout of a call."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

PROGRAM = """
import asyncio, logging, time
from callgate import Engine, RawCall, tool

logging.basicConfig(format="%(levelname)s %(message)s")
if __name__ != "__main__":
    with open("imports.log", "a") as file:
        file.write("begun\\n")
    time.sleep(2)

@tool(effect="none", runner="process", timeout_s=1, retryable=False)
def report(number: int) -> str:
    "Report."
    return f"report {number}"

async def main():
    async with Engine([report]) as engine:
        for number in range(10):
            result = (await engine.call(RawCall(name="report", arguments={"number": number}))).result
            print(result.status, result.failure_class, result.text)
            if result.success:
                break

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_a_tool_whose_import_takes_longer_than_its_timeout_is_imported_for_the_next_call(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM, encoding="utf-8")
    environment = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "app.py"], cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    *refused, made = done.stdout.splitlines()
    assert made.startswith("ok "), done
    assert "took longer than the timeout. It is imported now for the next call" in refused[0]
    assert all("not_started" in line for line in refused)
    begun = len((tmp_path / "imports.log").read_text(encoding="utf-8").splitlines())
    assert begun in (1, 2), "calls wait for the worker that imports"  # a slow machine ends the first worker before it comes to the file
    assert done.stderr.count("s to import") == 1
    assert "app.py for the tool report, which is longer than the 1.0 s that its call may take" in done.stderr
