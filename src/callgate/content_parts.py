"""The parts of a result's content: text, images, audio, links, and resources such as files. In MCP's JSON shape.

Frozen, keyword-only, made of plain data. Knows nothing of tools and of providers.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from callgate._media_types import SURE_IMAGES, media_type, media_type_of_base64
from callgate._option_checks import NamedStruct
from callgate.errors import UsageError

__all__ = [
    "Audio",
    "Image",
    "Link",
    "Part",
    "Resource",
    "Text",
    "data_of",
    "part_from_bytes",
    "part_text",
    "with_data",
    "with_true_type",
    "without_data",
]

_MOST_FILE_BYTES = 67_108_864
"""The largest file that `from_file` reads."""
_NO_NAME = "file"
"""The name of bytes without one."""
_NAMELESS = f"file:///{_NO_NAME}"


class Text(NamedStruct, frozen=True, kw_only=True, gc=False, tag_field="type", tag="text"):
    text: str


class _Media(NamedStruct, frozen=True, kw_only=True, rename="camel"):
    """Bytes of one kind of media."""

    data: str
    """The bytes, encoded as Base64; `from_bytes` and `from_file` encode them."""
    mime_type: str

    def __post_init__(self) -> None:
        _check_text(self, "data", self.data)
        _check_text(self, "mime_type", self.mime_type)

    @classmethod
    def from_bytes(cls, data: bytes, *, mime_type: str = "") -> Self:
        """Return the part with these bytes.

        Args:
            mime_type: If empty, it is found in the bytes.

        Raises:
            UsageError: The bytes are not such media, and no `mime_type` is given.
        """
        return cls._read(data, mime_type, "")

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, mime_type: str = "") -> Self:
        """Return the part with a file's bytes, at most 64 MiB.

        Raises:
            UsageError: The file cannot be read, is too large, or is not such media.
        """
        return cls._read(_read_file(path), mime_type, Path(path).name)

    @classmethod
    def _read(cls, data: bytes, mime_type: str, name: str) -> Self:
        _check_bytes(cls, data)
        found = mime_type or media_type(bytes(data), name)
        kind = cls.__name__.lower()
        if not mime_type and not found.startswith(f"{kind}/"):
            raise UsageError(f"{name or 'The bytes'} is {found}, not {kind}. Give its mime_type, or use Resource for other files.")
        return cls(data=base64.b64encode(data).decode(), mime_type=found)


class Image(_Media, frozen=True, kw_only=True, tag_field="type", tag="image", rename="camel"):
    """An image. `Image.from_bytes(data)` and `Image.from_file(path)` find its type in its bytes."""


class Audio(_Media, frozen=True, kw_only=True, tag_field="type", tag="audio", rename="camel"):
    """A sound. `Audio.from_bytes(data)` and `Audio.from_file(path)` find its type in its bytes."""


class Link(NamedStruct, frozen=True, kw_only=True, tag_field="type", tag="resource_link", rename="camel"):
    uri: str
    name: str = ""
    mime_type: str = ""


class Resource(NamedStruct, frozen=True, kw_only=True, tag_field="type", tag="resource"):
    """A file or another resource: `uri`, `mimeType`, and `text`, or `blob` with Base64."""

    resource: dict[str, object]

    @classmethod
    def from_bytes(cls, data: bytes, *, name: str = _NO_NAME, mime_type: str = "") -> Self:
        """Return the resource with these bytes.

        Args:
            name: The name that the model sees.
            mime_type: If empty, it is found in the bytes and the name.
        """
        _check_bytes(cls, data)
        found = mime_type or media_type(bytes(data), name)
        uri = f"file:///{quote(name)}"
        if found.startswith("text/") or found in _TEXT_TYPES:
            text = _as_text(bytes(data))
            if text is not None:
                return cls(resource={"uri": uri, "mimeType": found, "text": text})
        return cls(resource={"uri": uri, "mimeType": found, "blob": base64.b64encode(data).decode()})

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, mime_type: str = "") -> Self:
        """Return the resource with a file's bytes, at most 64 MiB, under the file's name.

        Raises:
            UsageError: The file cannot be read, or is too large.
        """
        return cls.from_bytes(_read_file(path), name=Path(path).name, mime_type=mime_type)


Part = Text | Image | Audio | Link | Resource
"""One part of a result's content, in MCP's JSON shape."""

_TEXT_TYPES = frozenset({"application/json", "application/xml", "image/svg+xml"})


def part_from_bytes(data: bytes, name: str = "") -> Part:
    """Return the part that suits bytes best: an image, audio, text, or a resource for anything else."""
    kind = media_type(data, name)
    if kind.startswith("text/") or kind in _TEXT_TYPES:
        return Text(text=data.decode())
    if kind.startswith("image/"):
        return Image.from_bytes(data, mime_type=kind)
    if kind.startswith("audio/"):
        return Audio.from_bytes(data, mime_type=kind)
    return Resource.from_bytes(data, name=name or _NO_NAME, mime_type=kind)


def part_text(part: Part) -> str:
    """Return a content part as text, for what accepts nothing else."""
    match part:
        case Text(text=text):
            return text
        case Link(uri=uri, name=name):
            return f"{name} <{uri}>" if name else uri
        case Resource(resource=resource):
            inner = resource.get("text")
            return inner if isinstance(inner, str) else f"[{_describe_resource(resource)}]"
        case Image(mime_type=mime) | Audio(mime_type=mime):
            return f"[{mime}]"


def _describe_resource(resource: Mapping[str, object]) -> str:
    """Return the address, the type and the size of a resource, as far as they are known. Bytes without a name have no address."""
    uri, mime, blob = (str(resource.get(key) or "") for key in ("uri", "mimeType", "blob"))
    named = "" if uri == _NAMELESS else f"resource {uri}".strip()
    size = f"{len(blob) * 3 // 4 - blob[-2:].count('=')} bytes" if blob else ""
    return ", ".join(filter(None, (named, mime, size))) or "resource"


def data_of(part: Part) -> str:
    """Return the Base64 of a part; empty if it has none."""
    match part:
        case Image(data=data) | Audio(data=data):
            return data
        case Resource(resource={"blob": str(blob)}):
            return blob
        case _:
            return ""


def is_base64(data: str) -> bool:
    """Return whether a text is Base64 as every provider accepts it: with padding, without white space."""
    try:
        binascii.a2b_base64(data, strict_mode=True)
    except ValueError:
        return False
    return bool(data)


def with_true_type(image: Image, changes: list[str]) -> Image:
    """Return an image with the type of its bytes, because providers refuse a request in which another one is declared.

    Args:
        image: Its data is Base64.
        changes: Gets a sentence if another type was declared.
    """
    found = media_type_of_base64(image.data)
    if found not in SURE_IMAGES or found == image.mime_type:
        return image
    changes.append(f"an image declared as {image.mime_type[:80]} was read as {found}")
    return replace(image, mime_type=found)


def without_data(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return the parts without their Base64, in which nothing must be searched and replaced."""
    return tuple(_replace_data(part, "") if data_of(part) else part for part in parts)


