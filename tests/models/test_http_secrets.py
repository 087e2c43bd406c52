"""An API key is sent to its provider and shown nowhere else."""

from __future__ import annotations

import json
import logging
import traceback

import pytest
from msgspec.structs import replace

from callgate.errors import ModelUnreachable
from callgate.memory import EmbedderFailed, EmbeddingsEndpoint
from callgate.testing import End, Fail, Raw, Reply, ScriptedServer
from tests.models.decoding import finished
from tests.models.http_requests import KEY, NO_WAIT, ONCE, REQUEST, ask, at


@pytest.mark.parametrize("status", [200, 401, 500])
async def test_an_api_key_is_not_shown_in_events_logs_or_reprs(status: int, caplog: pytest.LogCaptureFixture) -> None:
    """The provider may repeat it in an error; logs and reprs must not contain it."""
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


async def test_an_api_key_is_not_shown_in_errors() -> None:
    of = at(f"http://user:{KEY}@127.0.0.1:1/{KEY}", retries=ONCE)
    with pytest.raises(ModelUnreachable) as caught:
        await ask(of)
    assert KEY not in "".join(traceback.format_exception(caught.value))
    await of.close()


async def test_a_redirect_is_not_followed() -> None:
    """A redirect would send the key and the conversation to another address."""
    async with ScriptedServer(["caught"]) as elsewhere:
        away = Reply(turn=Fail(), status=307, headers={"location": f"{elsewhere.url}/chat/completions"})
        async with ScriptedServer([away]) as server:
            events = await ask(of := at(server))
            await of.close()
        assert elsewhere.requests == []
    fault = finished(events).fault
    assert fault is not None
    assert "redirect" in fault.message


def replies(padding: str) -> list[Reply]:
    """Return replies that repeat the key after this padding, so that the key may cross the limit of a truncated text."""
    text = f"{padding}{KEY}"
    return [
        Reply(turn=Fail("refused", text), status=401),
        Reply(turn=[Raw(text.encode())], status=500),
        Reply(turn=[Raw(json.dumps({"odd": text}).encode())], status=400),
        Reply(turn=Fail(), status=307, headers={"location": f"http://127.0.0.1/{text}"}),
        Reply(turn=[Raw(f"data: {{{text}\n\n".encode()), End("cut")]),
        Reply(turn=[Raw(text.encode())], headers={"content-type": f"text/{text}"}),
        Reply(turn=[Raw(b"x")], headers={"content-encoding": text}),
        Reply(turn=[End(text)]),  # type: ignore[arg-type]
    ]


@pytest.mark.parametrize("limit", [60, 80, 120, 200, 300, 500, 2_000])
async def test_no_part_of_an_api_key_is_shown_where_a_text_is_truncated(limit: int) -> None:
    """If redaction came after truncation, a part of the key at the limit would not be recognised."""
    for kept in (0, 5, len(KEY) - 1, len(KEY)):
        for place in range(len(replies(""))):
            async with ScriptedServer(lambda _, kept=kept, place=place: replies("p" * (limit - kept))[place]) as server:  # type: ignore[misc]
                for request in (REQUEST, replace(REQUEST, stream=False)):
                    events = await ask(of := at(server, retries=ONCE), request)
                    await of.close()
                    fault = finished(events).fault
                    assert fault is None or KEY[:8] not in fault.message + fault.code, (kept, place)


@pytest.mark.parametrize("url", [f"http://user:{KEY}@127.0.0.1:1/v1", f"http://127.0.0.1:1/v1?key={KEY}"])
def test_credentials_in_an_embeddings_url_are_not_shown(url: str) -> None:
    with EmbeddingsEndpoint(url, "m", 3) as embedder, pytest.raises(EmbedderFailed) as caught:
        embedder(["x"])
    assert KEY not in "".join(traceback.format_exception(caught.value))
    assert "http://127.0.0.1:1/v1" in str(caught.value)
