"""The words of `callgate run`, as cyclopts reads them."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Literal

from cyclopts import Parameter

from callgate.cli._record import default_journal, default_memory
from callgate.cli._words import AsJson, MemoryFile, Tools

__all__ = ["run"]

Preset = Literal["agent", "chat", "tick", "worker"]
TextCalls = Literal["auto", "fallback", "always", "never"]


def run(
    task: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    model: str = "",
    base_url: str = "",
    tools: Tools = None,
    workspace: str = ".",
    rules: str = "",
    record: Annotated[str | None, Parameter(name=["--record", "--journal"])] = None,
    memory: MemoryFile = None,
    system: str = "",
    preset: Preset = "agent",
    max_iterations: int | None = None,
    text_calls: TextCalls = "auto",
    yes: Annotated[bool, Parameter(negative="")] = False,
    chat: Annotated[bool, Parameter(negative="")] = False,
    undo: Annotated[bool, Parameter(negative="--no-undo")] = True,
    json: AsJson = False,
) -> int:
    """Let a model work on a task with tools, and watch: its text as it streams, its calls as they run.

    The model's text goes to standard output, everything about it to standard error. Ctrl-C lets what runs finish and ends the run; twice
    ends it at once. Reading is free; before anything has an effect you are asked, unless rules say otherwise.

    ```
    callgate run "Which tests are slow, and why?" --model openai:gpt-5
    callgate run "Tidy the notes" --model qwen3 --base-url http://localhost:8080/v1 --workspace ~/notes
    callgate run - --model ollama:qwen3 --tools crm.py --rules rules.toml --json < task.txt
    ```

    Exit codes: 0 completed · 1 failed · 2 wrong usage · 4 waits for a human · 5 its budget is used up · 130 interrupted.

    Parameters
    ----------
    task
        What is to be done; `-` reads it from standard input.
    model
        `provider:model`, as `openai:gpt-5`; its key comes from the environment. Default: `CALLGATE_MODEL`.
    base_url
        The URL of a server that speaks OpenAI's chat completions, or of the provider's own API elsewhere.
    tools
        Where tools come from.
    workspace
        The folder that file tools and commands are confined to. Default: the current one.
    rules
        A TOML file of rules. Without one, calls that only read may run, and you are asked about the rest.
    record
        The journal's file; `:memory:` keeps none. Default: `CALLGATE_JOURNAL`, or `.callgate/journal.db` here.
    system
        Instructions for the model, or `@FILE` to read them from.
    preset
        The bounds and rules of the loop: `agent`, `chat`, `tick` or `worker`.
    max_iterations
        How many messages with calls the model may send. Default: the preset's.
    text_calls
        When calls are read from the model's text: `fallback` where a message has none of its own, `always` for models that take no tools.
    yes
        Say yes to every question. What a rule denies stays denied.
    chat
        Go on with what you say next, in the same conversation; Ctrl-D ends it.
    undo
        Keep what calls change, for `callgate undo`.
    """
    from callgate.cli._run import run_task
    from callgate.cli._run_options import RunOptions

    return run_task(
        RunOptions(
            task=task,
            words=tuple(sys.argv[2:]),
            model=model or os.environ.get("CALLGATE_MODEL", ""),
            base_url=base_url,
            tools=tuple(tools or ("builtin",)),
            workspace=workspace,
            rules=rules,
            journal=record or default_journal(),
            memory=memory or default_memory(),
            system=system,
            preset=preset,
            max_iterations=max_iterations,
            text_calls=text_calls,
            yes=yes,
            chat=chat,
            undo=undo,
            json=json,
        )
    )
