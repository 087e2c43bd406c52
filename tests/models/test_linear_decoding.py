"""The work of decoding is linear in the number of bytes, whatever they contain: a hostile server cannot block the event loop."""

from __future__ import annotations

import pytest

from callgate.models.model_events import CallSealed
from callgate.models.wire import codec, known_apis, message_assembly
from tests.models.decoding import finished, read
from tests.models.hostile_bodies import BODIES
from tests.models.work_counter import is_linear, steps

SHAPES = [(api, name) for api, bodies in BODIES.items() for name in bodies]


def cost(api: str, body: bytes, size: int) -> int:
    """Return the number of steps to decode a body that arrives in pieces of `size` bytes."""
    decoder = codec(api).decoder()

    def work() -> None:
        for at in range(0, len(body), size):
            decoder.feed(body[at : at + size])
        decoder.close()

    return steps(work)


def test_hostile_bodies_exist_for_every_api() -> None:
    assert set(BODIES) == set(known_apis())


@pytest.mark.parametrize(("api", "name"), SHAPES)
def test_decoding_work_is_linear_in_the_bytes(api: str, name: str) -> None:
    assert is_linear(lambda n: cost(api, BODIES[api][name](n), 4_096), 40)


@pytest.mark.parametrize(("api", "name"), [(api, next(iter(bodies))) for api, bodies in BODIES.items()])
def test_decoding_work_is_linear_if_the_bytes_arrive_one_by_one(api: str, name: str) -> None:
    assert is_linear(lambda n: cost(api, BODIES[api][name](n), 1), 10)


@pytest.mark.parametrize(
    ("api", "name"),
    [
        ("openai.chat", "open calls"),
        ("openai.responses", "open items"),
        ("anthropic.messages", "open calls"),
        ("gemini.generate", "calls"),
        ("gemini.interactions", "open calls"),
        ("bedrock.converse", "open calls"),
        ("bedrock.invoke", "open calls"),
        ("cohere.chat", "open calls"),
        ("ollama.chat", "calls"),
    ],
)
def test_a_message_with_more_calls_than_the_limit_fails(api: str, name: str) -> None:
    """The whole message fails, because it is unknown which of its calls matter most."""
    decoder = codec(api).decoder(calls_per_message=5)
    events = [*decoder.feed(BODIES[api][name](9)), *decoder.close()]
    end = finished(events)
    assert (len(end.message.calls), end.reason, decoder.done) == (5, "error", True)
    assert end.fault is not None
    assert (end.fault.code, end.fault.retryable) == ("too_many_calls", False)
    assert "more than 5 calls" in end.fault.message
    assert [event for event in events if isinstance(event, CallSealed) and event.closed == "finished"] == []


def test_a_message_with_too_many_parts_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other parts than calls use memory as well."""
    monkeypatch.setattr(message_assembly, "_MAX_PARTS", 10)
    end = finished(read("openai.chat", BODIES["openai.chat"]["text and thoughts in turns"](30)))
    assert (len(end.message.parts), end.fault and end.fault.code) == (10, "too_large")


def test_a_tool_name_that_exceeds_the_limit_fails() -> None:
    end = finished(read("openai.chat", BODIES["openai.chat"]["a name in pieces"](5_000)))
    assert end.fault is not None
    assert (end.fault.code, len(end.message.calls[0].name)) == ("too_large", 4_096)
