"""The words of `callgate resume`, as cyclopts reads them."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from callgate.cli._record import default_journal, default_memory
from callgate.cli._run_words import Preset, TextCalls
from callgate.cli._words import AsJson, MemoryFile, Tools

__all__ = ["resume"]

Approvals = Annotated[list[str] | None, Parameter(negative="")]


def resume(
    run: str,
    /,
    *,
    allow: Approvals = None,
    deny: Approvals = None,
    model: str = "",
    base_url: str = "",
    tools: Tools = None,
    rules: str = "",
    record: Annotated[str | None, Parameter(name=["--record", "--journal"])] = None,
    memory: MemoryFile = None,
    system: str = "",
    preset: Preset = "agent",
    max_iterations: int | None = None,
    text_calls: TextCalls = "auto",
    yes: Annotated[bool, Parameter(negative="")] = False,
    undo: Annotated[bool, Parameter(negative="--no-undo")] = True,
    json: AsJson = False,
) -> int:
    """Go on with a run that waits for a human, or that was cut off when its process ended.

    What the record has of its calls decides: results that are there stay; calls that never started run, rules asked again; reads and
    idempotent calls run again; a call with an effect that had started is not run again, and the model is told that nobody knows.

    ```
    callgate resume run-0198c2 --record .callgate/journal.db
    callgate resume run-0198c2 --allow run-0198c2/0/1 --tools crm.py
    ```

    Exit codes: 0 completed · 1 failed · 2 wrong usage · 4 waits for a human · 5 its budget is used up · 130 interrupted.

    Parameters
    ----------
    run
        The run's id; `callgate log list` shows it.
    allow
        Say yes to this question, which is named by its call. May be repeated.
    deny
        Say no to this question. May be repeated.
    model
        `provider:model`. Default: the one that the run had.
    base_url
        The URL of a server that speaks OpenAI's chat completions, or of the provider's own API elsewhere. Not on record: give it again.
    tools
        Where tools come from. Not on record: give them again.
    rules
        A TOML file of rules. Without one, calls that only read may run, and you are asked about the rest.
    record
        The journal's file, which must be there. Default: `CALLGATE_JOURNAL`, or `.callgate/journal.db` here.
    system
        Instructions for the model, or `@FILE` to read them from. Not on record: give them again.
    preset
        The bounds and rules of the loop: `agent`, `chat`, `tick` or `worker`.
    max_iterations
        How many messages with calls the model may send in all. Default: the preset's.
    text_calls
        When calls are read from the model's text: `fallback` where a message has none of its own, `always` for models that take no tools.
    yes
        Say yes to every question. What a rule denies stays denied.
    undo
        Keep what calls change, for `callgate undo`.
    """
    from callgate.cli._resume import Answers, resume_run
    from callgate.cli._run_options import RunOptions

    options = RunOptions(
        task="",
        words=tuple(sys.argv[2:]),
        model=model,
        base_url=base_url,
        tools=tuple(tools or ("builtin",)),
        workspace=".",
        rules=rules,
        journal=record or default_journal(),
        memory=memory or default_memory(),
        system=system,
        preset=preset,
        max_iterations=max_iterations,
        text_calls=text_calls,
        yes=yes,
        chat=False,
        undo=undo,
        json=json,
    )
    return resume_run(run, options, Answers(allow=tuple(allow or ()), deny=tuple(deny or ())))
