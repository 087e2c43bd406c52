"""Images, audio, files and bytes that tools return: what the model is shown, what programs read, and what the record keeps."""

from __future__ import annotations

import base64
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, TypedDict

import pytest

from callgate import (
    Audio,
    Engine,
    Image,
    Limits,
    Link,
    Resource,
    Scope,
    SqliteJournal,
    Text,
    Tool,
    UsageError,
    after_call,
    tool,
)
from callgate.content_parts import Part, data_of
from callgate.stage_types import Checked, ValidatedCall
from tests.engine_calls import call, result_of, said
from tests.host_fakes import Hider
from tests.returned_parts import PDF, PNG, WAV, tools

PICTURE = Image.from_bytes(PNG)
SUMMARY = {"type": "image", "mimeType": "image/png", "bytes": len(PNG)}


async def returned(value: Any, scope: Scope | None = None, *, later: bool = False, **options: Any) -> Any:
    """Return the result of a tool, plain or async, that returns this value."""

    def get() -> object:
        """Return a value."""
        return value

    async def get_later() -> object:
        """Return a value."""
        return value

    async with Engine([tool(get_later if later else get, name="get")], **options) as engine:
        return await said(engine, call("get"), scope)


@pytest.mark.parametrize("name", ["mixed", "later", pytest.param("in_process", marks=pytest.mark.process)])
async def test_a_list_of_texts_and_images_is_shown_as_parts_by_every_runner(name: str) -> None:
    async with Engine(tools()) as engine:
        outcome = await engine.call(call(name, id="c"))
    result = result_of(outcome)
    assert result.content == (Text(text="before"), PICTURE, Text(text="after"))
    assert (result.structured, result.text) == (["before", SUMMARY, "after"], "before\nafter")
    assert outcome.message() == {"role": "tool", "tool_call_id": "c", "content": "before\n[image/png]\nafter"}
    assert result.metadata.bytes == len(PNG) + len("before\nafter")


SHOWN: dict[str, tuple[object, Part]] = {
    "PNG bytes": (PNG, PICTURE),
    "a JPEG": (b"\xff\xd8\xff\xe0rest", Image.from_bytes(b"\xff\xd8\xff\xe0rest")),
    "a sound": (WAV, Audio.from_bytes(WAV)),
    "a PDF": (PDF, Resource.from_bytes(PDF)),
    "text as bytes": ("gr\u00fcn".encode(), Text(text="gr\u00fcn")),
    "a file in memory": (io.BytesIO(PNG), PICTURE),
    "other bytes": (b"\x00\x01", Resource(resource={"uri": "file:///file", "mimeType": "application/octet-stream", "blob": "AAE="})),
    "a part": (PICTURE, PICTURE),
    "a link": (Link(uri="https://a.example", name="A"), Link(uri="https://a.example", name="A")),
}


@pytest.mark.parametrize("later", [False, True], ids=["function", "async function"])
@pytest.mark.parametrize(("value", "part"), SHOWN.values(), ids=SHOWN.keys())
async def test_bytes_are_shown_as_what_their_first_bytes_say(value: object, part: Part, later: bool) -> None:
    result = await returned(value, later=later)
    assert (result.status, result.content) == ("ok", (part,))
    data = data_of(part)
    assert not data or data not in json.dumps(result.structured), "no bytes in the data for programs"


async def test_an_item_of_a_list_that_is_no_part_is_shown_as_text() -> None:
    result = await returned([{"n": 1}, PNG, 2])
    assert result.content == (Text(text='{"n":1}'), PICTURE, Text(text="2"))


