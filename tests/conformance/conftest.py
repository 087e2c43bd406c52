from __future__ import annotations

import pytest

from tests.conformance.suite import Suite


@pytest.fixture(scope="session")
def suite() -> Suite:
    """The conformance suite of MCP, from npm."""
    return Suite()
