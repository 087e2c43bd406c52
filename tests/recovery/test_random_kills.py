"""Tests that kill workers at random moments from a process without an engine and count the effects in an independent ledger.

These tests make a few kills; `make faults` makes a thousand, also over PostgreSQL.
"""

from __future__ import annotations

import sys

import pytest

from tests.forked_python import python


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="forks and kills")
def test_random_kills_never_repeat_an_effect_or_report_a_wrong_outcome() -> None:
    done = python("import sys; from tests.recovery.random_kills import main; sys.exit(main(20, 'file'))")
    assert done.code == 0, done.out + done.err
    assert "20 kills" in done.out
