"""`callgate run`: run an agent at the terminal, and show its text, calls and questions as they arrive.

Creates an agent, which runs the loop, and an engine, which makes the calls. The first Ctrl-C stops the run after its
running calls; the second ends these at once. Without rules, the person is asked before any call with an effect.
"""

from __future__ import annotations

import asyncio
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from callgate._clock import SystemClock
from callgate._engine_limits import Limits
from callgate._terminal_text import printable
from callgate._tool_loading import load_tools
from callgate.agent import Agent, AgentEvent, RunResult, Settings
from callgate.agent.run_events import MessageBegan
from callgate.calls import Scope, Suspended
from callgate.cli import _exit_codes as _exits
from callgate.cli._approval_prompt import is_answered, put_question
from callgate.cli._command_options import RunOptions
from callgate.cli._console import console, print_json, say
from callgate.cli._error_advice import at_terminal
from callgate.cli._interrupt_signals import Interrupts, exit_code_of, interruptible
from callgate.cli._journal_location import CommandJournal, default_journal
from callgate.cli._named_servers import plugins_of, servers_of, shown_server, test_commands
from callgate.cli._run_events import ApprovalAnswered, ApprovalAsked, CommandEvent, RunBegan, RunEventStream, RunFinished, RunInterrupted
from callgate.cli._run_options import model_of, policies_of, settings_of, system_of, task_of
from callgate.cli._run_screen import RunScreen
from callgate.cli._search_memory import open_memory
from callgate.cli._terminal_approver import TerminalApprover
from callgate.engine import Engine
from callgate.errors import UsageError
from callgate.judging import Judge
from callgate.loop_decision import REFUSED_BY_LOOP
from callgate.mcp import McpServer
from callgate.messages import ToolCall
from callgate.models._credential_redaction import redact_url
from callgate.models.http_model import HttpModel
from callgate.plugins import Plugin
from callgate.policy import Rules
from callgate.tools import Tool
from callgate.undo import UndoStore

if TYPE_CHECKING:
    from callgate.memory import Memory

__all__ = ["TerminalRun", "run_task"]


def run_task(task: str, options: RunOptions) -> int:
    """Run one task; return the exit code."""
    if options.chat and (options.json or task == "-" or not sys.stdin.isatty()):
        raise UsageError("--chat needs a person at a terminal: leave out --json and '-', and do not redirect standard input.")
    task, system = task_of(task), system_of(options.system)
    workspace = Path(options.workspace)
    if not workspace.is_dir():
        raise UsageError(f"The workspace {options.workspace} is not a folder. Give an existing one with --workspace.")
    policies = policies_of(options)
    servers: list[McpServer | Plugin] = [*servers_of(options.mcp), *plugins_of(options.plugin)]
    model = model_of(options)
    settings = settings_of(options)
    memory = open_memory(options.memory)
    record = CommandJournal.open(options.record)
    tools = load_tools(options.tools, record.blobs, memory)
    return asyncio.run(TerminalRun(options, task, system, model, record, tools, servers, policies, settings, memory).whole())


