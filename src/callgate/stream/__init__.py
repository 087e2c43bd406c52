"""One pass of a model: one request and its streamed answer, with a limit on silence. A stop, a kill or a follow-up ends it at once.

In reading order: `model_pass` (`stream_once`), `pass_result` (the result of a pass), `model_checks` (refuses invalid events of a host's own
model). Uses the engine's control; loops are built on top of it. Knows nothing of tools' code, histories or budgets.
"""

from __future__ import annotations

from callgate.stream.model_pass import StreamLimits, stream_once
from callgate.stream.pass_result import PassStatus, StreamResult

__all__ = ["PassStatus", "StreamLimits", "StreamResult", "stream_once"]
