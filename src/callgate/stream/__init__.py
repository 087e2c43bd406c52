"""One pass of a model: stream it once, under a limit on silence, so that stop, kill and follow-up end it at once.

Above the engine's control and below any loop. Knows nothing of tools' code, histories or budgets.
"""

from __future__ import annotations

from callgate.stream.model_pass import StreamLimits, stream_once
from callgate.stream.result import PassStatus, StreamResult

__all__ = ["PassStatus", "StreamLimits", "StreamResult", "stream_once"]
