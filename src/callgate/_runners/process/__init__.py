"""Run tools in worker processes, which can always be stopped.

    engine      `process_runner`, `worker_pool`, `worker_connection`
       | frames, see `worker_protocol`
    supervisor  `supervisor`
       | the same frames
    worker      `worker_main`

A worker is reused: it keeps the tool's module imported and runs one call at a time. Its supervisor finds and ends every
process that a call started, even if the engine dies. A tool is imported by `module:qualname` (`import_target`); only
plain data is sent.
"""

from __future__ import annotations

from callgate._runners.process.import_target import process_target
from callgate._runners.process.platform_guarantees import strength
from callgate._runners.process.process_runner import ProcessRunner
from callgate._runners.process.resource_limits import ProcessLimits

__all__ = ["ProcessLimits", "ProcessRunner", "process_target", "strength"]