async def test_a_dict_with_images_is_shown_as_json_and_then_its_images() -> None:
    class Report(TypedDict):
        chart: Image
        mean: float

    @tool
    def report() -> Report:
        """Report."""
        return {"chart": PICTURE, "mean": 2.5}

    async with Engine([report]) as engine:
        result = await said(engine, call("report"))
    assert result.structured == {"chart": SUMMARY, "mean": 2.5}
    assert result.content == (Text(text=json.dumps(result.structured, separators=(",", ":"))), PICTURE)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ({"a": {"b": PICTURE}}, {"a": {"b": SUMMARY}}),
        ([[PICTURE]], [[SUMMARY]]),
        ({"pages": [{"n": 1, "scans": (PICTURE,)}]}, {"pages": [{"n": 1, "scans": [SUMMARY]}]}),
        ([{"page": PICTURE}, {"page": None}], [{"page": SUMMARY}, {"page": None}]),
    ],
)
async def test_images_are_shown_at_any_depth_of_the_data(value: Any, data: object) -> None:
    result = await returned(value)
    assert result.structured == data
    assert result.content == (Text(text=json.dumps(data, separators=(",", ":"))), PICTURE)


async def test_data_with_an_image_beside_parts_is_shown_as_json_and_then_its_image() -> None:
    result = await returned(["Sales:", PICTURE, {"page": {"scan": PICTURE}}])
    assert result.content == (
        Text(text="Sales:"),
        PICTURE,
        Text(text=json.dumps({"page": {"scan": SUMMARY}}, separators=(",", ":"))),
        PICTURE,
    )
    assert result.structured == ["Sales:", SUMMARY, {"page": {"scan": SUMMARY}}]


async def test_data_with_an_image_that_contains_itself_is_a_failure_of_the_tool() -> None:
    value: dict[str, Any] = {"picture": PICTURE}
    value |= {"once": value, "twice": value}
    assert (await returned(value)).status == "error"


class Camera(Tool):
    name = "camera"
    description = "Take a picture."
    parameters = {"type": "object", "properties": {"fail": {"type": "boolean"}}}
    category = "safe_chain"
    requires_actor = False

    async def execute(self, actor: str, **params: Any) -> dict[str, Any]:
        return {"success": not params.get("fail"), "error": "too dark", "data": [PICTURE]}


async def test_a_tool_class_returns_images_as_its_data_also_when_it_fails() -> None:
    async with Engine([Camera]) as engine:
        good, bad = await said(engine, call("camera")), await said(engine, call("camera", fail=True))
    assert (good.data, good.content[-1]) == ([SUMMARY], PICTURE)
    assert (bad.status, bad.content[-1]) == ("error", PICTURE)


async def test_lists_without_parts_and_paths_that_are_no_files_stay_as_they_are(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    assert (await returned(paths)).structured == [str(path) for path in paths]
    assert (await returned(tmp_path)).text == str(tmp_path)
    assert (await returned({"raw": b"hi"})).structured == {"raw": "aGk="}


async def test_the_path_of_a_file_is_shown_as_its_content_if_the_file_is_in_the_workspace(tmp_path: Path) -> None:
    inside, outside = tmp_path / "w", tmp_path / "outside.txt"
    inside.mkdir()
    outside.write_text("secret")
    (inside / "a.png").write_bytes(PNG)
    (inside / "note.txt").write_text("hello")
    (inside / "link.txt").symlink_to(outside)
    scope = Scope(workspace=str(inside))
    for later in (False, True):
        assert (await returned(inside / "a.png", scope, later=later)).content == (PICTURE,)
    assert (await returned(inside / "note.txt", scope)).text == "hello"
    for refused in (outside, inside / "link.txt", inside / ".." / "outside.txt"):
        text = (await returned(refused, scope)).text
        assert text == f"{refused} [The file was not read, because it is outside of the workspace.]"
    assert (await returned(outside)).text == "secret", "without a workspace, any file that the tool names is read"


async def test_a_file_above_the_limit_and_a_pipe_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "large.bin").write_bytes(b"\0" * 5_000)
    result = await returned(tmp_path / "large.bin", limits=Limits(result_bytes=4_000))
    assert result.text == f"{tmp_path}/large.bin [The file was not read, because it has 5000 bytes; 3000 is the limit.]"
    os.mkfifo(tmp_path / "pipe")
    assert (await returned(tmp_path / "pipe")).text == f"{tmp_path}/pipe"


