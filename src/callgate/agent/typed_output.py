"""Describe the type of an answer as a JSON Schema, and read the model's answer as a value of that type.

Strict: an answer that does not match the type is refused, with a list of its errors, and never converted. Types that contain pydantic
models are read by pydantic, all others by msgspec.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from callgate._schema.annotations import from_text, schema_hook, uses_pydantic
from callgate.errors import UsageError

if TYPE_CHECKING:
    import pydantic

__all__ = ["OutputInvalid", "OutputType"]

_FENCE = "```"
_MOST_PLACES = 10


class OutputInvalid(ValueError):
    """The model's answer is not of the type; the message says why."""


class OutputType:
    """The type of an agent's answers.

    Args:
        kind: A standard type, a dataclass, a TypedDict, a Struct, a pydantic model, or a type made from them: `list[Model]`, `Model |
            None`, a dataclass with such a field. Structs and pydantic models cannot be combined in one type.

    Raises:
        UsageError: The type has no JSON Schema.
    """

    def __init__(self, kind: Any) -> None:
        try:
            schema, self._read = (_by_pydantic if uses_pydantic(kind) else _by_msgspec)(kind)
        except Exception as error:
            raise UsageError(
                f"Agent(output={_type_name(kind)}) cannot be described to a model ({_cause(error)}). Take standard types, dataclasses and"
                " TypedDicts, with Structs or with pydantic models in them, but not with both.",
                code="schema_refused",
            ) from error
        self.schema = cast("Mapping[str, object]", schema)

    def read(self, text: str, *, cut: str = "") -> Any:
        """Read `text` as a value of the type.

        Args:
            text: The model's answer.
            cut: Why the answer is incomplete; empty if it is complete. An incomplete answer is refused, because it may still be valid (as
                the first digits of a number are).

        Raises:
            OutputInvalid: The answer is incomplete or not of this type.
        """
        try:
            if cut:
                raise ValueError(cut)
            return self._read(_remove_fence(text.strip()))
        except (ValueError, msgspec.MsgspecError, RecursionError) as error:
            raise OutputInvalid(str(error)) from error


_Read = Callable[[str], Any]


def _by_pydantic(kind: Any) -> tuple[dict[str, Any], _Read]:
    import pydantic

    adapter = pydantic.TypeAdapter(kind)

    def read(text: str) -> Any:
        try:
            return adapter.validate_json(text, strict=True)
        except pydantic.ValidationError as error:
            raise ValueError(_places(error)) from error

    return adapter.json_schema(), read


def _by_msgspec(kind: Any) -> tuple[dict[str, Any], _Read]:
    return msgspec.json.schema(kind, schema_hook=schema_hook), msgspec.json.Decoder(kind, dec_hook=from_text).decode


def _places(error: pydantic.ValidationError) -> str:
    """Return the places in the answer that are wrong, with the reasons, without values and links."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}".removeprefix(": ") for one in found[:_MOST_PLACES])


def _cause(error: Exception) -> str:
    """Return the line of a library's error that names the type: the first line from pydantic, the last one from msgspec."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[0 if type(error).__module__.startswith("pydantic") else -1].partition(". ")[0][:200].rstrip(".")


def _type_name(kind: Any) -> str:
    return kind.__qualname__ if isinstance(kind, type) and not getattr(kind, "__args__", ()) else str(kind)[:100]


def _remove_fence(text: str) -> str:
    """Return the content of the code block if `text` is one code block, else `text`."""
    if not (text.startswith(_FENCE) and text.endswith(_FENCE)):
        return text
    label, newline, inside = text[len(_FENCE) : -len(_FENCE)].partition("\n")
    return inside.strip() if newline and (label.strip() or "json").isalpha() else text
