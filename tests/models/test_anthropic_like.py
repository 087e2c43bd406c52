"""Messages in Anthropic's form from hosts and servers that are not Anthropic, and what only its newer tools say."""

from __future__ import annotations

import json

import pytest

from tests.models.reading import calls_of, finished, read
from tests.models.talk import answered, sent
from tests.models.test_anthropic_messages import API, call, end


@pytest.mark.parametrize(
    ("said", "reason", "closed"),
    [
        ("tool_calls", "tool_calls", "sealed"),
        ("stop", "tool_calls", "sealed"),
        ("length", "length", "cut"),
        ("sensitive", "content_filter", "cut"),
    ],
)
def test_reasons_in_the_words_of_another_api_are_known(said: str, reason: str, closed: str) -> None:
    """From servers that speak this form before models of other makers; a call without arguments was never run there."""
    events = read(API, call(0, "a", "f") + end(said))
    assert (finished(events).reason, calls_of(events)[0][3]) == (reason, closed)


def test_a_passing_failure_of_the_host_may_be_tried_again() -> None:
    """Vertex answers in Google's words, also to requests in this form."""
    failure = {"error": {"code": 429, "message": "Busy.", "status": "RESOURCE_EXHAUSTED"}}
    for body in (failure, [failure]):
        fault = finished(read(API, json.dumps(body).encode(), streamed=False)).fault
        assert fault is not None
        assert (fault.code, fault.message, fault.retryable) == ("RESOURCE_EXHAUSTED", "Busy.", True)


def test_a_call_and_its_result_say_which_toolset_they_are_of() -> None:
    """The API refuses the one without the other."""
    events = read(API, call(0, "a", "find", '{"q": "x"}', toolset_name="browser") + end())
    turns = sent(API, answered(events))["messages"]
    assert [turns[at]["content"][0]["toolset_name"] for at in (1, 2)] == ["browser", "browser"]
    elsewhere = sent("bedrock.invoke", answered(events))["messages"]
    assert not [block for turn in elsewhere for block in turn["content"] if "toolset_name" in block]
