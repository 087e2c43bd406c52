"""The words of `callgate replay`, as cyclopts reads them; `_replay` does the work."""

from __future__ import annotations

from callgate.cli._options import ReplayOptions

__all__ = ["replay"]


def replay(run: str, /, *, options: ReplayOptions | None = None) -> int:
    """Make a recorded run again, and show what other rules, other tools or another model would have changed. Starts no tool.

    Without options: whether the record makes the very run that there was. With rules: each call judged again. With tools alone: which
    recorded calls they would refuse or take otherwise. With a model: what it asks for where the recorded one asked.

    ```
    callgate replay case-7
    callgate replay case-7 --policy stricter.toml --tools crm.py
    callgate replay last --tools crm.py
    callgate replay last --model openai:gpt-5 --tools crm.py
    callgate replay case-7 --export tests/test_case_7.py --tools crm.py --policy rules.toml
    ```

    Exit codes: 0 as recorded · 1 the record does not make the run, or the model could not be asked · 2 wrong usage · 6 it would have gone
    another way.

    Parameters
    ----------
    run
        The run's id, or `last`.
    """
    from callgate.cli._replay import replay_run

    return replay_run(run, options or ReplayOptions())
