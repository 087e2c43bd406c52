"""The answer as a type: its JSON Schema for the model, and the value from the model's text.

Strict: what does not fit is told to the model with every path, never bent into shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from callgate.errors import UsageError

__all__ = ["OutputInvalid", "OutputType"]

_FENCE = "```"


class OutputInvalid(ValueError):
    """The model's answer is not of the type; the message is for the model."""


class OutputType:
    """One type that answers may be asked for in.

    Args:
        kind: A type that msgspec can describe (Struct, dataclass, TypedDict, list, int ...), or a pydantic model.

    Raises:
        UsageError: The type has no JSON Schema.
    """

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._pydantic = callable(getattr(kind, "model_validate_json", None))
        try:
            schema = kind.model_json_schema() if self._pydantic else msgspec.json.schema(kind)
        except TypeError as error:
            raise UsageError(f"Agent(output={kind!r}) cannot be described to a model: {error}. Use a dataclass or a Struct.") from error
        self.schema = cast("Mapping[str, object]", schema)

    def read(self, text: str) -> Any:
        """The value that `text` is.

        Raises:
            OutputInvalid: It is none of this type.
        """
        inside = _unfenced(text.strip())
        try:
            return self._kind.model_validate_json(inside, strict=True) if self._pydantic else msgspec.json.decode(inside, type=self._kind)
        except (ValueError, msgspec.MsgspecError, RecursionError) as error:
            raise OutputInvalid(f"Your answer is not what was asked for: {error}. Answer again, with nothing but the JSON.") from error


def _unfenced(text: str) -> str:
    """What stands in the one code block that `text` is; else `text`."""
    if not (text.startswith(_FENCE) and text.endswith(_FENCE)):
        return text
    label, newline, inside = text[len(_FENCE) : -len(_FENCE)].partition("\n")
    return inside.strip() if newline and (label.strip() or "json").isalpha() else text
