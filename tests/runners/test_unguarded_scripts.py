"""Tests of scripts that use an engine at their top level: a worker process imports the script, and must not run its calls again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

TOOLS = """
import logging, sys
from callgate import Engine, RawCall, tool
logging.basicConfig(format="%(levelname)s %(message)s")

@tool
def pay(invoice: str) -> str:
    "Pay."
    open("paid.log", "a").write(invoice + "\\n")
    return "paid"

@tool(runner="process")
def report(number: int) -> str:
    "Report."
    return "reported"
"""
SYNC = """
engine = Engine([pay, report], timeout_s=60)
engine.call_sync(RawCall(name="pay", arguments={"invoice": "A"}))
print(engine.call_sync(RawCall(name="report", arguments={"number": 1})).message()["content"])
"""
ASYNC = """
import asyncio
async def main():
    async with Engine([pay, report], timeout_s=60) as engine:
        await engine.call(RawCall(name="pay", arguments={"invoice": "A"}))
        print((await engine.call(RawCall(name="report", arguments={"number": 1}))).message()["content"])
asyncio.run(main())
"""


def ran(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "app.py").write_text(TOOLS + code)
    environment = {"PYTHONPATH": ":".join(sys.path)}
    return subprocess.run([sys.executable, "app.py"], cwd=folder, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.parametrize("code", [SYNC, ASYNC], ids=["sync", "async"])
def test_a_worker_that_imports_an_unguarded_script_does_not_run_its_calls_again(code: str, tmp_path: Path) -> None:
    done = ran(code, tmp_path)
    assert (tmp_path / "paid.log").read_text() == "A\n"
    assert "report failed: it was not started, because it cannot be loaded in a worker process; the operator has been told." in done.stdout
    assert "__main__" not in done.stdout
    assert str(tmp_path) not in done.stdout
    assert "ERROR The tool report failed: it was not started" in done.stderr
    assert "if __name__ == '__main__'" in done.stderr


def test_a_guarded_script_runs_its_process_tool(tmp_path: Path) -> None:
    done = ran('if __name__ == "__main__":' + SYNC.replace("\n", "\n    "), tmp_path)
    assert done.stdout == "reported\n", done.stderr
    assert (tmp_path / "paid.log").read_text() == "A\n"