async def test_an_image_above_the_limit_is_stored_and_the_model_is_told_how_large_it_is() -> None:
    @tool
    def get() -> list[object]:
        """Return pictures."""
        return [PNG, PNG + b"x" * 1_000, "end"]

    async with Engine([get], limits=Limits(media_bytes=500)) as engine:
        result = await said(engine, call("get"))
        assert result.metadata.blob is not None
        assert engine.blobs.get(result.metadata.blob) == PNG + b"x" * 1_000
    said_so = (
        f"[image/png, {len(PNG) + 1_000} bytes: more than the 500 bytes of images and files that a result may show. The whole is stored as"
        f" {result.metadata.blob}. Ask for a smaller or shorter one.]"
    )
    assert result.content == (PICTURE, Text(text=said_so), Text(text="end"))
    assert result.metadata.truncated


async def test_long_texts_beside_an_image_are_cut_and_stored() -> None:
    result = await returned(["a" * 600, PICTURE, "b" * 600], limits=Limits(content_bytes=600))
    assert result.content[2] == PICTURE
    assert len(result.content) == 3
    assert "1201 bytes in all" in result.content[1].text


async def test_a_result_shows_a_bounded_number_of_images() -> None:
    result = await returned([PICTURE] * 150)
    assert result.content[:-1] == (PICTURE,) * 100
    assert result.content[-1] == Text(text="[50 more parts were left out; 100 are shown. Ask for less at a time.]")


async def test_an_image_whose_data_is_not_base64_is_a_failure_of_the_tool_and_not_of_the_next_request() -> None:
    result = await returned(Image(data="no base64", mime_type="image/png"))
    assert (result.status, result.code) == ("error", "non_serializable")
    assert "Image.from_bytes(data)" in result.text


async def test_images_survive_the_cache_a_repeated_call_and_a_restart(tmp_path: Path) -> None:
    scope = Scope(run="r")
    async with Engine(tools(), journal=SqliteJournal(tmp_path / "j.db")) as engine:
        first = await said(engine, call("mixed", id="1"), scope)
        cached = await said(engine, call("mixed", id="2"), scope)
        await said(engine, call("picture", id="3"), scope)
        again = await said(engine, call("picture", id="3"), scope)
    async with Engine(tools(), journal=SqliteJournal(tmp_path / "j.db")) as engine:
        later = await said(engine, call("picture", id="3"), scope)
    assert (cached.metadata.cached, cached.content) == ("tick", first.content)
    assert [(one.metadata.replayed, one.content, one.structured) for one in (again, later)] == [(True, (PICTURE,), SUMMARY)] * 2


class Eager(Hider):
    """A redactor that also takes a part of the image's Base64 for a secret."""

    def redact(self, body: bytes) -> bytes:
        return super().redact(body).replace(base64.b64encode(PNG)[20:40], b"[hidden]")


async def test_a_redactor_changes_texts_beside_an_image_but_not_the_image(tmp_path: Path) -> None:
    def get() -> list[object]:
        """Return a secret and an image."""
        return ["hunter2", PICTURE]

    made = [tool(get, effect="none", cacheable=True), tool(get, name="once")]

    def opened() -> Engine:
        return Engine(made, redactor=Eager(), journal=SqliteJournal(tmp_path / "j.db"))

    async with opened() as engine:
        first, cached = [await said(engine, call("get", id=id), Scope(run="r")) for id in "ab"]
        once = await said(engine, call("once", id="c"), Scope(run="r"))
    assert (first.content, cached.content, once.content) == ((Text(text="[hidden]"), PICTURE),) * 3
    assert cached.metadata.cached == "tick"
    async with opened() as engine:
        recorded = await said(engine, call("once", id="c"), Scope(run="r"))
    told = "[image/png] [It is not in the record, because the redactor takes a part of it for a secret.]"
    assert (recorded.metadata.replayed, recorded.content) == (True, (Text(text="[hidden]"), Text(text=told)))


