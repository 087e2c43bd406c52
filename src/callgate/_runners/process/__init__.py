"""Run tools in processes of their own, so that they can be stopped, whatever they do.

    engine (`runner`, `worker_pool`, `worker_connection`)  <-- frames (`protocol`) -->  `supervisor`  <-- the same frames -->  `worker`

A worker is warm: it keeps the tool's module loaded and serves one call at a time. Its supervisor finds and ends every process that a call
started, also when the engine dies. A tool is found by `module:qualname` (`import_target`); only plain values cross.
"""

from __future__ import annotations

from callgate._runners.process.guarantees import strength
from callgate._runners.process.import_target import process_target
from callgate._runners.process.limits import ProcessLimits
from callgate._runners.process.runner import ProcessRunner

__all__ = ["ProcessLimits", "ProcessRunner", "process_target", "strength"]
