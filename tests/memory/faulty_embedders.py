"""Embedders that fail, hang or return invalid values."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

from callgate.testing import HashedEmbedder

__all__ = ["Async", "Hanging", "HangingAsync", "Odd", "Picky", "Refusing", "Stuck"]


class Async:
    """A `HashedEmbedder` that is asynchronous, like one that makes a request."""

    def __init__(self) -> None:
        self._counting = HashedEmbedder()
        self.name = self._counting.name
        self.dimension = self._counting.dimension

    async def __call__(self, texts: Sequence[str], /) -> list[list[float]]:
        await asyncio.sleep(0)
        return self._counting(texts)


class Refusing(HashedEmbedder):
    """Raises while `down` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.down = True

    def __call__(self, texts: Sequence[str], /) -> list[list[float]]:
        if self.down:
            raise OSError("the model is not loaded")
        return super().__call__(texts)


class Picky(HashedEmbedder):
    """Raises if one of the texts contains a given word."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self._word = word

    def __call__(self, texts: Sequence[str], /) -> list[list[float]]:
        found = super().__call__(texts)
        if any(self._word in text for text in texts):
            raise ValueError("a text is too long")
        return found


class Hanging(HashedEmbedder):
    """Waits in every call until `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.go = threading.Event()

    def __call__(self, texts: Sequence[str], /) -> list[list[float]]:
        self.reached.set()
        self.go.wait(60)
        return super().__call__(texts)


class Stuck(HashedEmbedder):
    """Waits in every call whose texts contain a given word, until it is released."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self._word = word
        self._stuck = threading.Event()
        self._go = threading.Semaphore(0)

    def __call__(self, texts: Sequence[str], /) -> list[list[float]]:
        if any(self._word in text for text in texts):
            self._stuck.set()
            self._go.acquire(timeout=60)
        return super().__call__(texts)

    def let_go(self) -> None:
        """Release the waiting call, if there is one."""
        if self._stuck.is_set():
            self._stuck.clear()
            self._go.release()


class HangingAsync(Async):
    """Waits until it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.cancelled = threading.Event()

    async def __call__(self, texts: Sequence[str], /) -> list[list[float]]:
        self.reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
        return []


class Odd(HashedEmbedder):
    """Applies a function to the vectors that it returns."""

    def __init__(self, change: Callable[[list[list[float]]], object]) -> None:
        super().__init__()
        self._change = change

    def __call__(self, texts: Sequence[str], /) -> list[list[float]]:
        return self._change(super().__call__(texts))  # type: ignore[return-value]  # the value is invalid on purpose
