"""`Agent(output=T)`: strict JSON of that type, in a code block or not, and never half of it."""

from __future__ import annotations

import pytest

from callgate.agent import Agent
from callgate.agent.output import OutputInvalid, OutputType
from callgate.models.events import FinishReason
from tests.agent.board import Board, run
from tests.agent.scripts import Script, says


async def test_an_answer_may_have_a_type(board: Board) -> None:
    """`Agent(output=T)`: strict JSON of that type; what is not is sent back with the reason."""
    result, model = await run(board, says('{"x": "one"}'), says('```json\n{"x": 1}\n```'), output=dict[str, int])
    assert (result.status, result.output) == ("completed", {"x": 1})
    assert "not what was asked for" in str(model.seen[1][-1])
    assert model.requests[0].output_schema == {"type": "object", "additionalProperties": {"type": "integer"}}
    result, _ = await run(board, *[says("no")] * 3, output=dict[str, int])
    assert (result.status, result.output) == ("failed", None)
    assert result.reason.startswith("The answer was not what was asked for (try 3 of 3): ")


@pytest.mark.parametrize("text", ["```json\n5\n```", "```json\r\n5\r\n```\r\n", "```\n 5```", " 5 "])
def test_an_answer_in_a_code_block_is_the_answer(text: str) -> None:
    assert OutputType(int).read(text) == 5


@pytest.mark.parametrize("text", ["```json\n" + "\n" * 200_000 + "x", "```" * 100_000, "```", "`````", "```json 5```"])
def test_an_answer_that_only_looks_like_a_code_block_is_refused_at_once(text: str) -> None:
    """The model's text is untrusted: however it is made, reading it costs no more than its length."""
    with pytest.raises(OutputInvalid):
        OutputType(int).read(text)


@pytest.mark.parametrize("text", ['{"count": "5"}', '{"count": true}', '{"count": 5.0}'])
def test_a_pydantic_answer_is_not_bent_into_shape(text: str) -> None:
    """The same strictness as for every other type."""
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Report", count=(int, ...))
    with pytest.raises(OutputInvalid):
        OutputType(model).read(text)
    assert OutputType(model).read('{"count": 5}').count == 5


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_the_beginning_of_a_typed_answer_is_not_the_answer(reason: FinishReason) -> None:
    """`12` may be what there is of `1200`."""
    model = Script(says("12", reason=reason), says("1200"))
    async with Agent(model, output=int) as agent:
        result = await agent.run("How many?")
    assert (result.output, len(model.requests)) == (1200, 2)
