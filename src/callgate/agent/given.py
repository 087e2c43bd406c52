"""What an agent is given, turned into what it works with: a model by its name, a reader of calls in text, the type of its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from callgate.agent.options import shown
from callgate.errors import UsageError
from callgate.models.model import Model

if TYPE_CHECKING:  # loaded when first used: most agents need none of these
    from callgate.agent.output import OutputType

__all__ = ["TextCallMode", "model_of", "output_type", "reading_text"]

TextCallMode = Literal["auto", "fallback", "never"]


def model_of(model: Model | str) -> Model:
    if isinstance(model, str):
        from callgate.models.providers import model as from_name

        return from_name(model)
    if not all(hasattr(model, name) for name in ("provider", "name", "native_tools", "stream")):
        raise UsageError(f"Agent(model={shown(model)}) is no model. Give 'provider:model', or an object with what `Model` has.")
    return model


def output_type(kind: Any) -> OutputType:
    from callgate.agent.output import OutputType

    return OutputType(kind)


def reading_text(model: Model, mode: TextCallMode, dialect: str | None) -> Model:
    if mode == "never" or (mode == "auto" and model.native_tools):
        return model
    from callgate.agent.text_calls import TextCalls

    return TextCalls(model, teach=not model.native_tools, dialect=dialect)
