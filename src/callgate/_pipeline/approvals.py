"""Questions to a human and their answers, for as long as the engine lives.

An approval is for this tool as it is now, these final arguments, this run and this principal; it is spent by the call that uses it and
expires. Nothing here waits. A durable store of approvals takes this one's place behind the same three methods.
"""

from __future__ import annotations

import hashlib

from msgspec import Struct

from callgate._clock import Clock
from callgate.errors import UsageError
from callgate.route import ValidatedCall

__all__ = ["Approvals", "binding"]


def binding(call: ValidatedCall, encoded: bytes) -> str:
    """What an approval of this call is bound to, as one hash."""
    scope = call.scope
    parts = (call.tool.identity, scope.run, scope.principal, scope.actor, scope.workspace)
    digest = hashlib.sha256("\x00".join(parts).encode())
    digest.update(b"\x00" + encoded)
    return digest.hexdigest()


class _Question(Struct, kw_only=True):
    binding: str
    expires_at: int
    allowed_by: str | None = None


class Approvals:
    """Open questions by id."""

    def __init__(self, clock: Clock, life_s: float, *, most: int = 10_000) -> None:
        self._clock = clock
        self._life_ns = int(life_s * 1e9)
        self._most = most
        self._questions: dict[str, _Question] = {}

    def ask(self, bound_to: str) -> tuple[str, int]:
        """Open a question; returns its id and when it expires, in UTC nanoseconds."""
        self._forget_expired()
        approval_id = self._clock.new_id()
        expires_at = self._clock.wall_ns() + self._life_ns
        self._questions[approval_id] = _Question(binding=bound_to, expires_at=expires_at)
        return approval_id, expires_at

    def answer(self, approval_id: str, *, allow: bool, by: str) -> None:
        """Allow the call once, or close the question.

        Raises:
            UsageError: No such question is open: it never was, has expired, or was answered with no.
        """
        self._forget_expired()
        question = self._questions.get(approval_id)
        if question is None:
            raise UsageError(
                f"No approval '{approval_id[:32]}' is open: it was answered, has expired, or never existed. Send the call again."
            )
        if allow:
            question.allowed_by = by
        else:
            del self._questions[approval_id]

    def spend(self, bound_to: str) -> str | None:
        """Use up an approval of exactly this; returns who gave it, or None."""
        if not self._questions:
            return None
        self._forget_expired()
        for approval_id, question in self._questions.items():
            if question.allowed_by is not None and question.binding == bound_to:
                del self._questions[approval_id]
                return question.allowed_by
        return None

    def _forget_expired(self) -> None:
        now = self._clock.wall_ns()
        expired = [key for key, question in self._questions.items() if question.expires_at <= now]
        surplus = list(self._questions)[: max(0, len(self._questions) - self._most)]
        for key in {*expired, *surplus}:
            del self._questions[key]
