"""The requests of one client over stdio that wait until it reads the answers to earlier ones.

A client that sends on without reading would have the gateway keep all answers in memory. Above a limit of unread bytes, no further request
is started. Everything else is still taken: a running call may wait for a response, and a notification may cancel it. So the input is read
on, and only the requests are held, up to a limit of their own.

How large an answer becomes is not known before it is made, so of many requests at once the first few are started, and more the more
answers the client reads. A request may wait for a human or for a later request of the same client, so while nothing is unread, twice as
many are started each moment. Knows no era and writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from callgate.mcp._connection import Message

__all__ = ["MAX_HELD_BYTES", "HeldRequests"]

MAX_HELD_BYTES: Final = 16_777_216
"""The size of what may be held. Above it, the input is not read until the client has read."""
_FIRST: Final = 16
"""How many requests run at once before the client has read an answer, or after it has left too much unread."""
_MOST: Final = 64
"""How many run at once when the client has read many answers. More only if they take long."""
_MOMENT_S: Final = 0.05
_REQUEST_BYTES: Final = 512
"""What a held request needs at least, and the answer of one that is small."""


class HeldRequests:
    """Starts the requests of one client, at once or when the client has read enough.

    Args:
        start: Starts a request. `ended` must be called when it is answered.
        unread_bytes: Returns how much the client has not read.
    """

    def __init__(self, start: Callable[[Message], None], unread_bytes: Callable[[], int]) -> None:
        self._start = start
        self._unread_bytes = unread_bytes
        self._loop = asyncio.get_running_loop()
        self._held: dict[object, tuple[Message, int]] = {}
        """The requests in their order, with their sizes, by their ids."""
        self._size_bytes = 0
        self._running = 0
        self._at_once = _FIRST
        self._is_behind = False
        """Whether the client has left more than the limit unread."""
        self._timer: asyncio.TimerHandle | None = None
        self._room = asyncio.Event()
        self._room.set()
        self.none_left = asyncio.Event()
        """Set while no request is held."""
        self.none_left.set()

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._held

    def take(self, request: Message, size_bytes: int) -> None:
        """Start a request, or hold it."""
        self.none_left.clear()
        self._held[request["id"]] = (request, size_bytes + _REQUEST_BYTES)
        self._size_bytes += size_bytes + _REQUEST_BYTES
        self._start_more()

    def note_small(self) -> None:
        """Count a small answer, which is written at once although the client may be behind."""
        if self._is_behind:
            self._size_bytes += _REQUEST_BYTES
            self._check_room()

    def note_answered(self) -> None:
        """Note that a request was answered."""
        self._running -= 1
        if self._at_once < _MOST and not self._unread_bytes():
            self._at_once += 1
        self._start_more()

    def withdraw(self, request_id: object) -> bool:
        """Forget a held request, which its client has cancelled; return whether it was held."""
        if request_id not in self._held:
            return False
        self._size_bytes -= self._held.pop(request_id)[1]
        self._start_more()
        return True

    def pause(self) -> None:
        """Start no requests, because the client has left too much unread."""
        self._is_behind, self._at_once = True, _FIRST

    def resume(self) -> None:
        """Start requests again, because the client has read."""
        self._is_behind = False
        self._size_bytes = sum(size_bytes for _, size_bytes in self._held.values())
        self._start_more()

    async def wait_for_room(self) -> None:
        """Wait until more of the client's input may be read."""
        await self._room.wait()

    def close(self) -> None:
        """Forget all requests."""
        self._held.clear()
        self._size_bytes = 0
        self._room.set()
        self.none_left.set()
        if self._timer is not None:
            self._timer.cancel()

    def _start_more(self) -> None:
        while self._held and not self._is_behind and self._running < self._at_once:
            request_id = next(iter(self._held))
            request, size_bytes = self._held.pop(request_id)
            self._size_bytes -= size_bytes
            self._running += 1
            self._start(request)
        self._check_room()
        if not self._held:
            self.none_left.set()
        elif self._timer is None and not self._is_behind:
            self._timer = self._loop.call_later(_MOMENT_S, self._widen)

    def _widen(self) -> None:
        self._timer = None
        if not self._unread_bytes():
            self._at_once = 2 * max(self._running, self._at_once)
        self._start_more()

    def _check_room(self) -> None:
        if self._size_bytes > MAX_HELD_BYTES:
            self._room.clear()
        else:
            self._room.set()
