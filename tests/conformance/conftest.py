from __future__ import annotations

import pytest

from tests.conformance.suite import Suite


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    """The conformance suite of MCP, from npm."""
    return Suite(tmp_path_factory.getbasetemp().parent)
