"""`callgate run`: run an agent at the terminal, and show its text, calls and questions as they arrive.

Creates an agent, which runs the loop, and an engine, which makes the calls. The first Ctrl-C stops the run after its
running calls; the second ends these at once. Without rules, the person is asked before any call with an effect.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from callgate._clock import SystemClock
from callgate._engine_limits import Limits
from callgate._tool_loading import load_tools
from callgate.agent import Agent, AgentEvent, RunResult, Settings
from callgate.agent.run_events import MessageBegan
from callgate.calls import Scope
from callgate.cli import _exit_codes as _exits
from callgate.cli._command_options import RunOptions
from callgate.cli._console import console, print_json, say
from callgate.cli._error_advice import at_terminal
from callgate.cli._interrupt_signals import Interrupts, exit_code_of, interruptible
from callgate.cli._journal_location import CommandJournal
from callgate.cli._named_servers import plugins_of, servers_of, test_commands
from callgate.cli._run_events import CommandEvent, RunBegan, RunEventStream, RunFinished, RunInterrupted
from callgate.cli._run_next_commands import say_next_commands
from callgate.cli._run_options import model_of, policies_of, settings_of, system_of, task_of
from callgate.cli._run_questions import RunQuestions
from callgate.cli._run_screen import RunScreen
from callgate.cli._search_memory import open_memory
from callgate.cli._shared_options import check_workspace
from callgate.cli._terminal_approver import TerminalApprover
from callgate.engine import Engine
from callgate.errors import UsageError
from callgate.judging import Judge
from callgate.loop_decision import REFUSED_BY_LOOP
from callgate.mcp import McpServer
from callgate.models.http_model import HttpModel
from callgate.plugins import Plugin
from callgate.policy import Rules
from callgate.tools import Tool
from callgate.undo import UndoStore

if TYPE_CHECKING:
    from callgate.memory import Memory

__all__ = ["RunSetup", "TerminalRun", "run_task"]


Listener = Callable[[AgentEvent], None]
Begin = Callable[[Listener], Awaitable[RunResult]]
"""Begins a run, or resumes one, and tells the listener its events."""


def run_task(task: str, options: RunOptions) -> int:
    """Run one task; return the exit code."""
    if options.chat and (options.json or task == "-" or not sys.stdin.isatty()):
        raise UsageError("--chat needs a person at a terminal: leave out --json and '-', and do not redirect standard input.")
    task = task_of(task)
    check_workspace(options.workspace)
    return asyncio.run(_run_task(task, RunSetup.from_options(options)))


async def _run_task(task: str, setup: RunSetup) -> int:
    terminal = TerminalRun(setup)
    return await terminal.run_to_end(partial(terminal.run_task, task))


class RunSetup(Struct, frozen=True, kw_only=True, eq=False):
    """The options of a run at the terminal, and what was made from them."""

    options: RunOptions
    system: str
    model: HttpModel
    record: CommandJournal
    tools: Sequence[Tool]
    servers: Sequence[McpServer | Plugin]
    policies: tuple[Rules | Judge, ...]
    settings: Settings
    memory: Memory | None

    @classmethod
    def from_options(cls, options: RunOptions, record: CommandJournal | None = None) -> RunSetup:
        """Make what the options name.

        Args:
            options: The options.
            record: The journal, if it is open. None: it is opened after the other options were read, so that a mistake leaves no file.
        """
        system, policies = system_of(options.system), policies_of(options)
        servers: list[McpServer | Plugin] = [*servers_of(options.mcp), *plugins_of(options.plugin)]
        model, settings, memory = model_of(options), settings_of(options), open_memory(options.memory)
        record = record or CommandJournal.open(options.record)
        return cls(
            options=options,
            system=system,
            model=model,
            record=record,
            tools=load_tools(options.tools, record.blobs, memory),
            servers=servers,
            policies=policies,
            settings=settings,
            memory=memory,
        )


class TerminalRun:
    """A run at the terminal: its engine, its agent, what is shown of it, and the signals that end it.

    Args:
        setup: What the run is made of.
        run: The id of a run that is resumed. Empty: a new run.
        conversation: The conversation of a run that is resumed.
    """

    def __init__(self, setup: RunSetup, *, run: str = "", conversation: str = "") -> None:
        options, record = setup.options, setup.record
        new_run = f"run-{SystemClock().new_id()}"
        self._setup = setup
        self._person = TerminalApprover(here=not options.json and sys.stdin.isatty() and sys.stderr.isatty())
        self._run = run or new_run
        self._conversation = conversation or (f"chat-{SystemClock().new_id()}" if options.chat else self._run)
        self.engine = Engine(
            setup.tools,
            servers=setup.servers,
            policies=(self._person, *setup.policies),
            journal=record.journal,
            blobs=record.blobs,
            limits=Limits(dangerous_per_tick=setup.settings.dangerous_per_tick),
            repair=True,
            undo=UndoStore() if options.undo else None,
            memory=setup.memory,
            run=new_run,
        )
        self.agent = Agent(
            setup.model,
            self.engine,
            instructions=setup.system,
            settings=setup.settings,
            preset=options.preset,
            text_calls="auto" if options.text_calls == "always" else options.text_calls,
        )
        self._screen = None if options.json else RunScreen(record.result_command)
        self._tell = print_json if self._screen is None else self._screen.show
        self._interrupts = Interrupts()
        self.questions = RunQuestions(self.engine, self._person, self._interrupts, self._tell, yes=options.yes)

    async def close_models(self) -> None:
        await self._setup.model.close()
        for policy in self._setup.policies:
            if isinstance(policy, Judge):
                await policy.close()

    async def run_task(self, task: str, hear: Listener) -> RunResult:
        """Run one task, or one message of a chat."""
        scope = Scope(run=self._run, workspace=self._workspace)
        return await self.agent.run(task, conversation=self._conversation, scope=scope, on_event=hear)

    async def run_to_end(self, begin: Begin) -> int:
        """Start the servers, begin the run, ask its questions, and show all of it; return the exit code."""
        listening = RunEventStream(self.engine.bus, self._tell)
        try:
            with interruptible(self._interrupt, self._terminate):
                result = await self._run_turns(listening, begin)
        finally:
            listening.close()
            if self._screen is not None:
                self._screen.close()
            await self.agent.close()
            await self.close_models()
        if result is None:
            say("Interrupted while the servers started: the run has not begun, and nothing was run.", "yellow")
            return exit_code_of(self._interrupts.signal or signal.SIGINT)
        if self._screen is not None:
            say_next_commands(result, self._setup.options, self._setup.record, conversation=self._conversation, undoable=listening.kept)
        return self._exit_code(result)

    async def _run_turns(self, listening: RunEventStream, begin: Begin) -> RunResult | None:
        """Start the servers, then run the task and what the person says after it; None if a signal came before the task began."""
        try:
            if self._screen is not None:
                self._screen.starting([server.name for server in self._setup.servers])
            await self._interrupts.unless(self.engine.start())
            if self._interrupts.count:
                return None
            self._tell(self._begin_event())
            result = await self._turn(listening, begin)
            while self._setup.options.chat and (said := await self._read_message()):
                result = await self._turn(listening, partial(self.run_task, said))
            return result
        finally:
            await self.engine.close()

    async def _turn(self, listening: RunEventStream, begin: Begin) -> RunResult:
        self._interrupts.begin_turn()
        result = await self._run_until_decided(listening, begin)
        self._tell(self._end_event(result))
        self._run = f"run-{SystemClock().new_id()}" if self._setup.options.chat else self._run
        return result

    async def _run_until_decided(self, listening: RunEventStream, begin: Begin) -> RunResult:
        """Run the agent. While it has open questions, ask them and resume it; stop if one stays unanswered."""

        def hear(event: AgentEvent) -> None:
            if isinstance(event, MessageBegan):
                self._person.forget()
                self._repeat_interrupt()
            listening.agent(event)

        result = await begin(hear)
        while result.pending is not None and await self.questions.ask(result):
            result = await self.agent.resume(result, on_event=hear)
        return result

    async def _read_message(self) -> str:
        """Return the person's next message.

        Return an empty text after Ctrl-D, Ctrl-C or a signal that ends the command.
        """
        if self._interrupts.signal:
            return ""
        self._interrupts.begin_turn()
        said = await self._interrupts.unless(self._person.says())
        if said is None:
            console().print()  # ends the line of the prompt
        return said or ""

    @property
    def _workspace(self) -> str:
        return str(Path(self._setup.options.workspace).resolve())

    # Signals

    def _interrupt(self) -> None:
        how = self._interrupts.interrupt()
        if how == "stop" and self.agent.stop(self._conversation, "stopped at the terminal"):
            self._tell(RunInterrupted(how="stop"))
        elif how == "kill" and self.agent.kill(self._conversation, "killed at the terminal"):
            self._tell(RunInterrupted(how="kill"))

    def _repeat_interrupt(self) -> None:
        """Stop or kill the turn if a signal came before there was one to stop."""
        if self._interrupts.signal:
            self.agent.kill(self._conversation, f"ended by {signal.Signals(self._interrupts.signal).name}")
        elif self._interrupts.count:
            self.agent.stop(self._conversation, "stopped at the terminal")

    def _terminate(self, number: int) -> None:
        self._interrupts.terminate(number)
        if self.agent.kill(self._conversation, f"ended by {signal.Signals(number).name}"):
            self._tell(RunInterrupted(how="kill"))

    # Start and end

    def _begin_event(self) -> CommandEvent:
        return RunBegan(
            run=self._run,
            model=f"{self._setup.model.provider}:{self._setup.model.name}",
            tools=tuple(self.engine.tools.names()),
            workspace=self._workspace,
            record=self._setup.record.name,
            problems=tuple(map(at_terminal, (*self._unavailable_servers(), *self.engine.tools.withdrawn.values()))),
        )

    def _unavailable_servers(self) -> list[str]:
        """Return why servers cannot be used, each with the command that shows more."""
        whys = self.engine.tools.unavailable.items()
        tests = test_commands(self._setup.options.mcp, self._setup.options.plugin) if whys else {}
        return [f"{why} More: `{tests[name]}`" if name in tests and "`callgate " not in why else why for name, why in whys]

    def _end_event(self, result: RunResult) -> CommandEvent:
        spent = result.spent
        refused = sum(one.code in REFUSED_BY_LOOP for one in result.results)
        return RunFinished(
            status=result.status,
            turn_status=result.turn_status,
            reason=result.reason,
            text=result.text,
            iterations=spent.iterations,
            calls=spent.calls,
            failed=sum(not one.success for one in result.results) - refused,
            refused=refused,
            input_tokens=spent.input_tokens,
            output_tokens=spent.output_tokens,
            seconds=round(spent.wall_s, 3),
            run=self._run,
            record=self._setup.record.name,
        )

    def _exit_code(self, result: RunResult) -> int:
        if self._interrupts.signal:
            return exit_code_of(self._interrupts.signal)
        if self._interrupts.count and result.status in ("stopped", "waiting"):
            return _exits.INTERRUPTED
        return _CODES[result.status]


_CODES = {"completed": _exits.OK, "failed": _exits.FAILED, "waiting": _exits.NEEDS_HUMAN, "stopped": _exits.STOPPED}