def with_data(parts: Sequence[Part], whole: Sequence[Part]) -> tuple[Part, ...]:
    """Return the parts with the Base64 of `whole`, from which `without_data` has made them."""
    if len(parts) != len(whole):
        return tuple(parts)
    return tuple(_replace_data(part, data) if (data := data_of(before)) else part for part, before in zip(parts, whole, strict=True))


def _replace_data(part: Part, data: str) -> Part:
    match part:
        case Image() | Audio():
            return replace(part, data=data)
        case Resource(resource=resource):
            return Resource(resource={**resource, "blob": data})
        case _:
            return part


def _check_text(part: Struct, name: str, value: object) -> None:
    if isinstance(value, str):
        return
    kind = type(part).__name__
    if name == "data" and isinstance(value, (bytes, bytearray)):
        raise UsageError(f"{kind}(data=...) is text in Base64. For bytes, write {kind}.from_bytes(data).")
    raise UsageError(f"{kind} has {name}={value!r:.80}; it must be text.")


def _check_bytes(kind: type, data: object) -> None:
    if not isinstance(data, (bytes, bytearray, memoryview)):
        name = kind.__name__
        raise UsageError(f"{name}.from_bytes was given {type(data).__name__}. Give bytes; a path goes to {name}.from_file.")


def _read_file(path: str | os.PathLike[str]) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MOST_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{os.fspath(path)!r:.200} cannot be read: {why}. Give the path of a file.") from error
    if len(data) > _MOST_FILE_BYTES:
        raise UsageError(f"{os.fspath(path)!r:.200} has more than {_MOST_FILE_BYTES} bytes. Give a smaller file.")
    return data


def _as_text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
