"""Define `callgate run` and `callgate resume` for cyclopts."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from callgate.cli._command_options import Answers, ResumeOptions, RunOptions

__all__ = ["resume", "run"]


def run(task: Annotated[str, Parameter(allow_leading_hyphen=True)], /, *, options: RunOptions | None = None) -> int:
    """Let a model work on a task with tools, and show its text and calls.

    Prints the model's text to standard output, everything else to standard error. Ctrl-C stops the run after its running calls; a second
    Ctrl-C ends them at once. The printed command resumes a run that failed or was stopped. Calls that only read run without a question;
    you are asked before any other call, unless you give rules.

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
        The task; `-` reads it from standard input.
    """
    from callgate.cli._run_agent import run_task

    return run_task(task, options or RunOptions())


def resume(run: str, /, *, allow: Answers = (), deny: Answers = (), options: ResumeOptions | None = None) -> int:
    """Resume a run that waits for a human, failed, was stopped, used up its budget, or whose process ended.

    Recorded results are kept. Calls that never started run after the rules have judged them again. Reads and idempotent calls that were cut
    off run again. A `once` call that had started does not run again; the model is told that its outcome is unknown.

    ```
    callgate resume run-0198c2 --record .callgate/journal.db
    callgate resume run-0198c2 --allow run-0198c2/0/1 --tools crm.py
    ```

    Exit codes: 0 completed · 1 failed · 2 wrong usage · 4 waits for a human · 5 its budget is used up · 130 interrupted
    · 129 or 143 ended by SIGHUP or SIGTERM.

    Parameters
    ----------
    run
        The run's id, as `callgate log list` shows it, or its beginning, or `last` for the newest run.
    allow
        Approve this call, given by its id. May be repeated.
    deny
        Deny this call. May be repeated.
    """
    from callgate.cli._resume import resume_run

    return resume_run(run, options or ResumeOptions(), allow=allow, deny=deny)
