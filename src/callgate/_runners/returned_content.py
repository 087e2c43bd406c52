"""Make content parts of what a tool returned: parts, bytes, the path of a file, pictures of Pillow and Matplotlib, content blocks of other
APIs, and lists and dicts with them.

Belongs to reading a result, because a file is read and a picture is encoded where the tool ran and within its time. A path is read only
beneath the workspace, if the call has one. Knows no limit on what a model is shown.
"""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from callgate._json import json_text, to_jsonable, type_name
from callgate._media_types import SURE_IMAGES, media_type
from callgate._runners.content_blocks import MOST_ITEMS, has_own_fields, media_part, parts_in_blocks, without_bytes
from callgate._runners.result_wrappers import WrappedResult, mcp_data, wrapped_result
from callgate.content_parts import Audio, Image, Link, Part, Resource, Text, data_of, is_base64, part_from_bytes, with_true_type
from callgate.errors import ResultNotSerializable

__all__ = ["ReturnedContent", "content_of", "part_data"]

_PARTS = (Image, Audio, Link, Resource, Text)
_BYTES = (bytes, bytearray, memoryview, io.BytesIO)
_RAW = (bytes, bytearray)
_FIRST_BYTES = 64
_NAMES = {Text: "text", Image: "an image", Audio: "audio", Resource: "a file"}
_CONTAINERS = frozenset({dict, list, tuple})
_SCALARS = frozenset({int, float, bool, type(None)})
_MOST_DEPTH = 50
_PICTURE_FORMATS = frozenset({"PNG", "JPEG", "GIF", "WEBP"})


class ReturnedContent(Struct, frozen=True):
    """What a tool returned: its data, and the parts that a model is shown instead of the data's text."""

    value: object
    parts: tuple[Part, ...] = ()
    changes: tuple[str, ...] = ()
    failure: str | None = None
    """What has failed, if the value says so in the form of a tool result of an API."""


def _may_hold_parts(value: object) -> bool:
    """Return whether a value has parts. Runs no foreign code."""
    kind = type(value)
    if kind is list or kind is tuple:
        return any(_is_part(item) for item in value) or _holds_own(value)  # type: ignore[attr-defined]
    if kind is dict:
        return _holds_own(value)
    return _is_part(value) or isinstance(value, Path)


def content_of(value: object, max_bytes: int, workspace: str | None, *, only_data: bool = False) -> ReturnedContent:
    """Return a tool's value as data without the bytes of its parts, and these parts.

    Args:
        max_bytes: The maximum size of all data.
        workspace: The folder in which a returned path is read; if empty, any; None if no path is read.
        only_data: Whether no parts are read.

    Raises:
        ResultNotSerializable: The value has no JSON form, a part is invalid, or together they are too large.
    """
    found = None if only_data else _find_parts(value, max_bytes, workspace)
    if found is not None:
        return found
    data, changes = to_jsonable(value, max_bytes=max_bytes)
    may_have_parts = changes and not only_data and type(data) in _CONTAINERS  # within objects that have become dicts
    found = _find_parts(data, max_bytes, None) if may_have_parts else None
    return ReturnedContent(data, changes=changes) if found is None else replace(found, changes=changes + found.changes)


def _find_parts(value: object, max_bytes: int, workspace: str | None) -> ReturnedContent | None:
    """Return the data and the parts of a value that has parts; else None."""
    value = mcp_data(value)
    if (wrapped := wrapped_result(value)) is not None:
        return _read_wrapped(wrapped, max_bytes, workspace)
    reader = _PartReader(max_bytes, workspace)
    if (blocks := parts_in_blocks(value)) is not None:
        data, parts = reader.of_blocks(value, blocks)
    elif not _may_hold_parts(value):
        return None
    elif isinstance(value, dict) or (isinstance(value, (list, tuple)) and not any(map(_is_part, value))):
        data, parts = reader.of_data(value)
    elif isinstance(value, (list, tuple)):
        items = [reader.of_item(item) for item in value]
        data, parts = [data for data, _ in items], tuple([part for _, parts in items for part in parts])
    elif isinstance(value, Path):
        file = reader.file(value)
        if file is None:
            return None
        data, parts = part_data(file), (file,)
    else:
        part = reader.part(value)
        data, parts = reader.data(value, part), (part,)
    return ReturnedContent(data, parts, tuple(dict.fromkeys(reader.changes)))


def _read_wrapped(wrapped: WrappedResult, max_bytes: int, workspace: str | None) -> ReturnedContent:
    """Return a tool result's content as parts, and its error. The data keep their form."""
    content = [wrapped.content] if isinstance(wrapped.content, str) else wrapped.content
    found = content_of(content, max_bytes, workspace)
    parts = found.parts or tuple([Text(text=item) for item in content if isinstance(item, str)])
    value, changes = to_jsonable(wrapped.with_content(found.value), max_bytes=max_bytes)
    if not wrapped.is_error:
        return ReturnedContent(value, parts, found.changes + changes)
    failure = "\n".join([part.text for part in parts if isinstance(part, Text)]).strip()
    return ReturnedContent(
        value=to_jsonable(wrapped.structured, max_bytes=max_bytes)[0] if failure else value,
        parts=tuple([part for part in parts if not isinstance(part, Text)]),
        changes=found.changes + changes,
        failure=failure or "The tool reported a failure without a text",
    )


