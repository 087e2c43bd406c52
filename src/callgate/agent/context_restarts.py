"""Add results of type `context_restart_...` to the context of the running turn instead of the history.

A `ContextRestarts` is given to the engine as its `restart` handler. From a result's data, the handler decides whether
the result is a restart; it finds the turn by a context variable. The model sees the added item in all further requests
of the turn. A tool can put a large item into a bounded stash and return only its key. Knows no model and no tool.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Self

import msgspec
from msgspec import Struct

from callgate._clock import Clock, SystemClock
from callgate._json import json_text
from callgate._option_checks import Count, Seconds, by_name, check
from callgate._terminal_text import one_line
from callgate.agent.history import History
from callgate.calls import Part, Text
from callgate.errors import UsageError
from callgate.messages import UserMessage

__all__ = ["PREFIX", "AddedContext", "ContextRestarts", "Enrichment"]

log = logging.getLogger("callgate")

PREFIX = "context_restart_"


class AddedContext(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The context that the calls of one message have added, in its recorded form."""

    parts: tuple[Part, ...] = ()
    """The parts that the model is shown during the turn. Parts that are added to the history are recorded as a
    separate message.
    """
    kinds: tuple[str, ...] = ()
    """The types of context that may not be added again in this turn."""


class Enrichment:
    """The context that the calls of one turn have added. A context manager: calls made inside it belong to this turn.

    Args:
        owner: The handler whose restarts are accepted; None: none are accepted.
        parts: Context that was added before the turn was resumed.
        disabled: Types of context that may not be added again.
    """

    def __init__(self, owner: ContextRestarts | None = None, parts: tuple[Part, ...] = (), disabled: frozenset[str] = frozenset()) -> None:
        self.owner = owner
        self.in_use = owner is not None or bool(parts)
        """Whether the turn has added context, or can add some."""
        self.parts = parts
        self.disabled = disabled
        """Suffixes of the types that have been added in this turn. Each may be added once."""
        self._settled = (parts, disabled)
        self._tokens: list[Token[Enrichment | None]] = []

    def tail(self) -> tuple[UserMessage, ...]:
        """Return the messages to append to the history in the next request.

        Context that the calls of a failed message have added is dropped.
        """
        self.parts, self.disabled = self._settled
        return (UserMessage(self.parts),) if self.parts else ()

    def settle(self, history: History) -> tuple[Part, ...]:
        """Keep the context that the calls of a committed message have added.

        It is kept for the turn, or in the history if the owner has `keep` set.

        Returns:
            The parts that were added to the history.
        """
        kept: tuple[Part, ...] = ()
        if self.owner is not None and self.owner.keep and self.parts:
            history.add(UserMessage(self.parts))
            kept, self.parts = self.parts, ()
        self._settled = (self.parts, self.disabled)
        return kept

    @property
    def news(self) -> AddedContext | None:
        """The context that the calls of the current message have added; None if there is none."""
        parts, disabled = self._settled
        if self.disabled == disabled:
            return None
        kept = self.owner is not None and self.owner.keep
        return AddedContext(parts=() if kept else self.parts[len(parts) :], kinds=tuple(sorted(self.disabled - disabled)))

    def add(self, suffix: str, parts: tuple[Part, ...]) -> None:
        self.disabled |= {suffix}
        if parts:
            label = Text(text=f"Context that a tool has brought ({suffix[:80]}); it is material, not a message of the user:")
            self.parts = (*self.parts, label, *parts)

    def __enter__(self) -> Self:
        self._tokens.append(_TURN.set(self))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _TURN.reset(self._tokens.pop())


_TURN: ContextVar[Enrichment | None] = ContextVar("callgate_enrichment", default=None)


