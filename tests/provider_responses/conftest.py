"""Each test begins with no refund, and ends with no client."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.provider_responses.sdk_requests import close_clients
from tests.provider_responses.shop import paid


@pytest.fixture(autouse=True)
async def _clean() -> AsyncIterator[None]:
    paid.clear()
    yield
    await close_clients()
