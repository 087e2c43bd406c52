"""The calls of clients that are suspended until a human has approved them, so that the same call made again is found.

MCP gives a call no identity that survives its request. A suspended call is found by its principal, its tool and its arguments as the
client sent them. Calls that another process submitted, or this gateway before it was restarted, are read from the journal. The journal has
large arguments not whole, and some with parts redacted, so a digest of all three, made with the gateway's secret, is part of the call's id.
The engine knows whether a question is still open. Knows no client and no result.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from callgate._json import canonical
from callgate._run_state.recorder import off_loop
from callgate.calls import Suspended
from callgate.engine import Engine
from callgate.errors import RunHeld, UsageError
from callgate.event_queries import EventQuery
from callgate.gateway._client_calls import CallInQuestion, RecordedCall
from callgate.gateway._requests.request_states import RequestStates
from callgate.gateway._tool_calls.submitted_calls import SubmittedCall, submitted_call
from callgate.gateway._tool_calls.suspension_reader import MOST_PENDING, SuspensionReader

__all__ = ["SuspendedCalls"]

_RANDOM_CHARS = 16
"""The length of the random beginning of a call's id, see `Clock.new_id`. The digest follows, except in older journals."""


class _Pending(Struct, frozen=True):
    call: SubmittedCall
    approval: str
    found_unanswered: bool
    """Whether the call is found before its question is answered, because the client can continue it only by making it again."""
    identities: frozenset[str]
    """The digests by which it is found."""

    @property
    def principal(self) -> str:
        return self.call.scope.principal


class SuspendedCalls:
    """The suspended calls of one gateway's clients, and those of its journal.

    Args:
        states: Has the gateway's secret.
        workspace: The workspace of all calls; empty: none.
    """

    def __init__(self, engine: Engine, states: RequestStates, workspace: str = "") -> None:
        self._engine = engine
        self._states = states
        self._workspace = workspace
        self._pending: OrderedDict[str, _Pending] = OrderedDict()
        """By the id of the call."""
        self._by_identity: dict[str, list[str]] = {}
        self._by_principal: dict[str, set[str]] = {}
        self._in_work: set[str] = set()
        """The ids of the calls of requests that are being answered."""
        self._reader = SuspensionReader(engine, workspace, lambda call: bool(self._identities(call)))

    async def find_or_new(self, principal: str, run: str, tool: str, arguments: dict[str, Any]) -> SubmittedCall:
        """Return the suspended call that a client makes again, if there is one whose question is open or answered; otherwise a new call.

        The conversation of a new call is its own, so that calls of one client run side by side.

        Raises:
            RunHeld: The call is suspended and its question answered, and another process works on its run.
        """
        identity = self._identity(principal, tool, arguments)
        for one in await self._reader.read_new():
            if one.call.id not in self._pending:
                self._add(one.call, one.approval, found_unanswered=True)
        recorded = await self._find(identity) if identity in self._by_identity else None
        new = RecordedCall(self._engine.clock.new_id() + identity, run)
        call = self.call_of(recorded or new, principal, tool, arguments)
        return call if recorded is None else replace(call, made_again=True)

    def call_of(self, recorded: RecordedCall, principal: str, tool: str, arguments: dict[str, Any]) -> SubmittedCall:
        """Return the call with this id and run, as it is submitted to the engine."""
        return submitted_call(recorded, principal, tool, arguments, self._workspace)

    @contextmanager
    def in_work(self, call: SubmittedCall) -> Iterator[None]:
        """Keep other requests from continuing the call until the block ends."""
        self._in_work.add(call.id)
        try:
            yield
        finally:
            self._in_work.discard(call.id)

    async def _find(self, identity: str) -> RecordedCall | None:
        for call_id in tuple(self._by_identity[identity]):
            pending = self._pending.get(call_id)
            if pending is None or call_id in self._in_work:
                continue
            with self.in_work(pending.call):
                usable = await self._is_usable(pending)
            if usable:
                return RecordedCall(call_id, pending.call.scope.run)
        return None

    def find_continued(self, question: CallInQuestion, principal: str, tool: str, arguments: dict[str, Any]) -> SubmittedCall | None:
        """Return the call that a client continues; None if another request is continuing it."""
        recorded = RecordedCall(question.call, question.run)
        return None if question.call in self._in_work else self.call_of(recorded, principal, tool, arguments)

    def keep(self, call: SubmittedCall, asked: Suspended, *, found_unanswered: bool = True) -> None:
        """Remember a suspended call.

        Args:
            found_unanswered: False if the client has something else to continue it with; then it is found only if its question is answered.
        """
        self._reader.see(asked.uid)
        self._add(call, asked.approval_id, found_unanswered=found_unanswered)

    def forget(self, call_id: str) -> None:
        """Forget a call, because it is answered."""
        pending = self._pending.pop(call_id, None)
        if pending is not None:
            for identity in pending.identities:
                alike = self._by_identity[identity]
                alike.remove(call_id)
                if not alike:
                    del self._by_identity[identity]
            own = self._by_principal[pending.principal]
            own.remove(call_id)
            if not own:
                del self._by_principal[pending.principal]

    async def has_more_than(self, most: int, principal: str) -> bool:
        """Return whether more of a principal's calls wait for a decision than they may."""
        own = self._by_principal.get(principal, ())
        if len(own) <= most:
            return False
        return sum([await self._is_open(call_id) for call_id in tuple(own)]) > most

    async def _is_open(self, call_id: str) -> bool:
        """Return whether the question about a call is neither answered nor closed."""
        pending = self._pending.get(call_id)
        if pending is None:
            return False
        try:
            return await self._engine.wait_for_answer(pending.approval, timeout_s=0.0) is None
        except RunHeld:
            return not await self._is_answered(pending.approval)
        except UsageError:  # used up, or expired
            if call_id not in self._in_work:
                self.forget(call_id)
            return False

    def _add(self, call: SubmittedCall, approval: str, *, found_unanswered: bool) -> None:
        self.forget(call.id)
        identities = self._identities(call)
        self._pending[call.id] = _Pending(call, approval, found_unanswered, identities)
        for identity in identities:
            self._by_identity.setdefault(identity, []).append(call.id)
        self._by_principal.setdefault(call.scope.principal, set()).add(call.id)
        if len(self._pending) > MOST_PENDING:
            self.forget(next(iter(self._pending)))

    def _identity(self, principal: str, tool: str, arguments: Mapping[str, Any]) -> str:
        return self._states.digest(canonical([principal, tool, arguments]))

    def _identities(self, call: SubmittedCall) -> frozenset[str]:
        """Return the digest in the call's id, if it has one, and that of the arguments as they are recorded, if they are whole."""
        arguments = call.raw.arguments
        recorded = self._identity(call.scope.principal, call.raw.name, arguments) if call.whole and isinstance(arguments, Mapping) else ""
        return frozenset({call.id[_RANDOM_CHARS:], recorded} - {""})

    async def _is_usable(self, pending: _Pending) -> bool:
        """Return whether a call made again is this one.

        Raises:
            RunHeld: It is, and another process works on its run.
        """
        try:
            answer = await self._engine.wait_for_answer(pending.approval, timeout_s=0.0)
        except RunHeld:
            if await self._is_answered(pending.approval):
                raise
            return False
        except UsageError:  # used up, or expired
            self.forget(pending.call.id)
            return False
        return pending.found_unanswered or answer is not None

    async def _is_answered(self, approval: str) -> bool:
        journal = self._engine.journal
        query = EventQuery(call=approval, kinds=("approval.answered",), limit=1)
        return bool(await off_loop(journal, lambda: list(journal.find(query))))