async def test_a_hook_that_replaces_the_value_replaces_its_images_and_one_that_keeps_it_keeps_them() -> None:
    def hooked(change: Callable[[Checked], object]) -> Any:
        @after_call(kind="transform")
        def hook(call: ValidatedCall, result: Checked) -> object:
            return change(result)

        return hook

    assert (await returned([PICTURE], hooks=[hooked(lambda result: result)])).content == (PICTURE,)
    assert (await returned([PICTURE], hooks=[hooked(lambda result: "withheld")])).content == (Text(text="withheld"),)
    assert (await returned("text", hooks=[hooked(lambda result: [PICTURE])])).content == (PICTURE,)


async def test_an_image_of_pillow_is_shown_as_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a module with Pillow's interface, because Pillow is not a dependency."""

    class Drawing:
        format = None

        def save(self, file: Any, format: str) -> None:
            assert format == "PNG"
            file.write(PNG)

    module = ModuleType("PIL.Image")
    module.Image = Drawing  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "PIL.Image", module)
    assert (await returned([Drawing(), "drawn"])).content == (PICTURE, Text(text="drawn"))


async def test_a_figure_of_matplotlib_is_shown_as_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a module with Matplotlib's interface, because Matplotlib is not a dependency."""

    class Figure:
        def savefig(self, file: Any, format: str) -> None:
            assert format == "PNG"
            file.write(PNG)

    module = ModuleType("matplotlib.figure")
    module.Figure = Figure  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "matplotlib.figure", module)
    for later in (False, True):
        assert (await returned(Figure(), later=later)).content == (PICTURE,)
        assert (await returned({"plot": Figure()}, later=later)).structured == {"plot": SUMMARY}


async def test_numbers_and_arrays_of_numpy_are_numbers_and_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a module with NumPy's interface, because NumPy is not a dependency."""

    class Array:
        def __init__(self, value: Any, size: int, kind: str = "i") -> None:
            self.value, self.size, self.dtype = value, size, SimpleNamespace(kind=kind)

        def tolist(self) -> Any:
            return self.value

    class Number(Array): ...

    module = ModuleType("numpy")
    module.ndarray, module.generic = Array, Number  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "numpy", module)
    result = await returned({"sum": Number(3, 1), "rows": Array([[1, 2], [3, 4]], 4)})
    assert result.structured == {"sum": 3, "rows": [[1, 2], [3, 4]]}
    assert (await returned(Array([], 10**9))).code == "output_too_large"
    assert "nan, which JSON does not have" in (await returned([Number(float("nan"), 1)])).text
    assert "is of type Number" in (await returned(Number(1_750_000_000_000_000_000, 1, kind="M"))).text


def test_parts_are_made_from_bytes_and_files_of_the_right_kind(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    (tmp_path / "a.csv").write_text("a,b")
    assert Image.from_file(tmp_path / "a.png") == PICTURE == Image(data=base64.b64encode(PNG).decode(), mime_type="image/png")
    csv = Resource.from_file(tmp_path / "a.csv").resource
    assert csv == {"uri": "file:///a.csv", "mimeType": "text/csv", "text": "a,b"}
    assert Audio.from_bytes(b"raw", mime_type="audio/pcm").mime_type == "audio/pcm"


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "bytes as data": (lambda: Image(data=PNG, mime_type="image/png"), "Image.from_bytes"),  # type: ignore[arg-type]
    "no image": (lambda: Image.from_bytes(PDF), "application/pdf"),
    "a path as bytes": (lambda: Audio.from_bytes("a.wav"), "Audio.from_file"),  # type: ignore[arg-type]
    "no file": (lambda: Resource.from_file("/nowhere/a.pdf"), "No such file"),
}


@pytest.mark.parametrize(("make", "told"), WRONG.values(), ids=WRONG.keys())
def test_a_part_that_cannot_be_made_says_what_to_do(make: Callable[[], object], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        make()


async def test_annotations_with_images_promise_no_schema() -> None:
    async with Engine(tools()) as engine:
        for name in ("picture", "mixed", "raw"):
            found = engine.tools.get(name)
            assert found is not None
            assert found.output is None
