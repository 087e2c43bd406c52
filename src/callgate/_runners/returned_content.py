"""Make content parts of what a tool returned: parts, bytes, the path of a file, pictures of Pillow, and lists and dicts with them.

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

from callgate._json import json_text, to_jsonable, type_name
from callgate._runners.content_blocks import parts_in_blocks
from callgate.content_parts import Audio, Image, Link, Part, Resource, Text, data_of, is_base64, part_from_bytes, with_true_type
from callgate.errors import ResultNotSerializable

__all__ = ["ReturnedContent", "content_of", "may_hold_parts", "part_data"]

_PARTS = (Image, Audio, Link, Resource, Text)
_BYTES = (bytes, bytearray, memoryview)
_NAMES = {Text: "text", Image: "an image", Audio: "audio", Resource: "a file"}
_CONTAINERS = frozenset({dict, list, tuple})
_PLAIN = frozenset({str, int, float, bool, type(None)})
_MOST_ITEMS = 10_000
"""The number of items in which parts are searched, so that large data costs little."""
_MOST_DEPTH = 50
_PICTURE_FORMATS = frozenset({"PNG", "JPEG", "GIF", "WEBP"})


class ReturnedContent(Struct, frozen=True):
    """What a tool returned: its data, and the parts that a model is shown instead of the data's text."""

    value: object
    parts: tuple[Part, ...] = ()
    changes: tuple[str, ...] = ()


def may_hold_parts(value: object) -> bool:
    """Return whether a value can have parts, so that `content_of` has to read it. Runs no foreign code."""
    kind = type(value)
    if kind is list or kind is tuple:
        return any(_is_part(item) for item in value) or _holds_own(value)  # type: ignore[attr-defined]
    if kind is dict:
        return _holds_own(value)
    return _is_part(value) or isinstance(value, Path)


def content_of(value: object, max_bytes: int, workspace: str | None) -> ReturnedContent | None:
    """Return the parts of a tool's value and its data without their bytes; None if it has none.

    Args:
        max_bytes: The maximum size of all data.
        workspace: The folder in which a returned path is read; if empty, any; None if no path is read.

    Raises:
        ResultNotSerializable: A part is invalid, or together they are too large.
    """
    if not may_hold_parts(value):
        blocks = parts_in_blocks(value)
        return None if blocks is None else _PartReader(max_bytes, workspace).of_blocks(value, blocks)
    reader = _PartReader(max_bytes, workspace)
    if isinstance(value, dict) or (isinstance(value, (list, tuple)) and not any(map(_is_part, value))):
        data, parts = reader.of_data(value)
        return ReturnedContent(data, parts, tuple(dict.fromkeys(reader.changes)))
    if isinstance(value, (list, tuple)):
        items = [reader.of_item(item) for item in value]
        return ReturnedContent(
            [data for data, _ in items], tuple([part for _, parts in items for part in parts]), tuple(dict.fromkeys(reader.changes))
        )
    if isinstance(value, Path):
        file = reader.file(value)
        return None if file is None else ReturnedContent(part_data(file), (file,))
    part = reader.part(value)
    return ReturnedContent(part_data(part), (part,), tuple(dict.fromkeys(reader.changes)))


