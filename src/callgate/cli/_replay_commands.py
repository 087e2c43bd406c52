"""Define `callgate replay` for cyclopts; `_replay_run` does the work."""

from __future__ import annotations

from callgate.cli._command_options import ReplayOptions

__all__ = ["replay"]


def replay(run: str, /, *, options: ReplayOptions | None = None) -> int:
    """Replay a recorded run, and show what other rules, tools or another model would change. Starts no tool.

    Without options, check that the run can be rebuilt exactly from its journal. With rules, judge each call again.
    With tools only, show which recorded calls these tools would refuse or read differently. With a model, show the
    calls that this model makes in each pass.

    ```
    callgate replay case-7
    callgate replay case-7 --policy stricter.toml --tools crm.py
    callgate replay last --tools crm.py
    callgate replay last --model openai:gpt-5 --tools crm.py
    callgate replay case-7 --export tests/test_case_7.py --tools crm.py --policy rules.toml
    ```

    Exit codes: 0 as recorded · 1 the run cannot be rebuilt, or the model could not be asked · 2 wrong usage · 6 it
    would have gone differently.

    Parameters
    ----------
    run
        The run's id, or `last`.
    """
    from callgate.cli._replay_run import replay_run

    return replay_run(run, options or ReplayOptions())
