"""Demonstrations, each with claims that it checks.

They use only public interfaces. A demonstration runs real tools on real files and processes, and shows the engine's
events. It checks its claims against evidence from outside the engine: a ledger that the tools write, the operating
system's processes, and the files. The engine must not import this package.

The demonstrations are `_stoppable_tools`, `_message_cut_off`, `_early_started_reads`, `_concurrent_calls`, `_large_results`, `_undo`,
`_replay`, `eras`, `crash` and `repair`, in the order of the `_catalogue`, with the same `tools`; `_checks` has their claims; `_user_folder`
works on a folder of the user. `_demo_run` sets one up, with a `_model` or `_scripted_messages`, and shows it on the `_screen`.
`_effect_log`, `_file_snapshot` and `_processes` are the evidence. `__main__` runs the engine of one in its own process.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from callgate.demo._catalogue import DEMOS, Demo, Outcome, run_demo
    from callgate.demo._checks import Finding
    from callgate.demo.crash import verify_crash
    from callgate.demo.repair import verify_repair

__all__ = ["DEMOS", "Demo", "Finding", "Outcome", "run_demo", "verify_crash", "verify_repair"]

_WHERE = {
    "DEMOS": "_catalogue",
    "Demo": "_catalogue",
    "Finding": "_checks",
    "Outcome": "_catalogue",
    "run_demo": "_catalogue",
    "verify_crash": "crash",
    "verify_repair": "repair",
}
"""Names with the modules that define them. They are imported on first use: the processes that demonstrations start need few of them."""


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'callgate.demo' has no attribute '{name}'")
    return getattr(import_module(f"callgate.demo.{_WHERE[name]}"), name)
