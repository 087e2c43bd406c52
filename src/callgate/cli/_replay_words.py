"""The words of `callgate replay`, as cyclopts reads them; `_replay` does the work."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from callgate.cli._record import default_journal
from callgate.cli._words import AsJson, Journal, Tools

__all__ = ["replay"]


def replay(
    run: str,
    /,
    *,
    policy: Annotated[str, Parameter(name=["--policy", "--rules"])] = "",
    tools: Tools = None,
    model: str = "",
    base_url: str = "",
    export: str = "",
    journal: Journal = None,
    json: AsJson = False,
) -> int:
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
    policy
        A TOML file of rules, in the place of those that the run had.
    tools
        Where the run's tools come from, as they are now: the record has no code.
    model
        `provider:model`; it is sent the recorded conversation at each pass, and nothing it asks for is started.
    base_url
        The URL of a server that speaks OpenAI's chat completions, or of the provider's own API elsewhere.
    export
        Write the run as a pytest file, which is not there yet, with its data beside it.
    """
    from callgate.cli._replay import ReplayOptions, replay_run

    return replay_run(
        ReplayOptions(
            run=run,
            policy=policy,
            tools=tuple(tools or ()),
            model=model,
            base_url=base_url,
            export=export,
            journal=journal or default_journal(),
            json=json,
        )
    )
