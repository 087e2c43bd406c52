"""`callgate resume`: resume a run that waits for a human, failed, was stopped, or whose process ended.

The run's conversation, scope and open calls are read from its journal. The model, tools and rules must be given again,
because code and keys are not recorded. The journal is checked before anything is started. Everything else is as in
`callgate run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from callgate._journal import is_url
from callgate._terminal_text import one_line
from callgate.agent import AgentEvent, RunResult
from callgate.agent.missing_tools import find_call_without_tool
from callgate.agent.recorded_run import LoadedRun, load_run
from callgate.calls import Scope
from callgate.cli._call_arguments import refuse_odd_text
from callgate.cli._command_options import ResumeOptions
from callgate.cli._console import say
from callgate.cli._id_beginnings import run_beginning
from callgate.cli._journal_location import MEMORY, CommandJournal, journal_option
from callgate.cli._run_agent import RunSetup, TerminalRun
from callgate.cli._run_names import run_named
from callgate.errors import CallgateError, UsageError

__all__ = ["resume_run"]


def resume_run(run: str, options: ResumeOptions, *, allow: Sequence[str], deny: Sequence[str]) -> int:
    """Resume one run; return the exit code."""
    refuse_odd_text(run=run, **{f"answer {number}": text for number, text in enumerate((*allow, *deny), 1)})
    both = sorted(set(allow) & set(deny))
    if both:
        raise UsageError(f"{both[0]} is both allowed and denied. Give one of them.")
    if options.record == MEMORY or not (is_url(options.record) or Path(options.record).is_file()):
        raise UsageError(f"There is no journal at {options.record}. Give the journal of the run with --record FILE.")
    run = run_beginning(run_named(run, options.record, of_agent=True), options.record)
    record = CommandJournal.open(options.record)
    try:
        loaded = load_run(record.journal, record.blobs, run)
        options = replace(options, model=options.model or loaded.began.model, workspace=loaded.began.scope.workspace or ".")
        setup = RunSetup.from_options(options, record)
    except CallgateError:
        asyncio.run(record.journal.close())
        raise
    return asyncio.run(_answer_and_resume(setup, loaded, allow, deny))


async def _answer_and_resume(setup: RunSetup, run: LoadedRun, allow: Sequence[str], deny: Sequence[str]) -> int:
    terminal = TerminalRun(setup, run=run.run, conversation=run.began.scope.conversation)
    return await _Resumption(terminal, run, setup.options.record).answer_and_resume(allow, deny)


class _Resumption:
    """Resumes a run at the terminal.

    Args:
        terminal: The run at the terminal.
        run: The run as it is recorded.
        journal: The journal, for the command that denies a call.
    """

    def __init__(self, terminal: TerminalRun, run: LoadedRun, journal: str) -> None:
        self._terminal = terminal
        self._engine = terminal.engine
        self._run = run
        self._journal = journal

    async def answer_and_resume(self, allow: Sequence[str], deny: Sequence[str]) -> int:
        """Record the answers, then resume; return the exit code."""
        asked = {uid for uid, end in self._run.ends.items() if end.kind == "call.suspended"}
        try:
            await self._engine.runs.open(Scope(run=self._run.run))
            for approval_id in (*allow, *deny):
                await self._give_answer(approval_id, allow=approval_id in allow, asked=approval_id in asked)
        except CallgateError:
            await self._engine.close()
            await self._terminal.close_models()
            raise
        return await self._terminal.run_to_end(self._resume)

    async def _give_answer(self, approval_id: str, *, allow: bool, asked: bool) -> None:
        """Record one answer. If the answer is no longer needed, report this and ignore it.

        Raises:
            UsageError: The run has no such question.
        """
        by = "the person at the terminal"
        if self._engine.approval(approval_id) is not None:
            await self._terminal.questions.answer(approval_id, allow=allow, by=by)
        elif asked:
            say(
                f"{one_line(approval_id, 120)} needs no answer any more: its call has continued, or it expired and is asked again.",
                "yellow",
            )
        else:
            await self._engine.answer(approval_id, allow=allow, by=by)

    async def _resume(self, hear: Callable[[AgentEvent], None]) -> RunResult:
        await self._refuse_missing_tools()
        return await self._terminal.agent.resume(self._run.run, on_event=hear)

    async def _refuse_missing_tools(self) -> None:
        """Raise `UsageError` as `Agent.resume` does, with the options and the command that help."""
        waiting = self._run.pending.approvals if self._run.pending is not None else ()
        found = await find_call_without_tool(self._engine, waiting)
        if found is not None:
            raise UsageError(
                f"The call {one_line(found.approval_id, 120)} waits to run, but there is no tool '{one_line(found.tool, 80)}' here. Nothing"
                f" was run. Resume with the --tools, --mcp and --plugin of the run, or deny the call:"
                f" callgate deny {one_line(found.approval_id, 120)}{journal_option(self._journal)}"
            )
