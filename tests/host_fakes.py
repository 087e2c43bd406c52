"""Fakes of a host: a policy that asks a human, and a redactor that knows one secret."""

from __future__ import annotations

from callgate.protocols import Allow, Ask, Verdict
from callgate.stage_types import ValidatedCall

__all__ = ["Asks", "Hider"]


class Asks:
    """A policy that asks a human about each call of the named tools, or about every call if none is named."""

    def __init__(self, *names: str, question: str = "May it {tool}?") -> None:
        self._names = names
        self._question = question

    async def decide(self, call: ValidatedCall) -> Verdict:
        if self._names and call.tool.name not in self._names:
            return Allow()
        return Ask(question=self._question.format_map({**call.arguments, "tool": call.tool.name}))


class Hider:
    """A redactor that hides the secret `hunter2`."""

    def redact(self, body: bytes) -> bytes:
        return body.replace(b"hunter2", b"[hidden]")
