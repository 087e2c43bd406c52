"""What turns texts into vectors, and what a vector has to be before it is kept or compared.

`Embedder` is what others plug in: a model in this process, a server nearby. Vectors are kept with the length 1, as 32-bit numbers, so that
none can be too large or too small to compare. Pure; knows nothing of databases or threads.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Awaitable, Iterable, Sequence
from itertools import islice
from typing import Final, Protocol

from callgate.errors import CallgateError, UsageError

__all__ = ["Embedder", "EmbedderFailed", "check", "packed"]

_MOST_NUMBERS: Final = 16_384


class EmbedderFailed(CallgateError):
    """The operator must act: an embedder gave no vectors. Nothing is lost: words find what it should have embedded.

    Args:
        late: Its time was over.
    """

    code = "embedder_failed"

    def __init__(self, message: str, *, late: bool = False) -> None:
        super().__init__(message)
        self.late = late


class Embedder(Protocol):
    """Turns texts into vectors whose directions are near where meanings are. One call at a time, always from the same thread.

    It may be an async function: it then runs in an event loop of its own and is cancelled when its time is over. A plain one that does not
    return is left behind, and nothing more is asked of it until it does.
    """

    @property
    def name(self) -> str:
        """Which model it is, and whatever else changes its vectors: those of two names are never compared."""
        ...

    @property
    def dimension(self) -> int:
        """How many numbers a vector has."""
        ...

    def __call__(self, texts: Sequence[str], /) -> Iterable[Iterable[float]] | Awaitable[Iterable[Iterable[float]]]:
        """One vector for each text, in the order of the texts."""
        ...


def check(embedder: Embedder) -> None:
    """Refuse one that does not say what it is.

    Raises:
        UsageError: It cannot be called, has no name, or a dimension that cannot be.
    """
    missing = [f"`{one}`" for one in ("name", "dimension") if not hasattr(embedder, one)] + ["`__call__`"] * (not callable(embedder))
    if missing:
        raise UsageError(
            f"{type(embedder).__name__} is no embedder: it has no {' and no '.join(missing)}. Give an object with a `name`, a `dimension`"
            " and a `__call__` that takes texts and gives a vector for each."
        )
    if not isinstance(embedder.name, str) or not embedder.name.strip():
        raise UsageError("The embedder has no name. Give it one that changes whenever its vectors do: the model's name and version.")
    if type(embedder.dimension) is not int or not 1 <= embedder.dimension <= _MOST_NUMBERS:
        raise UsageError(
            f"The embedder {embedder.name!r} says that its dimension is {embedder.dimension!r}. It has to be an integer from 1 to"
            f" {_MOST_NUMBERS:,}: how many numbers each of its vectors has."
        )


def packed(vector: Iterable[float], embedder: Embedder) -> bytes:
    """The vector as it is kept; empty where it has no direction: it is all zeros, or a number in it is infinite or none.

    Raises:
        EmbedderFailed: It has another dimension than the embedder says.
    """
    numbers = [float(number) for number in islice(vector, embedder.dimension + 1)]
    if len(numbers) != embedder.dimension:
        many = "more" if len(numbers) > embedder.dimension else f"{len(numbers):,}"
        raise EmbedderFailed(
            f"The embedder {embedder.name!r} gave a vector of {many} numbers and says that its dimension is"
            f" {embedder.dimension:,}. Correct the one or the other."
        )
    length = math.hypot(*numbers)
    if not math.isfinite(length) or length == 0:
        return b""
    return array("f", (number / length for number in numbers)).tobytes()
