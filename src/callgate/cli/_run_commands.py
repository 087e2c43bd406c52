"""The words of `callgate run` and `callgate resume`, as cyclopts reads them."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from callgate.cli._options import Answers, ResumeOptions, RunOptions

__all__ = ["resume", "run"]


def run(task: Annotated[str, Parameter(allow_leading_hyphen=True)], /, *, options: RunOptions | None = None) -> int:
    """Let a model work on a task with tools, and watch: its text as it streams, its calls as they run.

    The model's text goes to standard output, everything about it to standard error. Ctrl-C lets what runs finish and ends the run; twice
    ends it at once. A run that failed or was ended goes on with the command that is shown. Reading is free; before anything has an effect
    you are asked, unless rules say otherwise.

    ```
    callgate run "Which tests are slow, and why?" --model openai:gpt-5
    callgate run "Tidy the notes" --model qwen3 --base-url http://localhost:8080/v1 --workspace ~/notes
    callgate run - --model ollama:qwen3 --tools crm.py --rules rules.toml --json < task.txt
    ```

    Exit codes: 0 completed · 1 failed · 2 wrong usage · 4 waits for a human · 5 its budget is used up · 130 interrupted
    · 129 or 143 ended by SIGHUP or SIGTERM.

    Parameters
    ----------
    task
        What is to be done; `-` reads it from standard input.
    """
    from callgate.cli._run import run_task

    return run_task(task, options or RunOptions())


def resume(run: str, /, *, allow: Answers = (), deny: Answers = (), options: ResumeOptions | None = None) -> int:
    """Go on with a run that waits for a human, that was cut off when its process ended, or that failed, was stopped or used up its budget.

    What the record has of its calls decides: results that are there stay; calls that never started run, rules asked again; reads and
    idempotent calls run again; a call with an effect that had started is not run again, and the model is told that nobody knows.

    ```
    callgate resume run-0198c2 --record .callgate/journal.db
    callgate resume run-0198c2 --allow run-0198c2/0/1 --tools crm.py
    ```

    Exit codes: 0 completed · 1 failed · 2 wrong usage · 4 waits for a human · 5 its budget is used up · 130 interrupted
    · 129 or 143 ended by SIGHUP or SIGTERM.

    Parameters
    ----------
    run
        The run's id, as `callgate log list` shows it, or `last` for the newest.
    allow
        Say yes to this question, which is named by its call. May be repeated.
    deny
        Say no to this question. May be repeated.
    """
    from callgate.cli._resume import resume_run

    return resume_run(run, options or ResumeOptions(), allow=allow, deny=deny)
