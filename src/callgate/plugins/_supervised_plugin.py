"""One plugin of an engine, kept running.

The process starts with the first call, unless the plugin has to be asked for its tools. It is restarted when its source files change,
when it does not end a call that was cancelled, and when it answers no ping. One whose environment is not installed is not tried again until
it is, or until its files change. `_server_processes/server_lifecycle.py` has the states and the restarts.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, Literal

from msgspec.structs import replace

from callgate._clock import Clock
from callgate._run_in_thread import in_thread
from callgate._server_processes.child_process import ServerCommand
from callgate._server_processes.server_errors import NotSent, ToolServerError
from callgate._server_processes.server_lifecycle import ServerLifecycle, ServerWork, State
from callgate._server_processes.unknown_tool_names import describe_unknown_tools
from callgate.errors import UsageError
from callgate.plugins._described_tools import describe_tool_changes, missing_tools, tools_of
from callgate.plugins._environment_locks import HeldEnvironment, hold_environment
from callgate.plugins._environments import has_environment
from callgate.plugins._messages import Message, execution_of
from callgate.plugins._plugin_session import PluginSession, Report, SessionEvents
from callgate.plugins._source_files import fingerprint
from callgate.plugins._tool_cache import cached_tools, keep_tools
from callgate.plugins.manifest import PluginManifest, ToolSettings, read_manifest
from callgate.plugins.plugin_config import Plugin
from callgate.plugins.plugin_tool import PluginTool
from callgate.protocols import Execution, ServerStatus, ToolCatalogue
from callgate.tools.prefixed_names import prefixed_name

__all__ = ["SupervisedPlugin", "command_of"]

_WAITS_S = (1.0, 5.0, 15.0, 60.0)
"""How long to wait after the first, second, third and fourth failure in a row. After the next one, the circuit is open."""
_LOOK_S = 1.0
"""How often the source files of a running plugin are looked at."""
_PING_S = 30.0
"""A plugin that has sent nothing for this long gets a `ping`, if no call runs."""
_PONG_S = 5.0
_LONGEST_WAIT_S = 120.0
"""How long a plugin that does not end a cancelled call is kept for its other calls."""


class _FixedWaits:
    """Waits as `_WAITS_S` says, and then until a file of the plugin changes. Calls wait for a start that is due in a second."""

    patience_s = 1.0
    until = "until one of its files changes"

    def __init__(self) -> None:
        self.useless = False
        """Whether another start fails in the same way unless something of the plugin changes."""

    def wait_s(self, failures: int, clock: Clock) -> float | None:
        if self.useless:
            return None
        return _WAITS_S[failures - 1] if failures <= len(_WAITS_S) else None

    def quarantine_s(self, failures: int) -> float:
        return math.inf

    def retry_without_call_s(self, failures: int) -> float:
        return math.inf


def command_of(config: Plugin, manifest: PluginManifest, held: HeldEnvironment | None) -> ServerCommand:
    """Return how a plugin's process is started.

    Args:
        held: Its environment, if it has one of its own.
    """
    passed = {name: os.environ[name] for name in manifest.env if name in os.environ}
    python = sys.executable if held is None else str(held.environment.interpreter)
    words = tuple(word.replace("{python}", python) for word in manifest.command)
    env = passed | dict(held.variables if held is not None else {}) | dict(config.env)
    return ServerCommand(kind="plugin", name=config.name, command=words, env=env, cwd=str(manifest.folder))


class SupervisedPlugin:
    """A plugin of one engine."""

    layer: Literal["capability"] = "capability"

    def __init__(self, config: Plugin) -> None:
        self.name = config.name
        self._config = config
        self._waits = _FixedWaits()
        self._lifecycle = ServerLifecycle[PluginSession](f"The plugin '{config.name}'", self._waits)
        self._session: PluginSession | None = None
        self._held: HeldEnvironment | None = None
        self._watching: asyncio.Task[None] | None = None
        """Waits until the environment is installed, so that a plugin whose tools are not known yet is asked for them."""
        self._manifest: PluginManifest | None = None
        self._fingerprint = ""
        self._tools: dict[str, PluginTool] = {}
        self._missing_gated_tools = ""
        """A sentence that names the tools with `requires_approval` in the operator's options that the plugin does not have."""
        self._described: tuple[ToolSettings, ...] | None = None
        """Tools that the process has described of its own accord and that are not offered yet."""
        self._stuck = False
        self._heard = (0, 0.0)

    @property
    def state(self) -> State:
        return self._lifecycle.state

    def status(self, tools: int) -> ServerStatus:
        return replace(self._lifecycle.status(self.name, tools), missing_gated_tools=self._missing_gated_tools)

    # Called by the engine

    async def start(self, catalogue: ToolCatalogue) -> None:
        self._catalogue = catalogue
        try:
            manifest, mark = await in_thread(self._read)
        except UsageError as error:
            self._withdraw_tools(str(error))
        else:
            self._manifest, self._fingerprint = manifest, mark
            known = () if manifest.describes_all else await in_thread(partial(cached_tools, manifest.folder, mark))
            if known is not None:
                self._offer(manifest, known)
                if manifest.environment is None or await in_thread(partial(has_environment, manifest)):
                    return
        self._begin()
        await self._lifecycle.wait_for_first_attempt()
        if (not self._tools or self._waits.useless) and self._lifecycle.problem and self._config.required:
            raise UsageError(
                f"{self._lifecycle.full_problem} It is required, so nothing starts without it. Correct that, or set `required` to false.",
                code="server_unavailable",
            )

    def _begin(self) -> None:
        work = ServerWork(
            serve=self._serve,
            end=self._end_session,
            problem_of=self._problem_of,
            last_words=self._last_words,
            on_problem=self._withdraw_tools,
        )
        self._lifecycle.begin(work, self._catalogue.clock, self._catalogue.log)

    async def retry(self) -> None:
        self._begin()
        self._lifecycle.restart()
        await self._lifecycle.wait_for_first_attempt()

    async def close(self) -> None:
        await self._lifecycle.close()
        if self._watching is not None:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching

    # Tools

    async def call_tool(
        self, tool: ToolSettings, uid: str, arguments: Mapping[str, Any], context: Mapping[str, object], report: Report
    ) -> Message:
        try:
            session = await self._acquire_slot()
        except asyncio.CancelledError as error:
            raise NotSent(f"The plugin '{self.name}' was not ready in time.") from error
        try:
            self._check(tool)
            answer = await session.call(uid, tool.name, arguments, context, report)
        finally:
            session.slots.release()
        self._lifecycle.failures = 0
        return answer

    async def _acquire_slot(self) -> PluginSession:
        """Return the running session, with one of its slots acquired."""
        self._begin()
        if self._lifecycle.state in ("backoff", "quarantined"):
            if await self._has_changed():
                self._lifecycle.restart()
            elif self._waits.useless:
                raise NotSent(self._lifecycle.problem, retryable=False)
        while True:
            session = await self._lifecycle.wait_until_ready()
            await session.slots.acquire()
            if session is self._lifecycle.ready:
                return session
            session.slots.release()

    def _check(self, tool: ToolSettings) -> None:
        """Raise if a tool may no longer be called as it was described when its call was judged.

        Raises:
            NotSent: The plugin describes it differently now, or no longer has it.
        """
        current = self._tools.get(tool.name)
        if current is None or current.settings != tool:
            raise NotSent(f"The plugin '{self.name}' now describes this tool differently. Look at the tools again.", retryable=False)

    # Lifecycle

    async def _serve(self) -> str:
        """Run the plugin until it ends on its own; return why. A plugin that is only replaced is restarted at once."""
        while True:
            session = await self._start_session()
            why = await self._follow(session)
            if why:
                self._lifecycle.settle()
                return why
            await self._end_session()

    async def _start_session(self) -> PluginSession:
        self._waits.useless = False
        self._fingerprint = ""  # if the manifest cannot be read now, any that can be counts as changed
        manifest, mark = await in_thread(self._read)
        self._manifest, self._fingerprint = manifest, mark
        self._stuck, self._described = False, None
        self._held = held = await self._hold_environment(manifest)
        events = SessionEvents(
            on_tools=self._handle_tools, on_stuck=self._handle_stuck, on_late=self._handle_late_answer, log=self._catalogue.log
        )
        session = PluginSession(command_of(self._config, manifest, held), self._config.parallel or manifest.parallel, events)
        self._session = session
        session.lost.add_done_callback(lambda _: self._lifecycle.stop_sending())
        async with asyncio.timeout(self._config.start_timeout_s):
            described = await session.start(describe=not manifest.describes_all)
        if not manifest.describes_all:
            await in_thread(partial(keep_tools, manifest.folder, mark, described))
        self._offer(manifest, described)
        if not session.lost.done():
            self._lifecycle.mark_ready(session)
        return session

    async def _hold_environment(self, manifest: PluginManifest) -> HeldEnvironment | None:
        """Return the plugin's environment, held, or None if it has none of its own. If it is missing, watch for its installation."""
        try:
            return await in_thread(partial(hold_environment, f"the plugin '{self.name}'", manifest))
        except NotSent:
            self._waits.useless = True
            if self._watching is None or self._watching.done():
                self._watching = asyncio.get_running_loop().create_task(self._watch(), context=Context())
            raise

    async def _follow(self, session: PluginSession) -> str:
        """Follow a session to its end; return why it has ended, or an empty text if it is to be replaced."""
        while not session.lost.done():
            await _wait(self._lifecycle.wake.wait(), _LOOK_S)
            self._lifecycle.wake.clear()
            if self._described is not None and self._manifest is not None:
                self._offer(self._manifest, self._described)
                self._described = None
            if self._stuck or await self._has_changed():
                self._lifecycle.stop_sending()
                await _wait(session.wait_until_idle(), _LONGEST_WAIT_S if self._stuck else None)
                return ""
            if not await self._is_alive(session):
                return f"it answered no ping within {_PONG_S:g} s"
        return session.lost.result()

    async def _is_alive(self, session: PluginSession) -> bool:
        """Return whether the plugin answers a ping, if it has been silent for long and no call runs."""
        now = self._catalogue.clock.monotonic()
        if session.heard != self._heard[0] or not session.is_idle:
            self._heard = (session.heard, now)
        if now - self._heard[1] < _PING_S:
            return True
        try:
            async with asyncio.timeout(_PONG_S):
                await session.ping()
        except TimeoutError:
            return not session.is_idle  # a call has begun meanwhile, whose deadline decides
        except ToolServerError:
            return True  # it is lost, which `_follow` notices
        return True

    async def _has_changed(self) -> bool:
        manifest = self._manifest
        if manifest is None:
            return True
        try:
            return await in_thread(partial(fingerprint, manifest)) != self._fingerprint
        except OSError:
            return False  # in the middle of a change; the next look sees its end

    def _read(self) -> tuple[PluginManifest, str]:
        manifest = read_manifest(self._config.path)
        try:
            return manifest, fingerprint(manifest)
        except OSError as error:
            raise UsageError(f"The plugin '{self.name}' cannot be read: {error}.") from error

    async def _watch(self) -> None:
        """Start the plugin again as soon as its environment is installed or its files have changed."""
        while self._waits.useless and self._lifecycle.state != "closed":
            await asyncio.sleep(_LOOK_S)
            if self._lifecycle.state == "quarantined" and await self._has_changed():
                self._lifecycle.restart()
                return

    def _problem_of(self, error: Exception) -> str:
        if isinstance(error, NotSent) and error.code == "environment_missing":
            return str(error)
        if isinstance(error, TimeoutError):
            return f"it was not ready within {self._config.start_timeout_s:g} s; it has to answer hello by ready"
        lost = self._session.lost if self._session is not None else None
        if lost is not None and lost.done():
            return lost.result()
        if not isinstance(error, (ToolServerError, UsageError)):
            self._catalogue.log.error("plugin %s: it could not be served", self.name, error=error)
            return f"an error in callgate ({type(error).__name__})"
        return str(error).removesuffix(".")

    def _last_words(self) -> str:
        return self._session.last_words if self._session is not None else ""

    async def _end_session(self) -> None:
        session, self._session = self._session, None
        held, self._held = self._held, None
        try:
            if session is not None:
                await session.close()
        finally:
            if held is not None:
                held.release()

    # Catalogue of tools

    def _offer(self, manifest: PluginManifest, described: Sequence[ToolSettings]) -> None:
        settings = tools_of(self._config, manifest, described)
        known, gone = self._tools, missing_tools(manifest, settings)
        self._tools = {one.name: self._tool(known.get(one.name), one) for one in settings}
        for name in known:
            if name not in self._tools:
                gone.setdefault(name, f"The plugin '{self.name}' no longer has this tool. Use another one.")
        if list(known) != list(self._tools) or not self._tools:
            if unknown := describe_unknown_tools(self.name, self._config.named_tools, list(self._tools)):
                self._catalogue.log.warning("%s", unknown)
            self._missing_gated_tools = describe_unknown_tools(self.name, self._config.gated_tools, list(self._tools))
        changes = describe_tool_changes({name: tool.settings for name, tool in known.items()}, {one.name: one for one in settings})
        if known and changes:
            self._catalogue.log.warning("The plugin '%s' now describes its tools differently: %s", self.name, changes)
        if list(known.values()) != list(self._tools.values()) or gone or not settings:
            self._catalogue.withdraw(self.name, {self._offered_name(name): why for name, why in gone.items()})
            self._catalogue.offer(self.name, list(self._tools.values()))

    def _tool(self, known: PluginTool | None, settings: ToolSettings) -> PluginTool:
        return known if known is not None and known.settings == settings else PluginTool(self._config, settings, self)

    def _withdraw_tools(self, why: str) -> None:
        """Withdraw the declared tools with this reason, if the plugin has never described any."""
        if not self._tools:
            names = ("", *(self._manifest.tools if self._manifest is not None else ()))
            self._catalogue.withdraw(self.name, {self._offered_name(name): f"{why.removesuffix('.')}." for name in names})

    def _offered_name(self, name: str) -> str:
        return prefixed_name(self.name, name) if self._config.prefix and name else name

    # Callbacks of the session

    def _handle_tools(self, tools: tuple[ToolSettings, ...]) -> None:
        self._described = tools
        self._lifecycle.wake.set()

    def _handle_stuck(self) -> None:
        self._stuck = True
        self._lifecycle.wake.set()

    def _handle_late_answer(self, uid: str, message: Message) -> None:
        try:
            execution = execution_of(self.name, message)
        except ToolServerError:
            execution = Execution(status="raised", error="its answer was not a result")
        self._catalogue.late(uid, execution)


async def _wait(waiting: Awaitable[object], longest_s: float | None) -> None:
    """Wait for something, at most this long. Not with `asyncio.wait_for`, which up to Python 3.11 can lose a cancellation."""
    with suppress(TimeoutError):
        async with asyncio.timeout(longest_s):
            await waiting
