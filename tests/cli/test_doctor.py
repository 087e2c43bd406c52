"""`callgate doctor`: which guarantees hold on this machine, determined by trying them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.shell import shell


@pytest.mark.process
def test_doctor_reports_every_check_and_leaves_no_files(tmp_path: Path) -> None:
    done = shell(tmp_path, "doctor", "--json")
    states = {check["name"]: check["state"] for check in done.json["checks"]}
    facts = {check["name"]: check["fact"] for check in done.json["checks"]}
    assert (done.code, done.json["ok"]) == (0, True)
    assert {states[name] for name in ("python", "packages", "sqlite", "journal", "process: test call")} == {"ok"}
    assert sys.executable in facts["python"]
    assert "workspace" in states
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_doctor_reports_an_unwritable_journal_path_with_the_next_step(tmp_path: Path) -> None:
    done = shell(tmp_path, "doctor", "--json", CALLGATE_JOURNAL=f"{__file__}/journal.db", TOOL_EXECUTION_TIMEOUT_MS="20000")
    checks = {check["name"]: check for check in done.json["checks"]}
    assert checks["journal's place"]["state"] == "weak"
    assert "--journal" in checks["journal's place"]["fact"]
    assert checks["call deadline"]["fact"].startswith("20 s")


def test_doctor_reports_an_invalid_timeout_in_the_environment(tmp_path: Path) -> None:
    done = shell(tmp_path, "doctor", "--json", STREAM_SDK_CALL_TIMEOUT_MS="soon")
    (silence,) = (check for check in done.json["checks"] if check["name"] == "model's silence")
    assert (done.code, silence["state"]) == (1, "broken")
    assert "STREAM_SDK_CALL_TIMEOUT_MS is 'soon'" in silence["fact"]