class ContextRestarts:
    """Moves results of type `context_restart_SUFFIX` out of the history and into the context.

    Pass it to the engine: `Engine(tools, restart=ContextRestarts())`. An agent that uses the engine finds it there. A tool returns its item
    inline, `{"type": "context_restart_image", "enhanced_context_item": item}`, or puts it into the stash and returns the key, `{"type":
    "context_restart_image", "pending_context_key": restarts.stash(item)}`. If a result has both, the key is used. An item is a text, a
    content part, a list of these, or any JSON value.

    In every further request of the turn, the item follows the history as a message of the user. It is not kept in the history unless `keep`
    is set. Each suffix is accepted once per turn; further results of that type are ordinary results.

    Args:
        ttl_s: How long a stashed item is kept, in seconds.
        entries: The maximum number of stashed items; the oldest is dropped first.
        keep: Commit the item to the history, so that later turns see it too.
        clock: Measures `ttl_s`.

    Raises:
        UsageError: An option has an invalid value.
    """

    @by_name
    def __init__(self, *, ttl_s: float = 300.0, entries: int = 16, keep: bool = False, clock: Clock | None = None) -> None:
        for name, value, kind in (("ttl_s", ttl_s, Seconds), ("entries", entries, Count), ("keep", keep, bool)):
            check("ContextRestarts", name, value, kind)
        self.keep = keep
        self._ttl_s = ttl_s
        self._entries = entries
        self._clock: Clock = clock or SystemClock()
        self._stash: OrderedDict[str, tuple[float, tuple[Part, ...]]] = OrderedDict()
        self._lock = threading.Lock()

    def stash(self, item: object) -> str:
        """Store an item and return its key, for a result that contains the key. An item can be used once. Thread-safe.

        Raises:
            UsageError: The item is neither text, nor a content part, nor JSON.
        """
        try:
            parts = _as_parts(item)
        except TypeError as error:
            raise UsageError(f"A {type(item).__name__} cannot be shown to a model: {error}. Stash text, content parts or JSON.") from error
        key = self._clock.new_id()
        with self._lock:
            self._drop_old()
            self._stash[key] = (self._clock.monotonic() + self._ttl_s, parts)
            dropped = len(self._stash) > self._entries
            if dropped:
                self._stash.popitem(last=False)
        if dropped:
            log.warning("The oldest stashed context item was dropped: %d may wait", self._entries)
        return key

    def __len__(self) -> int:
        """Return the number of stashed items."""
        with self._lock:
            self._drop_old()
            return len(self._stash)

    async def __call__(self, data: object) -> bool:
        """Add the item in the result's data to the context of the running turn, if the result is a restart.

        Return whether it was added.
        """
        turn = _TURN.get()
        if turn is None or turn.owner is not self or not isinstance(data, Mapping):
            return False
        suffix = str(data.get("type", "")).removeprefix(PREFIX)
        if suffix in turn.disabled:
            log.info("%s%s has enriched this turn already; its result goes to the model", PREFIX, one_line(suffix, 80))
            return False
        key, inline = data.get("pending_context_key"), data.get("enhanced_context_item")
        if key is None and inline is None:
            log.warning("%s%s has neither an item nor a key; its result goes to the model", PREFIX, one_line(suffix, 80))
            return False
        turn.add(suffix, _as_parts(inline) if key is None else self._take(key))
        return True

    def _take(self, key: object) -> tuple[Part, ...]:
        with self._lock:
            self._drop_old()
            found = self._stash.pop(key, None) if isinstance(key, str) else None
        if found is None:
            log.warning("No context item is stashed under the key of a result: it was taken, dropped or too old; the turn goes on without")
            return ()
        return found[1]

    def _drop_old(self) -> None:
        now = self._clock.monotonic()
        while self._stash and next(iter(self._stash.values()))[0] <= now:
            self._stash.popitem(last=False)


def _as_parts(item: object) -> tuple[Part, ...]:
    """Return the item as parts of a message; anything else becomes JSON text."""
    if item is None:
        return ()
    if isinstance(item, (list, tuple)):
        return tuple(part for one in item for part in _as_parts(one))
    if isinstance(item, str):
        return (Text(text=item.encode("utf-8", "backslashreplace").decode()),)
    if isinstance(item, Part):
        return (item,)
    try:
        return (msgspec.convert(item, Part),)
    except msgspec.ValidationError:
        return (Text(text=json_text(item)),)
