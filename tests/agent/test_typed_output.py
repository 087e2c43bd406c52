"""`Agent(output=T)`: strict JSON of that type, with or without a code block, and never from a truncated answer."""

from __future__ import annotations

import pytest

from callgate.agent import Agent
from callgate.agent.typed_output import OutputInvalid, OutputType
from callgate.models.model_events import FinishReason
from tests.agent.recording_tools import Board, run
from tests.agent.scripted_model import Script, says


async def test_an_answer_of_the_wrong_type_is_sent_back_with_the_reason(board: Board) -> None:
    """The model may correct its answer; after the retries the run fails."""
    result, model = await run(board, says('{"x": "one"}'), says('```json\n{"x": 1}\n```'), output=dict[str, int])
    assert (result.status, result.output) == ("completed", {"x": 1})
    assert "not what was asked for" in str(model.seen[1][-1])
    assert model.requests[0].output_schema == {"type": "object", "additionalProperties": {"type": "integer"}}
    result, _ = await run(board, *[says("no")] * 3, output=dict[str, int])
    assert (result.status, result.output) == ("failed", None)
    assert result.reason.startswith("The answer was not what was asked for (try 3 of 3): ")


@pytest.mark.parametrize("text", ["```json\n5\n```", "```json\r\n5\r\n```\r\n", "```\n 5```", " 5 "])
def test_an_answer_in_a_code_block_is_parsed(text: str) -> None:
    assert OutputType(int).read(text) == 5


@pytest.mark.parametrize("text", ["```json\n" + "\n" * 200_000 + "x", "```" * 100_000, "```", "`````", "```json 5```"])
def test_an_incomplete_code_block_is_refused_in_linear_time(text: str) -> None:
    """The model's text is untrusted; the time to read it must not grow faster than its length."""
    with pytest.raises(OutputInvalid):
        OutputType(int).read(text)


@pytest.mark.parametrize("text", ['{"count": "5"}', '{"count": true}', '{"count": 5.0}'])
def test_a_pydantic_answer_is_validated_without_coercion(text: str) -> None:
    """Pydantic types are as strict as every other type."""
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Report", count=(int, ...))
    with pytest.raises(OutputInvalid):
        OutputType(model).read(text)
    assert OutputType(model).read('{"count": 5}').count == 5


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_a_truncated_typed_answer_is_not_accepted(reason: FinishReason) -> None:
    """The text `12` may be the beginning of `1200`."""
    model = Script(says("12", reason=reason), says("1200"))
    async with Agent(model, output=int) as agent:
        result = await agent.run("How many?")
    assert (result.output, len(model.requests)) == (1200, 2)
