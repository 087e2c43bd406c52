"""The command line of callgate.

The outermost layer: it reads options, builds an engine, shows what happens and returns an exit code. It makes no
decision about a call. Its dependencies are an extra, so their installation is checked before they are imported. In reading
order:

All commands
    `_app` defines them, with the `_command_options` and `_shared_options`. `_exit_codes` has their exit codes and `_error_advice` what
        errors advise here. `_console` prints, `_standard_streams` guards the streams, `_interrupt_signals` handles signals, and `_keyboard`
        reads what a person types.

Runs and calls
    `_run_commands` defines `run` and `resume`: `_run_agent` and `_resume` carry them out, with `_run_options`, `_run_names`, `_run_events`,
        `_run_screen`, `_live_rows`, `_folded_output` and `_live_output`; `_run_questions` asks through `_terminal_approver` with
        `_approval_prompt`, and `_run_next_commands` prints how to go on. `_named_servers` finds what `--mcp` and `--plugin` name. `_call`
        makes one call, with `_call_arguments` and `_result_output`. `_tools` and `_rules` show tools and check rules.

The journal
    `_journal_location` opens it, and `_journal_reading` reads it. `_id_beginnings` completes the ids that a person has
        typed. `_log_commands` defines `log`: `_show_log`, `_log_query`, `_log_report`,
        `_log_result`, `_no_calls`. `_local_times` writes its times.
        `_inbox_commands` defines `approvals`, `approve`, `deny`, `stop` and `kill` (`_answer_approvals`) and `settle` (`_settle`,
        `_unknown_calls`). `_replay_commands`: `_replay_run`, `_replay_screen`. `_undo_commands`: `_undo_changes`. `_memory_commands`:
        `_search_memory`.

MCP servers
    `_mcp_commands` defines `mcp`: `_mcp_add`, `_mcp_list`, `_mcp_test`, `_mcp_accept`, with `_mcp_config`, `_mcp_effects`, `_mcp_look` and
        `_mcp_screen`. `_unrecorded_call` makes the call of a test, also of `plugin check`.

Plugins
    `_plugin_commands` defines `plugin`: `_plugin_new`, `_plugin_check`, `_plugin_list`, `_plugin_install`, `_plugin_prune`, with
        `_plugin_look`.

The gateway
    `_serve_commands` defines `serve`: `_serve`, `_serve_http`, `_serve_reload`, `_serve_check`, `_serve_token`, with `_gateway_setup`.

Others
    `_doctor` and `_demo`. `__main__` is `python -m callgate.cli`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec

__all__ = ["main"]

_NEEDED = ("cyclopts", "rich")


def main(words: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code.

    Args:
        words: The arguments after the program's name. Default: those of this process.
    """
    try:
        return _run(sys.argv[1:] if words is None else list(words))
    except KeyboardInterrupt:  # also while the command line is imported, which takes a moment
        return 130


def _run(words: list[str]) -> int:
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        sentence = f"The command line needs {' and '.join(missing)}. Install them with: python -m pip install 'callgate[cli]'"
        print(sentence, file=sys.stderr)
        return 2
    from callgate.cli._app import run

    return run(words)
