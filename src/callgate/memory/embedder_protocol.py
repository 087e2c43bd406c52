"""The protocol of embedders, and the checks of their vectors.

An `Embedder` is, for example, a model in this process or a server. Vectors are scaled to length 1 and stored as 32-bit floats, so that all
of them can be compared. Pure; knows nothing of databases or threads.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Awaitable, Iterable, Sequence
from itertools import islice
from typing import Final, Protocol

from callgate.errors import CallgateError, UsageError

__all__ = ["Embedder", "EmbedderFailed", "check", "pack_vector"]

_MOST_NUMBERS: Final = 16_384


class EmbedderFailed(CallgateError):
    """An embedder did not return vectors; the operator must act.

    No text is lost: texts without vectors are found by words.

    Args:
        late: Whether the embedder exceeded its time limit.
    """

    code = "embedder_failed"

    def __init__(self, message: str, *, late: bool = False) -> None:
        super().__init__(message)
        self.late = late


class Embedder(Protocol):
    """Turns texts into vectors that point in similar directions if the texts have similar meanings.

    Called from one thread only, one call at a time. An async function runs in its own event loop and is cancelled at its time limit. A
    plain function that does not return in time is abandoned, and not called again until it returns.
    """

    @property
    def name(self) -> str:
        """The name of the model.

        It must differ for every setting that changes the vectors, because only vectors with the same name are compared.
        """
        ...

    @property
    def dimension(self) -> int:
        """The number of components of a vector."""
        ...

    def __call__(self, texts: Sequence[str], /) -> Iterable[Iterable[float]] | Awaitable[Iterable[Iterable[float]]]:
        """Return one vector per text, in order."""
        ...


def check(embedder: Embedder) -> None:
    """Check that an object is an embedder.

    Raises:
        UsageError: The object cannot be called, has no name, or has an invalid dimension.
    """
    missing = [f"`{one}`" for one in ("name", "dimension") if not hasattr(embedder, one)] + ["`__call__`"] * (not callable(embedder))
    if missing:
        raise UsageError(
            f"{type(embedder).__name__} is not an embedder: it has no {' and no '.join(missing)}. Give an object with a `name`, a"
            " `dimension` and a `__call__` that takes texts and gives a vector for each."
        )
    if not isinstance(embedder.name, str) or not embedder.name.strip():
        raise UsageError("The embedder has no name. Give it one that changes whenever its vectors do: the model's name and version.")
    if type(embedder.dimension) is not int or not 1 <= embedder.dimension <= _MOST_NUMBERS:
        raise UsageError(
            f"The embedder {embedder.name!r} says that its dimension is {embedder.dimension!r}. It has to be an integer from 1 to"
            f" {_MOST_NUMBERS:,}: how many numbers each of its vectors has."
        )


def pack_vector(vector: Iterable[float], embedder: Embedder) -> bytes:
    """Return the vector scaled to length 1, as bytes; empty if the vector is all zeros or not finite.

    Raises:
        EmbedderFailed: The vector does not have the embedder's dimension.
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
