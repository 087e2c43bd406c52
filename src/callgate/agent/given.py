"""What an agent is given, turned into what it works with: a model by its name, a choice by its word, the type of its answer.

What is of another type than it should be is refused here in a sentence; later it would be an error about something else, or none at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from callgate.errors import UsageError
from callgate.models.model import Model

if TYPE_CHECKING:  # loaded when first used: most agents need none of these
    from callgate.agent.output import OutputType

__all__ = ["TextCallMode", "check_choice", "check_type", "check_types", "model_of", "output_type", "reading_text", "shown"]

TextCallMode = Literal["auto", "fallback", "never"]


def model_of(model: Model | str) -> Model:
    if isinstance(model, str):
        from callgate.models.providers import model as from_name

        return from_name(model)
    if not all(hasattr(model, name) for name in ("provider", "name", "native_tools", "stream")):
        raise UsageError(f"Agent(model={shown(model)}) is no model. Give 'provider:model', or an object with what `Model` has.")
    return model


def check_choice(name: str, given: str, known: Iterable[str]) -> None:
    if not isinstance(given, str) or given not in known:
        raise UsageError(f"Agent({name}={given!r}) is not known. Choose one of: {', '.join(known)}.")


def check_type(name: str, given: object, kind: type | tuple[type, ...], what: str) -> None:
    """Refuse what is not of a type.

    Args:
        name: Whose parameter, and its name, as in `Agent.run(scope`.
        what: What to give instead.

    Raises:
        UsageError: It is of another type.
    """
    if not isinstance(given, kind):
        raise UsageError(f"{name}={shown(given)}) cannot work. Give {what}.")


def check_types(**given: tuple[object, type]) -> None:
    """The same for parameters of `Agent` that may be None.

    Raises:
        UsageError: One is of another type.
    """
    for name, (value, kind) in given.items():
        if value is not None:
            article = "an" if kind.__name__[0] in "AEIOU" else "a"
            check_type(f"Agent({name}", value, kind, f"{article} {kind.__name__}, or None")


def output_type(kind: Any) -> OutputType:
    from callgate.agent.output import OutputType

    return OutputType(kind)


def reading_text(model: Model, mode: TextCallMode, dialect: str | None) -> Model:
    if mode == "never" or (mode == "auto" and model.native_tools):
        return model
    from callgate.agent.text_calls import TextCalls

    return TextCalls(model, teach=not model.native_tools, dialect=dialect)


def shown(value: object) -> str:
    """What was given, as long as anybody wants to read."""
    try:
        return f"{value!r:.80}"
    except Exception:
        return f"a {type(value).__name__}"