class TerminalRun:
    """Runs one task at the terminal and asks the questions of its calls."""

    def __init__(
        self,
        options: RunOptions,
        task: str,
        system: str,
        model: HttpModel,
        record: CommandJournal,
        tools: Sequence[Tool],
        servers: Sequence[McpServer | Plugin],
        policies: tuple[Rules | Judge, ...],
        settings: Settings,
        memory: Memory | None = None,
    ) -> None:
        self._options = options
        self._task = task
        self._model = model
        self._servers = servers
        self._judges = [policy for policy in policies if isinstance(policy, Judge)]
        self._record = record
        self._workspace = str(Path(options.workspace).resolve())
        self._person = TerminalApprover(here=not options.json and sys.stdin.isatty() and sys.stderr.isatty())
        self._run = f"run-{SystemClock().new_id()}"
        self._conversation = f"chat-{SystemClock().new_id()}" if options.chat else self._run
        self._engine = Engine(
            tools,
            servers=servers,
            policies=(self._person, *policies),
            journal=record.journal,
            blobs=record.blobs,
            limits=Limits(dangerous_per_tick=settings.dangerous_per_tick),
            repair=True,
            undo=UndoStore() if options.undo else None,
            memory=memory,
            run=self._run,
        )
        self._agent = Agent(
            model,
            self._engine,
            instructions=system,
            settings=settings,
            preset=options.preset,
            text_calls="auto" if options.text_calls == "always" else options.text_calls,
        )
        self._screen = None if options.json else RunScreen(record.result_command)
        self._tell = print_json if self._screen is None else self._screen.show
        self._interrupts = Interrupts()

    async def _close_models(self) -> None:
        await self._model.close()
        for judge in self._judges:
            await judge.close()

    async def whole(self) -> int:
        listening = RunEventStream(self._engine.bus, self._tell)
        try:
            with interruptible(self._interrupt, self._terminate):
                result = await self._run_turns(listening)
        finally:
            listening.close()
            if self._screen is not None:
                self._screen.close()
            await self._agent.close()
            await self._close_models()
        if result is None:
            say("Interrupted while the servers started: the run has not begun, and nothing was run.", "yellow")
            return exit_code_of(self._interrupts.signal or signal.SIGINT)
        self._say_where(result, kept=listening.kept)
        return self._exit_code(result)

    async def _run_turns(self, listening: RunEventStream) -> RunResult | None:
        """Start the servers, then run the task and what the person says after it; None if a signal came before the task began."""
        try:
            if self._screen is not None:
                self._screen.starting([server.name for server in self._servers])
            await self._interrupts.unless(self._engine.start())
            if self._interrupts.count:
                return None
            self._tell(self._begin_event())
            result = await self._turn(listening, self._task)
            while self._options.chat and (said := await self._read_message()):
                result = await self._turn(listening, said)
            return result
        finally:
            await self._engine.close()

    async def _turn(self, listening: RunEventStream, task: str) -> RunResult:
        self._interrupts.begin_turn()
        result = await self._run_until_decided(listening, task)
        self._tell(self._end_event(result))
        self._run = f"run-{SystemClock().new_id()}" if self._options.chat else self._run
        return result

    async def _run_until_decided(self, listening: RunEventStream, task: str) -> RunResult:
        """Run the agent. While it has open questions, ask them and resume it; stop if one stays unanswered."""

        def hear(event: AgentEvent) -> None:
            if isinstance(event, MessageBegan):
                self._person.forget()
                self._repeat_interrupt()
            listening.agent(event)

        result = await self._begin(task, hear)
        while result.pending is not None and await self._ask_questions(result):
            result = await self._agent.resume(result, on_event=hear)
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

    async def _begin(self, task: str, hear: Callable[[AgentEvent], None]) -> RunResult:
        scope = Scope(run=self._run, workspace=self._workspace)
        return await self._agent.run(task, conversation=self._conversation, scope=scope, on_event=hear)

    async def _ask_questions(self, result: RunResult) -> bool:
        """Ask every question that was not answered elsewhere; return whether to resume the run.

        The run is resumed if all questions are answered, or if another process has stopped or killed it. While it asks,
        this engine holds the run's lease, so that it receives answers, stops and kills from other processes.
        """
        assert result.pending is not None
        unanswered = 0
        with self._engine.runs.at_work(result.run) as end_wanted:
            await self._engine.runs.open(Scope(run=result.run))
            for call, approval in zip(result.pending.message.calls, result.pending.approvals, strict=True):
                unanswered += not await self._put(call, approval, end_wanted)
        return (not unanswered or end_wanted.is_set()) and not self._interrupts.count

    async def _put(self, call: ToolCall, approval: Suspended, end_wanted: asyncio.Event) -> bool:
        """Ask one question, unless it was answered elsewhere or the run has to end.

        Return whether the question is settled.
        """
        await asyncio.sleep(0)  # receive the messages of other processes first
        if self._is_settled(approval.approval_id):
            return True
        if end_wanted.is_set():
            return False
        arguments = self._person.final_arguments(approval.uid)
        question = approval.question
        self._tell(ApprovalAsked(call=approval.uid, tool=call.name, approval=approval.approval_id, question=question, arguments=arguments))
        allowed = await self._ask_person(approval.approval_id, call.name, question, arguments, end_wanted)
        if allowed is None:
            return self._is_settled(approval.approval_id)
        await self._answer(approval.approval_id, allow=allowed, by="--yes" if self._options.yes else "the person at the terminal")
        return True

    def _is_settled(self, approval_id: str) -> bool:
        """Return whether the question needs no answer here. If it was answered elsewhere, show that answer.

        An expired question also needs no answer; it is asked again when the run is resumed.
        """
        question = self._engine.approval(approval_id)
        if question is not None and question.allowed is not None:
            self._tell(ApprovalAnswered(approval=approval_id, allowed=question.allowed, by=question.by, elsewhere=True))
        return question is None or question.allowed is not None

    async def _answer(self, approval_id: str, *, allow: bool, by: str) -> None:
        """Record an answer.

        If the question was answered elsewhere meanwhile, a yes is dropped, but a no replaces that answer.
        """
        await asyncio.sleep(0)
        question = self._engine.approval(approval_id)
        if question is None or (allow and question.allowed is not None):
            self._is_settled(approval_id)
            return
        await self._engine.answer(approval_id, allow=allow, by=by)
        self._tell(ApprovalAnswered(approval=approval_id, allowed=allow, by=by))

    async def _ask_person(
        self, approval_id: str, tool: str, question: str, arguments: dict[str, object], end_wanted: asyncio.Event
    ) -> bool | None:
        """Return the person's answer.

        Return None if no person can be asked, input ends, or another process answers or ends the run.
        """
        if self._options.yes:
            return True
        if not self._person.here or self._interrupts.count:
            return None
        allowed = await put_question(self._engine, self._person, self._interrupts, approval_id, tool, question, arguments, end_wanted)
        self._interrupts.count += allowed is None and not (end_wanted.is_set() or is_answered(self._engine, approval_id))
        return allowed

    # Signals

    def _interrupt(self) -> None:
        how = self._interrupts.interrupt()
        if how == "stop" and self._agent.stop(self._conversation, "stopped at the terminal"):
            self._tell(RunInterrupted(how="stop"))
        elif how == "kill" and self._agent.kill(self._conversation, "killed at the terminal"):
            self._tell(RunInterrupted(how="kill"))

    def _repeat_interrupt(self) -> None:
        """Stop or kill the turn if a signal came before there was one to stop."""
        if self._interrupts.signal:
            self._agent.kill(self._conversation, f"ended by {signal.Signals(self._interrupts.signal).name}")
        elif self._interrupts.count:
            self._agent.stop(self._conversation, "stopped at the terminal")

    def _terminate(self, number: int) -> None:
        self._interrupts.terminate(number)
        if self._agent.kill(self._conversation, f"ended by {signal.Signals(number).name}"):
            self._tell(RunInterrupted(how="kill"))

    # Start and end

    def _begin_event(self) -> CommandEvent:
        return RunBegan(
            run=self._run,
            model=f"{self._model.provider}:{self._model.name}",
            tools=tuple(self._engine.tools.names()),
            workspace=self._workspace,
            record=self._record.name,
            problems=tuple(map(at_terminal, (*self._unavailable_servers(), *self._engine.tools.withdrawn.values()))),
        )

    def _unavailable_servers(self) -> list[str]:
        """Return why servers cannot be used, each with the command that shows more."""
        whys = self._engine.tools.unavailable.items()
        tests = test_commands(self._options.mcp, self._options.plugin) if whys else {}
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
            record=self._record.name,
        )

    def _say_where(self, result: RunResult, *, kept: bool) -> None:
        if self._screen is None:
            return
        if result.status == "waiting":
            flags = "" if self._record.path is None else " with --allow or --deny,"
            say(f"None of the calls in question has run. Answer at a terminal,{flags} or with rules:", "cyan")
            say(f"  {self._resume_command(result)}")
        elif result.status in ("failed", "stopped") and self._record.name and result.recorded:
            say("It can be resumed:", "cyan")
            say(f"  {self._resume_command(result)}")
        if not result.recorded and result.status == "completed":
            say(f"  {printable(at_terminal(result.reason))}", "red")
        if self._record.name:
            say(f"  record  {self._record.name}", "dim")
        say(f"  more    {self._record.show_command(result.run)}", "dim")
        if kept:
            say(f"  undo    {shlex.join(('callgate', 'undo', self._conversation, *self._undo_options()))}", "dim")

    def _undo_options(self) -> list[str]:
        """Return the options that `callgate undo` needs to find the workspace and the journal."""
        words = [] if self._workspace == str(Path.cwd()) else ["--workspace", self._workspace]
        path = self._record.path
        return words + ([] if path is None or str(path) == default_journal() else ["--journal", str(path)])

    def _resume_command(self, result: RunResult) -> str:
        """Return the command that resumes the run, without the credentials of the model's URL.

        If the run is not recorded, return the command that starts it again.
        """
        if not self._record.name:
            return shlex.join(("callgate", "run", *(_without_credentials(word, self._options) for word in sys.argv[2:])))
        approvals = result.pending.approvals if result.pending is not None else ()
        words = [word for asked in dict.fromkeys(one.approval_id for one in approvals) for word in ("--allow", asked)]
        given = self._options
        named = (
            *(("--model", given.model), ("--base-url", redact_url(given.base_url)), ("--rules", given.rules)),
            *(("--judge", given.judge), ("--system", given.system), ("--memory", given.memory)),
            ("--preset", given.preset if given.preset != "agent" else ""),
            ("--text-calls", given.text_calls if given.text_calls != "auto" else ""),
            ("--max-iterations", str(2 * max(1, result.spent.iterations)) if result.turn_status == "budget_exhausted" else ""),
        )
        words += [word for name, value in named if value for word in (name, value)]
        words += [word for tools in given.tools if given.tools != ("builtin",) for word in ("--tools", tools)]
        words += [word for server in given.mcp for word in ("--mcp", shown_server(server))]
        words += [word for plugin in given.plugin for word in ("--plugin", plugin)]
        words += ["--yes"] if given.yes else []
        words += [] if self._record.name == default_journal() else ["--record", self._record.name]
        return shlex.join(("callgate", "resume", result.run, *words))

    def _exit_code(self, result: RunResult) -> int:
        if self._interrupts.signal:
            return exit_code_of(self._interrupts.signal)
        if self._interrupts.count and result.status in ("stopped", "waiting"):
            return _exits.INTERRUPTED
        return _CODES[result.status]


def _without_credentials(word: str, options: RunOptions) -> str:
    """Return a word of the command line without the credentials of the model's URL and of the MCP servers."""
    if options.base_url:
        word = word.replace(options.base_url, redact_url(options.base_url))
    for server in options.mcp:
        word = word.replace(server, shown_server(server)) if server else word
    return word


_CODES = {"completed": _exits.OK, "failed": _exits.FAILED, "waiting": _exits.NEEDS_HUMAN, "stopped": _exits.STOPPED}
