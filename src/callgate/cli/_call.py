"""`callgate call`: make one call through the engine.

Builds an engine for one call, prints the tool's output as it arrives, asks the person at the terminal if a rule needs a human, and turns
the outcome into text and an exit code. Ctrl-C kills the call: the tool's process tree is ended and the outcome is printed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from callgate._call_summary import CallSummary, summarise
from callgate._clock import SystemClock
from callgate._database_file_checks import OWN_FOLDER
from callgate._journal import is_url
from callgate._tool_loading import load_tools
from callgate._unusable_paths import displayed
from callgate.calls import Aborted, Answered, Outcome, RawCall, Scope, Suspended, ToolResult
from callgate.cli import _exit_codes as _exits
from callgate.cli._approval_prompt import is_answered, put_question
from callgate.cli._call_arguments import call_timeout, refuse_odd_text
from callgate.cli._command_options import CallOptions
from callgate.cli._console import print_json, say
from callgate.cli._interrupt_signals import Interrupts, exit_code_of, interruptible
from callgate.cli._journal_location import MEMORY, CommandJournal
from callgate.cli._live_output import Progressed
from callgate.cli._result_output import ShownWhere, exit_code, show_aborted, show_result
from callgate.cli._run_names import run_named
from callgate.cli._search_memory import open_memory
from callgate.cli._shared_options import check_workspace, protected_configuration
from callgate.cli._terminal_approver import TerminalApprover
from callgate.engine import Engine
from callgate.errors import JournalFailed
from callgate.policy import Rules
from callgate.tools import Tool
from callgate.undo import UndoStore

if TYPE_CHECKING:
    from callgate.memory import Memory

__all__ = ["call"]


def call(tool: str, arguments: str | dict[str, object], options: CallOptions) -> int:
    """Make one call and return the exit code."""
    timeout_s = call_timeout(options.timeout)
    refuse_odd_text(tool=tool, run=options.run, key=options.key, actor=options.actor, principal=options.principal)
    workspace = check_workspace(options.workspace)
    options = replace(options, workspace=workspace, run=run_named(options.run, options.journal))
    raw = RawCall(name=tool, arguments=arguments, origin="cli", idempotency_key=options.key or None)
    policies = (Rules.load(options.policy),) if options.policy else ()
    if options.policy:
        policies = (*protected_configuration([options.policy], workspace, "callgate call"), *policies)
    memory = open_memory(options.memory)
    record = _opened_journal(options.journal)
    tools = load_tools(options.tools, record.blobs, memory)
    return asyncio.run(_Terminal(raw, options, record, policies, tools, memory, timeout_s).call())


def _opened_journal(place: str) -> CommandJournal:
    """Open the journal. Say if it is new in a file that the user has named: if that name is mistyped, earlier keys are not known there."""
    is_new = not (place == MEMORY or is_url(place) or Path(place).parent.name == OWN_FOLDER or os.path.exists(place))
    record = CommandJournal.open(place)
    if is_new:
        say(f"{displayed(Path(place))} is a new journal: there was none.", "dim")
    return record


class _Terminal:
    """Makes one call at the terminal, with an engine of its own."""

    def __init__(
        self,
        raw: RawCall,
        options: CallOptions,
        record: CommandJournal,
        policies: tuple[Rules, ...],
        tools: list[Tool],
        memory: Memory | None,
        timeout_s: float,
    ) -> None:
        self._raw = raw
        self._options = options
        self._record = record
        self._engine = Engine(
            tools,
            policies=policies,
            journal=record.journal,
            blobs=record.blobs,
            timeout_s=timeout_s,
            repair=options.repair,
            undo=UndoStore() if options.undo else None,
            memory=memory,
            run=options.run or f"cli-{SystemClock().new_id()}",
        )
        self._scope = Scope(
            run=self._engine.run,
            actor=options.actor,
            principal=options.principal,
            workspace=options.workspace,
            provider="cli",
        )
        self._interrupts = Interrupts()
        self._under_way = False
        self._person = TerminalApprover(here=not options.json and sys.stdin.isatty() and sys.stderr.isatty())

    async def call(self) -> int:
        with interruptible(self._interrupt, self._terminate):
            async with self._engine:
                outcome = await self._hand_in()
                if isinstance(outcome, Suspended) and await self._ask_person(outcome):
                    outcome = await self._hand_in()
                self._show(outcome, self._last_call())
        if self._interrupts.signal:
            return exit_code_of(self._interrupts.signal)
        return _exits.INTERRUPTED if self._interrupts.count else exit_code(outcome)

    async def _hand_in(self) -> Outcome:
        self._under_way = True
        try:
            with Progressed(self._engine.bus, self._record.result_command, quiet=self._options.json):
                return await self._engine.call(self._raw, self._scope)
        finally:
            self._under_way = False

    def _interrupt(self) -> None:
        self._interrupts.interrupt()
        self._kill("interrupted at the terminal")

    def _terminate(self, number: int) -> None:
        self._interrupts.terminate(number)
        self._kill(f"ended by {signal.Signals(number).name}")

    def _kill(self, why: str) -> None:
        if self._under_way:
            self._engine.control.kill(self._scope.conversation, why)

    async def _ask_person(self, question: Suspended) -> bool:
        """Ask the person at the terminal and record the answer. Return whether to submit the call again."""
        if not self._person.here or self._interrupts.count:
            return False
        arguments = self._raw.arguments if isinstance(self._raw.arguments, dict) else {"arguments": self._raw.arguments}
        asked = (question.approval_id, self._raw.name, question.question, arguments)
        with self._engine.runs.at_work(self._engine.run, self._scope.conversation) as end_wanted:
            allowed = await put_question(self._engine, self._person, self._interrupts, *asked, end_wanted)
            if end_wanted.is_set():
                self._engine.runs.begin(self._engine.run)  # records that the stop or kill was received
                return False
        if allowed is None or is_answered(self._engine, question.approval_id):
            known = self._engine.approval(question.approval_id)
            return known is not None and known.allowed is not None and not self._interrupts.count
        say_it = self._engine.approve if allowed else self._engine.deny
        await say_it(question.approval_id, by=self._options.principal or "the person at the terminal")
        return True

    def _last_call(self) -> CallSummary | None:
        """Return the summary of the run's latest call; None if it has no call or the journal cannot be read."""
        with suppress(JournalFailed):  # the outcome itself says that it is not recorded
            calls = summarise(self._engine.journal.read(run=self._engine.run))
            return calls[-1] if calls else None
        return None

    def _show(self, outcome: Outcome, summary: CallSummary | None) -> None:
        shown = ShownWhere(where=self._record.name, more=self._record.show_command(summary.uid if summary else self._engine.run))
        if self._options.json:
            print_json(_as_json(outcome, summary))
        elif isinstance(outcome, Answered):
            show_result(outcome.result, shown)
        elif isinstance(outcome, Suspended):
            say(f"asked  {outcome.question}", "cyan")
            say("Nothing ran. Make the call again at a terminal to decide, or change the rule.")
            shown.print()
        elif isinstance(outcome, Aborted):
            show_aborted(outcome, summary, shown)


def _as_json(outcome: Outcome, summary: CallSummary | None) -> ToolResult | dict[str, object]:
    match outcome:
        case Answered(result):
            return result
        case Suspended():
            return {
                "status": "asked",
                "uid": outcome.uid,
                "approval_id": outcome.approval_id,
                "expires_at": outcome.expires_at,
                "question": outcome.question,
            }
        case Aborted():
            return {"status": "aborted", "turn": outcome.status, "reason": outcome.reason, "uid": summary.uid if summary else ""}
    return {"status": "restarted", "uid": outcome.uid}
