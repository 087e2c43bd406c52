"""Runner requests as the engine makes them, and checks for processes that a call leaves running."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from callgate import AbortController
from callgate.calls import RawCall, Scope
from callgate.protocols import RunRequest
from callgate.stage_types import ApprovedCall, ValidatedCall
from callgate.tools import Tool, ToolContext, ToolRegistry
from tests.canonical_json import canonical
from tests.waiting import DEADLINE_S

_numbers = itertools.count()


class Made:
    """A request, with the means to control and observe it."""

    def __init__(
        self,
        tool: Tool,
        arguments: dict[str, object] | None = None,
        *,
        timeout_s: float = DEADLINE_S,
        grace_s: float = 0.3,
        scope: Scope | None = None,
    ) -> None:
        self.kill = AbortController()
        self.progress: list[tuple[str, str]] = []
        self.uid = f"run-{os.getpid()}-{next(_numbers)}/0/0"
        arguments = arguments or {}
        scope = scope or Scope()
        bound = ToolRegistry([tool]).get(tool.name)
        assert bound is not None
        call = ValidatedCall(
            uid=self.uid,
            raw=RawCall(name=tool.name),
            tool=bound,
            scope=scope,
            arguments=arguments,
        )
        context = ToolContext(
            scope=scope,
            call_id="call_1",
            uid=self.uid,
            tool=tool.name,
            idempotency_key="key",
            signal=self.kill.signal,
            report=self._report,
        )
        self.request = RunRequest(
            approved=ApprovedCall(
                call=call, rule="", encoded=canonical(arguments), arguments_json=msgspec.json.encode(arguments), key="key"
            ),
            context=context,
            attempt=1,
            timeout_s=timeout_s,
            grace_s=grace_s,
            kill=self.kill.signal,
        )

    def _report(self, text: str, stream: str) -> None:
        self.progress.append((text, stream))

    def text(self, stream: str) -> str:
        return "".join(text for text, name in self.progress if name == stream)


def marked(marker: str) -> list[int]:
    """Return the processes that have `marker` in their environment."""
    return [pid for pid, environ in _environments() if marker.encode() in environ]


def _environments() -> Iterator[tuple[int, bytes]]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                yield int(name), file.read()
