"""Images in results of an agent's tools: the model is shown them, and the record has them."""

from __future__ import annotations

from typing import Any

import pytest

from callgate import Engine, Image, Resource, Tool, tool
from callgate.agent import Agent
from callgate.messages import ToolMessage, fallback_result
from callgate.replay import Replay
from callgate.replay.run_file import RunFile
from callgate.testing import RecordedRun
from tests.agent.scripted_model import Script, call, says
from tests.engine_calls import call as raw_call
from tests.engine_calls import said
from tests.returned_parts import PDF, PNG, tools

PICTURE = Image.from_bytes(PNG)


def asks_for(*names: str) -> Script:
    return Script(*(says(call(name, id=name)) for name in names), says("Seen."))


async def test_the_models_next_request_contains_the_images_of_a_result() -> None:
    model = asks_for("mixed")
    async with Agent(model, tools=tools()) as agent:
        await agent.run("Look.")
    results = [message for message in model.seen[-1] if isinstance(message, ToolMessage)]
    assert [part for part in results[0].content if isinstance(part, Image)] == [PICTURE]


async def test_a_recorded_run_with_images_repeats_without_differences() -> None:
    names = ("picture", "mixed", "raw")
    async with Engine(tools()) as engine, Agent(asks_for(*names), engine) as agent:
        run = (await agent.run("Look.")).run
        assert Replay.of(engine.journal, run, engine.blobs).differences == ()
        kept = RunFile.of(engine.journal, run, engine.blobs)
    assert (await RecordedRun(kept).played(tools(), [])).differences == ()


async def test_calls_with_other_images_are_no_repetition() -> None:
    """A model that looks again and again sees something else each time."""
    shots = iter(range(100))

    @tool(effect="none")
    async def screen() -> Image:
        """Take a picture of the screen."""
        return Image.from_bytes(PNG + bytes([next(shots)]))

    async def results(look: Tool) -> list[str]:
        model = Script(*(says(call("screen", id=f"c{number}")) for number in range(8)), says("Seen."))
        async with Agent(model, tools=[look]) as agent:
            return [result.status for result in (await agent.run("Look.")).results]

    @tool(name="screen", effect="none")
    async def still() -> Image:
        """Take a picture of the screen."""
        return PICTURE

    assert await results(screen) == ["ok"] * 8
    assert "error" in await results(still), "the same picture again is a repetition"


async def test_a_result_for_a_model_without_calls_names_its_images() -> None:
    @tool
    def report() -> list[object]:
        """Report."""
        return ["See:", PICTURE, PDF]

    async with Engine([report]) as engine:
        result = await said(engine, raw_call("report"))
    assert fallback_result(result)["content"] == f'[TOOL RESULT: report]\n"See:"\n[image/png]\n[application/pdf, {len(PDF)} bytes]'


@pytest.mark.parametrize(
    ("returned", "shown"),
    [
        (b"\x00\x01\x02\xff", "[application/octet-stream, 4 bytes]"),
        (Resource.from_bytes(b"\x00\x01\xff", name="a b.bin"), "[resource file:///a%20b.bin, application/octet-stream, 3 bytes]"),
        (Resource(resource={"uri": "memo://1", "blob": "AAE="}), "[resource memo://1, 2 bytes]"),
        (Resource(resource={"uri": "memo://1", "mimeType": "video/mp4"}), "[resource memo://1, video/mp4]"),
        (Resource(resource={"uri": "memo://1"}), "[resource memo://1]"),
        (Resource(resource={"blob": "AAEC"}), "[resource, 3 bytes]"),
    ],
    ids=["bytes", "a file with a name", "no type", "no data", "only an address", "only data"],
)
async def test_a_file_that_the_message_cannot_hold_is_told_with_what_is_known_of_it(returned: object, shown: str) -> None:
    @tool
    def report() -> Any:
        """Report."""
        return returned

    async with Engine([report]) as engine:
        result = await said(engine, raw_call("report"))
    assert fallback_result(result)["content"] == f'[TOOL RESULT: report]\n"{shown}"'
