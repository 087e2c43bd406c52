"""callgate's MCP client keeps to the protocol: exactly these scenarios of the conformance suite pass, of those that a revision requires.

A new name in the list is progress; a missing one is a regression.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import pytest

from tests.conformance import client
from tests.conformance.suite import Suite

pytestmark = [pytest.mark.process, pytest.mark.slow]

PASSED: Final = {
    "2025-11-25": {"initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry"},
    "2026-07-28": {
        "tools_call",
        "request-metadata",
        "sep-2322-client-request-state",
        "http-standard-headers",
        "http-custom-headers",
        "http-invalid-tool-headers",
        "json-schema-ref-no-deref",
    },
}
"""All that are not about authorization."""
AUTHORIZATION: Final = {"2025-11-25": 14, "2026-07-28": 25}
"""The number of required scenarios about authorization with OAuth, which the client does not have."""


@pytest.mark.parametrize("revision", PASSED)
def test_the_client_passes_these_required_scenarios(suite: Suite, tmp_path: Path, revision: str) -> None:
    verdicts = suite.client(f"{sys.executable} {client.__file__}", revision, tmp_path)
    assert verdicts.passed() == PASSED[revision], str(verdicts)
    failed = verdicts.required.keys() - verdicts.passed()
    assert len(failed) == AUTHORIZATION[revision]
    assert all(name.startswith("auth/") for name in failed)
    assert verdicts.optional["json-schema-2020-12-preservation"]
