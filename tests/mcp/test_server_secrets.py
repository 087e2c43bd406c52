"""What a server writes to its standard error: no credentials for anybody, and nothing of it for a model."""

from __future__ import annotations

import logging
import sys

import pytest

from callgate import Engine
from callgate.errors import UsageError
from callgate.mcp import mcp
from tests.engine_calls import call, said

pytestmark = pytest.mark.process

TELLS = "import os,sys; print('broken by', os.environ['SETTING'], sys.argv[1:], file=sys.stderr); sys.exit(3)"
WORDS = [sys.executable, "-c", TELLS, "--token", "ARGUMENT-88", "API_KEY=WORD-99", "postgres://me:PASSWORD-7@host/?sig=QUERY-6"]
SECRETS = ("VARIABLE-1", "ARGUMENT-88", "WORD-99", "PASSWORD-7", "QUERY-6")


async def test_a_model_gets_nothing_of_the_stderr_of_a_server_and_the_log_gets_it_without_credentials(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG, "callgate"):
        async with Engine(servers=[mcp(WORDS, name="broken", env={"SETTING": "VARIABLE-1"}, tools=("look",))]) as engine:
            result = await said(engine, call("look"))
    assert "exited with code 3" in result.text
    assert "broken by" not in result.text
    assert "broken by ***" in caplog.text
    assert not [secret for secret in SECRETS if secret in caplog.text]


async def test_the_error_of_a_required_server_shows_its_stderr_without_credentials() -> None:
    with pytest.raises(UsageError) as caught:
        await Engine(servers=[mcp(WORDS, name="broken", env={"SETTING": "VARIABLE-1"}, required=True)]).__aenter__()
    assert "broken by ***" in str(caught.value)
    assert not [secret for secret in SECRETS if secret in str(caught.value)]
