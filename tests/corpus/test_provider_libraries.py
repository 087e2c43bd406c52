"""Recorded answers of real providers, read by callgate's decoders and by the providers' own libraries."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.corpus.input_files import rows
from tests.models.official_clients import PEERS, ours, same_told

pytestmark = pytest.mark.filterwarnings("ignore")


def exchanges(api: str) -> list[Any]:
    """Return every readable answer of this API, with the name of its recording."""
    found = []
    for row in rows(f"traffic/{api}.jsonl"):
        episode = row.values[0]
        if not episode:
            return [pytest.param(api, {}, marks=row.marks)]
        for number, exchange in enumerate(episode["exchanges"]):
            if exchange["api"] == api and not exchange.get("unreadable") and 200 <= (exchange["status"] or 0) < 300:
                found.append(pytest.param(api, exchange, id=f"{api}-{row.id}-{number}"))
    return found


@pytest.mark.parametrize(("api", "exchange"), [row for api in PEERS for row in exchanges(api)])
def test_our_decoder_agrees_with_the_library_of_the_provider(api: str, exchange: dict[str, Any]) -> None:
    """Skipped if the library itself fails on the answer of its provider."""
    body = base64.b64decode(exchange["body_b64"]) if "body_b64" in exchange else exchange["body"].encode("utf-8", "surrogatepass")
    streamed = bool(exchange["streamed"])
    try:
        theirs = PEERS[api](body, streamed=streamed)
    except Exception as error:
        pytest.skip(f"the library raises {type(error).__name__}: {str(error)[:100]}")
    told = ours(api, body, streamed=streamed)
    if body.count(b"event: message_start") > 1:  # the library merges the texts of consecutive messages
        told, theirs = (told[0], ""), (theirs[0], "")
    assert same_told(told, theirs), json.dumps([told, theirs], default=str)[:2000]
