"""A key goes to its provider, and is shown nowhere else."""

from __future__ import annotations

import logging
import traceback

import pytest

from callgate.errors import ModelUnreachable
from callgate.testing import Fail, Reply, ScriptedServer
from tests.models.asking import KEY, NO_WAIT, ONCE, ask, at
from tests.models.reading import finished


@pytest.mark.parametrize("status", [200, 401, 500])
async def test_a_key_is_never_shown(status: int, caplog: pytest.LogCaptureFixture) -> None:
    """Not by a provider that repeats it, nor in a log, nor as the text of an object."""
    caplog.set_level(logging.DEBUG)
    fail = Fail("invalid_api_key", f"Incorrect API key provided: {KEY}.")
    async with ScriptedServer(lambda _: Reply(turn=fail, status=status)) as server:
        of = at(server, retries=NO_WAIT)
        events = await ask(of)
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
        shown = [repr(events), repr(of), caplog.text]
        await of.close()
    assert not [text for text in shown if KEY in text]
    assert finished(events).reason == "error"


async def test_a_key_is_not_in_errors() -> None:
    of = at(f"http://user:{KEY}@127.0.0.1:1/{KEY}", retries=ONCE)
    with pytest.raises(ModelUnreachable) as caught:
        await ask(of)
    assert KEY not in "".join(traceback.format_exception(caught.value))
    await of.close()


async def test_a_redirect_is_not_followed() -> None:
    """Nowhere: the key and the conversation would go along."""
    async with ScriptedServer(["caught"]) as elsewhere:
        away = Reply(turn=Fail(), status=307, headers={"location": f"{elsewhere.url}/chat/completions"})
        async with ScriptedServer([away]) as server:
            events = await ask(of := at(server))
            await of.close()
        assert elsewhere.requests == []
    fault = finished(events).fault
    assert fault is not None
    assert "redirect" in fault.message
