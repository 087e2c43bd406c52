"""Embedders that do what embedders do on bad days."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

from callgate.testing import HashedEmbedder

__all__ = ["Async", "Hanging", "HangingAsync", "Odd", "Picky", "Refusing", "Stuck"]


class Async:
    """A `HashedEmbedder` that waits as a request would."""

    def __init__(self) -> None:
        self._counting = HashedEmbedder()
        self.name = self._counting.name
        self.dimension = self._counting.dimension

    async def __call__(self, texts: Sequence[str], /) -> list[list[float]]:
        await asyncio.sleep(0)
        return self._counting(texts)


class Refusing(HashedEmbedder):
    """Raises for as long as `down`."""

    def __init__(self) -> None:
        super().__init__()
        self.down = True

    def __call__(self, texts: Sequence[str], /) -> list[list[float]]:
        if self.down:
            raise OSError("the model is not loaded")
        return super().__call__(texts)


class Picky(HashedEmbedder):
    """Raises where one of the texts has this in it."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self._word = word

    def __call__(self, texts: Sequence[str], /) -> list[list[float]]:
        found = super().__call__(texts)
        if any(self._word in text for text in texts):
            raise ValueError("a text is too long")
        return found


class Hanging(HashedEmbedder):
    """Waits, from its first call on, until it is told to go."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.go = threading.Event()

    def __call__(self, texts: Sequence[str], /) -> list[list[float]]:
        self.reached.set()
        self.go.wait(60)
        return super().__call__(texts)


class Stuck(HashedEmbedder):
    """Waits on texts that have this in them, each time until it is let go."""

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
        """End the call that waits, if one does."""
        if self._stuck.is_set():
            self._stuck.clear()
            self._go.release()


class HangingAsync(Async):
    """Waits for ever until it is cancelled."""

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
    """Changes what it answers."""

    def __init__(self, change: Callable[[list[list[float]]], object]) -> None:
        super().__init__()
        self._change = change

    def __call__(self, texts: Sequence[str], /) -> list[list[float]]:
        return self._change(super().__call__(texts))  # type: ignore[return-value]  # that it is none is the point