class _PartReader:
    """Reads the parts of one value within a size."""

    def __init__(self, max_bytes: int, workspace: str | None) -> None:
        self._left = max_bytes
        self._workspace = workspace
        self._visited = 0
        self.changes: list[str] = []

    def of_item(self, item: object) -> tuple[object, tuple[Part, ...]]:
        """Return the data and the parts of one item of a list that has parts."""
        is_part = isinstance(item, (str, Path)) or _is_part(item)
        if not is_part or (type(item) is dict and has_own_fields(item)):
            return self.of_data(item)
        part = self.part(item)
        return self.data(item, part), (part,)

    def of_blocks(self, value: Any, blocks: Sequence[Part | str | dict[str, Any]]) -> tuple[object, tuple[Part, ...]]:
        """Return a block, or a list of blocks, as data without bytes that are still blocks, and its parts."""
        given = [value] if type(value) is dict else value
        items = [self._of_block(block, read) for block, read in zip(given, blocks, strict=True)]
        data = [item for item, _ in items]
        return data[0] if type(value) is dict else data, tuple([part for _, parts in items for part in parts])

    def _of_block(self, block: object, read: Part | str | dict[str, Any]) -> tuple[object, tuple[Part, ...]]:
        """Return the data and the parts of a block. One of a kind that is no part is JSON text, followed by the parts in it."""
        if isinstance(read, dict):
            return self.of_data(read)
        part = self.part(read)
        return self.data(block, part), (part,)

    def data(self, value: object, part: Part) -> object:
        """Return what a program reads of a value that is a part."""
        if type(value) is str and isinstance(part, Text):
            return part.text
        if type(value) is not dict and type(value) is not str:
            return part_data(part)
        data, changes = to_jsonable(without_bytes(value, part, f"[{_size(part)} bytes]"), max_bytes=max(0, self._left))
        self.changes += changes
        return data

    def of_data(self, value: object) -> tuple[object, tuple[Part, ...]]:
        """Return a dict or list without the bytes of its parts, and its text, followed by its parts at any depth."""
        parts: list[Part] = []
        data, changes = to_jsonable(self._extract_parts(value, parts, 0), max_bytes=max(0, self._left))
        self.changes += changes
        if changes and _holds_own(data):  # within objects that have become dicts
            data = self._extract_parts(data, parts, 0)
        text = json_text(data)
        self._spend(len(text))
        return data, (Text(text=text), *parts)

    def _extract_parts(self, value: object, parts: list[Part], depth: int) -> object:
        """Return a value with the data of each part in its place, and add these parts to `parts`."""
        self._visited += 1
        if self._visited > MOST_ITEMS or depth > _MOST_DEPTH:  # also ends in a value that contains itself
            return value
        if _is_own(value):
            parts.append(part := self.part(value))
            if isinstance(value, _RAW) and isinstance(part, Image):
                return f"[{part.mime_type}, {_size(part)} bytes]"  # text, as other bytes in data are
            return self.data(value, part)
        if type(value) is dict:
            return {key: self._extract_parts(item, parts, depth + 1) for key, item in value.items()}
        if type(value) is list or type(value) is tuple:
            has_parts = any(map(_is_own, value))
            return [self._extract_item_parts(item, parts, depth + 1, has_parts=has_parts) for item in value]
        return value

    def _extract_item_parts(self, item: object, parts: list[Part], depth: int, *, has_parts: bool) -> object:
        """Return an item of a list with the data of each part in its place. Bytes beside a part are a part, too."""
        if not has_parts or not isinstance(item, (*_BYTES, Path)):
            return self._extract_parts(item, parts, depth)
        part = self.part(item)
        if not isinstance(part, Text):
            parts.append(part)
        return part_data(part)

    def part(self, item: object) -> Part:
        """Return text, or what is a part, as a part: text and parts unchanged, bytes and files by their content."""
        if isinstance(item, _PARTS):
            return self._check(item)
        if isinstance(item, _BYTES):
            item = item.getvalue() if isinstance(item, io.BytesIO) else item
            self._spend(len(item) * 4 // 3)
            found = part_from_bytes(bytes(item))
            self.changes.append(f"bytes were read as {_NAMES[type(found)]}")
            return found
        if isinstance(item, Path):
            return self.file(item) or self._check(Text(text=str(item)))
        if _is_picture(item) or _is_figure(item):
            return self._encode_picture(item)
        if (block := media_part(item)) is not None:
            return self._check(block)
        assert isinstance(item, str)
        return self._check(Text(text=str.__str__(item)))

    def file(self, path: Path) -> Part | None:
        """Return the content of a file, or why it is not read; None if there is no such file."""
        if self._workspace is None:
            return None
        data = _read_file(path, self._workspace, self._left * 3 // 4)
        if data is None:
            return None
        if isinstance(data, str):
            return Text(text=f"{path} [The file was not read, because it {data}.]")
        self._spend(len(data) * 4 // 3)
        return part_from_bytes(data, path.name)

    def _check(self, part: Part) -> Part:
        if isinstance(part, Text):
            text, _ = to_jsonable(part.text, max_bytes=max(0, self._left))
            self._spend(len(part.text))
            return Text(text=str(text))
        data = data_of(part)
        self._spend(len(data))
        if isinstance(part, (Image, Audio)) or data:
            kind = type(part).__name__
            if not is_base64(data):
                raise ResultNotSerializable(
                    f"The tool's result has {'an' if kind[0] in 'AI' else 'a'} {kind} whose data is not Base64. Make it with"
                    f" {kind}.from_bytes(data) or {kind}.from_file(path).",
                    code="non_serializable",
                )
        if isinstance(part, Image):
            return with_true_type(part, self.changes)
        return part if not isinstance(part, Resource) else Resource(resource=_as_json(part.resource, max(0, self._left) + len(data)))

    def _encode_picture(self, picture: object) -> Part:
        kind = getattr(picture, "format", None)
        kind = kind if kind in _PICTURE_FORMATS else "PNG"
        file = io.BytesIO()
        try:
            (picture.savefig if _is_figure(picture) else picture.save)(file, format=kind)  # type: ignore[attr-defined]
        except Exception as error:
            raise ResultNotSerializable(
                f"The tool's result has a picture that cannot be encoded as {kind} ({type_name(error)}).", code="non_serializable"
            ) from error
        return self.part(file.getvalue())

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise ResultNotSerializable(
                "The tool's result has images or files that are larger than a result may be (Limits.result_bytes). Return smaller ones, or"
                " the path as text.",
                code="output_too_large",
            )


def _holds_own(value: object) -> bool:
    """Return whether a dict or list contains what can only be meant as a part, at any depth. Large values are not searched to their end."""
    left = MOST_ITEMS
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        kind = type(item)
        if kind in _CONTAINERS:
            left -= len(item)
            if left < 0:
                return False
            waiting.extend(item.values() if kind is dict else item)
        if kind not in _SCALARS and _is_own(item):
            return True
    return False


def _is_own(value: object) -> bool:
    """Return whether a value can only be meant as a part."""
    if type(value) is dict or type(value) is str:
        return media_part(value) is not None
    if isinstance(value, _RAW):
        return media_type(bytes(value[:_FIRST_BYTES])) in SURE_IMAGES
    return isinstance(value, (Image, Audio, Link, Resource)) or _is_picture(value) or _is_figure(value)


def _is_part(value: object) -> bool:
    return isinstance(value, (Text, *_BYTES)) or _is_own(value)


def _is_picture(value: object) -> bool:
    """Return whether a value is an image of Pillow."""
    return _is_of(value, "PIL.Image", "Image")


def _is_figure(value: object) -> bool:
    """Return whether a value is a figure of Matplotlib."""
    return _is_of(value, "matplotlib.figure", "Figure")


def _is_of(value: object, module: str, name: str) -> bool:
    """Return whether a value is of a class. Its module is not imported: who has such a value, has imported it."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(value, kind)


def part_data(part: Part) -> object:
    """Return what a program reads of a part: text as it is, and of anything else what it is, without its bytes."""
    match part:
        case Text(text=text):
            return text
        case Image(mime_type=mime) | Audio(mime_type=mime):
            return {"type": type(part).__name__.lower(), "mimeType": mime, "bytes": _size(part)}
        case Link(uri=uri, name=name, mime_type=mime):
            return {"type": "resource_link", "uri": uri, "name": name, "mimeType": mime}
        case Resource(resource=resource):
            told = {"type": "resource", **{key: item for key, item in resource.items() if key != "blob"}}
            return {**told, "bytes": _size(part)} if data_of(part) else told


def _size(part: Part) -> int:
    data = data_of(part)
    return len(data) * 3 // 4 - data[-2:].count("=")


def _as_json(resource: dict[str, object], max_bytes: int) -> dict[str, object]:
    data, _ = to_jsonable(resource, max_bytes=max_bytes)
    assert isinstance(data, dict)
    return data


def _read_file(path: Path, workspace: str, max_bytes: int) -> bytes | str | None:
    """Return a file's bytes; why it is not read; None if there is no such file.

    The opened file is checked, not its path, which may change in between.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError):
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return None
        if workspace and not _is_beneath(descriptor, path, workspace):
            return "is outside of the workspace"
        if found.st_size > max_bytes:
            return f"has {found.st_size} bytes; {max_bytes} is the limit"
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(max_bytes)
    finally:
        os.close(descriptor)


def _is_beneath(descriptor: int, path: Path, workspace: str) -> bool:
    try:
        real = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:  # no Linux
        real = os.path.realpath(path)
    root = os.path.realpath(workspace)
    return real.startswith(root.rstrip("/") + "/")
