"""The fixture server conforms by itself, so whatever fails behind a gateway is the gateway's fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.fixture_server import FixtureServer
from tests.conformance.suite import REVISIONS, Suite

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_fixture_passes_every_required_server_scenario(suite: Suite, tmp_path: Path, revision: str) -> None:
    with FixtureServer() as fixture:
        verdicts = suite.server(fixture.url, revision, tmp_path)
    assert len(verdicts.required) == {"2025-11-25": 30, "2026-07-28": 37}[revision]
    assert verdicts.conforms, str(verdicts)
    assert all(verdicts.required.values())
    assert all(good or name.startswith("tasks-") for name, good in verdicts.optional.items())
