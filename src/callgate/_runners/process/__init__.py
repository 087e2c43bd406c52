"""Run tools in processes of their own, so that they can be stopped, whatever they do.

    engine (`runner`, `pool`, `link`)  <-- frames (`wire`) -->  `supervisor`  <-- the same frames -->  `worker`

A worker is warm: it keeps the tool's module loaded and serves one call at a time. Its supervisor finds and ends every process that a call
started, also when the engine dies. A tool is found by `module:qualname` (`target`); only plain values cross.
"""

from __future__ import annotations

from callgate._runners.process.limits import ProcessLimits
from callgate._runners.process.runner import ProcessRunner
from callgate._runners.process.strength import strength
from callgate._runners.process.target import process_target

__all__ = ["ProcessLimits", "ProcessRunner", "process_target", "strength"]