class _PartReader:
    """Reads the parts of one value within a size."""

    def __init__(self, max_bytes: int, workspace: str | None) -> None:
        self._left = max_bytes
        self._workspace = workspace
        self._visited = 0
        self.changes: list[str] = []

    def of_item(self, item: object) -> tuple[object, tuple[Part, ...]]:
        """Return the data and the parts of one item of a list that has parts."""
        if type(item) in _CONTAINERS and _holds_own(item):
            return self.of_data(item)
        part = self.part(item)
        return part_data(part), (part,)

    def of_blocks(self, value: object, blocks: Sequence[Part | str | dict[str, Any]]) -> ReturnedContent:
        """Return a block, or a list of blocks, as data that are still blocks, and its parts."""
        items = [self._of_block(block) for block in blocks]
        data = [item for item, _ in items]
        return ReturnedContent(
            data[0] if type(value) is dict else data, tuple([part for _, part in items]), tuple(dict.fromkeys(self.changes))
        )

    def _of_block(self, block: Part | str | dict[str, Any]) -> tuple[object, Part]:
        """Return the data and the part of a block. One of a kind that is no part is JSON text."""
        if isinstance(block, dict):
            data, changes = to_jsonable(block, max_bytes=max(0, self._left))
            self.changes += changes
            return data, self._check(Text(text=json_text(data)))
        part = self.part(block)
        return {"type": "text", "text": part.text} if isinstance(block, Text) and isinstance(part, Text) else part_data(part), part

    def of_data(self, value: object) -> tuple[object, tuple[Part, ...]]:
        """Return a dict or list without the bytes of its parts, and its text, followed by its parts at any depth."""
        parts: list[Part] = []
        data, changes = to_jsonable(self._extract_parts(value, parts, 0), max_bytes=max(0, self._left))
        self.changes += changes
        return data, (Text(text=json_text(data)), *parts)

    def _extract_parts(self, value: object, parts: list[Part], depth: int) -> object:
        """Return a value with the data of each part in its place, and add these parts to `parts`."""
        self._visited += 1
        if self._visited > _MOST_ITEMS or depth > _MOST_DEPTH:  # also ends in a value that contains itself
            return value
        if _is_own(value):
            parts.append(self.part(value))
            return part_data(parts[-1])
        if type(value) is dict:
            return {key: self._extract_parts(item, parts, depth + 1) for key, item in value.items()}
        if type(value) is list or type(value) is tuple:
            has_parts = any(map(_is_own, value))
            return [self._extract_item_parts(item, parts, depth + 1, has_parts=has_parts) for item in value]
        return value

    def _extract_item_parts(self, item: object, parts: list[Part], depth: int, *, has_parts: bool) -> object:
        """Return an item of a list with the data of each part in its place. Bytes beside a part are a part, too."""
        if not has_parts or type(item) in _CONTAINERS or _is_own(item):
            return self._extract_parts(item, parts, depth)
        part = self.part(item)
        if not isinstance(part, Text):
            parts.append(part)
        return part_data(part)

    def part(self, item: object) -> Part:
        """Return one item as a part: text and parts unchanged, bytes and files by their content, anything else as JSON text."""
        if isinstance(item, _PARTS):
            return self._check(item)
        if isinstance(item, _BYTES):
            self._spend(len(item) * 4 // 3)
            found = part_from_bytes(bytes(item))
            self.changes.append(f"bytes were read as {_NAMES[type(found)]}")
            return found
        if isinstance(item, Path):
            return self.file(item) or self._check(Text(text=str(item)))
        if _is_picture(item):
            return self._encode_picture(item)
        if isinstance(item, str):
            return self._check(Text(text=str.__str__(item)))
        data, changes = to_jsonable(item, max_bytes=max(0, self._left))
        self.changes += changes
        return self._check(Text(text=json_text(data)))

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
            picture.save(file, format=kind)  # type: ignore[attr-defined]
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
    left = _MOST_ITEMS
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        kind = type(item)
        if kind in _CONTAINERS:
            left -= len(item)
            if left < 0:
                return False
            waiting.extend(item.values() if kind is dict else item)
        elif kind not in _PLAIN and _is_own(item):
            return True
    return False


def _is_own(value: object) -> bool:
    """Return whether a value can only be meant as a part."""
    return isinstance(value, (Image, Audio, Link, Resource)) or _is_picture(value)


def _is_part(value: object) -> bool:
    return isinstance(value, (*_PARTS, *_BYTES)) or _is_picture(value)


def _is_picture(value: object) -> bool:
    """Return whether a value is an image of Pillow. It is not imported: who has such an image, has imported it."""
    module = sys.modules.get("PIL.Image")
    kind = None if module is None else getattr(module, "Image", None)
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
