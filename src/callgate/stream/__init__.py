"""One pass of a model: stream one answer, under a limit on silence, so that stop, kill and follow-up end it at once.

In reading order: `model_pass` (`stream_once`), `pass_result` (what a pass returns), `model_checks` (refuses invalid events of a host's own
model). Uses the engine's control; any loop stands above it. Knows nothing of tools' code, histories or budgets.
"""

from __future__ import annotations

from callgate.stream.model_pass import StreamLimits, stream_once
from callgate.stream.pass_result import PassStatus, StreamResult

__all__ = ["PassStatus", "StreamLimits", "StreamResult", "stream_once"]
