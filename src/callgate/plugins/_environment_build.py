"""Builds the virtual environment of a plugin: venv makes it, pip installs into it.

It is built in its final folder, because an environment cannot be moved, and its record is written last. One process builds an environment
at a time; others wait, and use what it has built. Only the command line builds: an engine never does, because an installation runs
untrusted code and uses the network.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from callgate._run_in_thread import in_thread
from callgate._version import __version__
from callgate.errors import UsageError
from callgate.plugins._environment_locks import make_use_lock, try_lock
from callgate.plugins._environment_removal import remove_lock_file, sweep
from callgate.plugins._environments import InstalledEnvironment, environment_name, find_environment, is_usable, make_folder, write_record
from callgate.plugins._installer_process import StepEnd, run_step
from callgate.plugins._own_wheel import OwnWheel, link_code, packages_folder, write_own_wheel
from callgate.plugins.environment_requirements import EnvironmentRequirements
from callgate.plugins.manifest import PluginManifest

__all__ = ["BuildFailed", "BuildOptions", "Installation", "install_environment"]

_PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input")
_INSTALL = ("install", "--progress-bar", "off", "--no-warn-script-location")
_BUILD_S = 1_800.0
"""The longest time of one run of pip, and of the wait for another process that builds the same environment."""
_STEP_S = 120.0
_LOOK_S = 0.1
_NEWEST_MINOR, _OLDEST_MINOR = 30, 11
_FROZEN = re.compile(r"[\w.\-]+(==| @ )|-e ")
"""A line of `pip freeze` that is a requirement."""
_TRIAL = "import callgate.plugins.serving"


class BuildOptions(Struct, frozen=True, kw_only=True):
    upgrade: bool = False
    """Build a new environment with the newest versions, although there is one."""
    offline: bool = False
    """Use no index."""
    find_links: tuple[str, ...] = ()
    """Full paths of folders, or pages, with wheels, for pip."""

    @property
    def words(self) -> tuple[str, ...]:
        return (*(["--no-index"] if self.offline else []), *(word for one in self.find_links for word in ("--find-links", one)))


class Installation(Struct, frozen=True, kw_only=True):
    environment: InstalledEnvironment
    built: bool
    """Whether it was built now."""


class BuildFailed(Exception):
    """An environment could not be built. Nothing of it is left, and an earlier one is still used.

    Args:
        why: What failed, as a sentence.
        lines: The end of what the program wrote.
    """

    def __init__(self, why: str, lines: Sequence[str] = ()) -> None:
        super().__init__(why)
        self.lines = tuple(lines)


class _Interpreter(Struct, frozen=True, kw_only=True):
    path: str
    version: str


async def install_environment(manifest: PluginManifest, options: BuildOptions, tell: Callable[[str], None]) -> Installation:
    """Return the environment of a plugin that requires one, and build it if it is not there.

    Args:
        tell: Called with what is done, and with the lines that pip writes.

    Raises:
        BuildFailed: A step has failed.
        UsageError: No Python fits, or the cache folder cannot be used.
    """
    assert manifest.environment is not None
    await in_thread(make_folder)
    name = environment_name(manifest)
    async with _lock_of(name, tell):
        found = find_environment(name)
        if found is not None and is_usable(found) and not options.upgrade:
            return Installation(environment=found, built=False)
        await in_thread(partial(sweep, name))
        environment = await _build(name, manifest, manifest.environment, options, tell)
        await in_thread(partial(write_record, environment))
        await in_thread(partial(sweep, name))
        return Installation(environment=environment, built=True)


@asynccontextmanager
async def _lock_of(name: str, tell: Callable[[str], None]) -> AsyncIterator[None]:
    """Hold the lock of an environment; wait while another process builds it.

    Raises:
        BuildFailed: The other process takes too long.
    """
    try:
        async with asyncio.timeout(_BUILD_S):
            if (fd := try_lock(name)) < 0:
                tell("Another process builds this environment. Waiting for it.")
            while fd < 0:
                await asyncio.sleep(_LOOK_S)
                fd = try_lock(name)
    except TimeoutError:
        raise BuildFailed(
            f"Another process has been building this environment for more than {_BUILD_S:g} s. End it, and try again."
        ) from None
    try:
        yield
    finally:
        remove_lock_file(name)
        os.close(fd)


async def _build(
    name: str, manifest: PluginManifest, wanted: EnvironmentRequirements, options: BuildOptions, tell: Callable[[str], None]
) -> InstalledEnvironment:
    python = await in_thread(partial(_find_interpreter, wanted))
    tell(f"Building the environment of {manifest.name} with Python {python.version}: {wanted.shown}.")
    place = make_folder() / f"{name}-{secrets.token_hex(4)}"
    try:
        with tempfile.TemporaryDirectory(prefix="callgate-") as wheels:
            wheel = await in_thread(partial(write_own_wheel, Path(wheels)))
            packages = await _Build(manifest, options, place, wheel, tell).run(python)
    except BaseException:
        await asyncio.shield(in_thread(partial(shutil.rmtree, place, ignore_errors=True)))
        raise
    return InstalledEnvironment(
        name=name,
        folder=place.name,
        plugin=manifest.name,
        plugin_folder=os.fspath(manifest.folder.resolve()),
        requires=wanted.shown,
        python=python.version,
        callgate=__version__,
        packages=packages,
    )


class _Build:
    """The steps of one build."""

    def __init__(self, manifest: PluginManifest, options: BuildOptions, place: Path, wheel: OwnWheel, tell: Callable[[str], None]) -> None:
        assert manifest.environment is not None
        self._folder = manifest.folder
        self._wanted = manifest.environment
        self._options = options
        self._place = place
        self._wheel = wheel
        self._tell = tell

    async def run(self, python: _Interpreter) -> tuple[str, ...]:
        """Build the environment; return what it has installed."""
        shared = find_spec("pip") is not None
        own = str(self._place / "bin" / "python")
        self._bare_pip = (sys.executable if shared else own, "-I", *_PIP)
        self._pip = (*self._bare_pip, "--python", own) if shared else self._bare_pip
        bare = ("--without-pip",) if shared else ()
        await self._step("venv", (python.path, "-I", "-m", "venv", *bare, str(self._place)), _STEP_S)
        make_use_lock(self._place)
        await self._install()
        if self._wheel.linked is not None:
            link_code(self._place, self._wheel.linked)
        await self._step("the check that the environment works", (own, "-I", "-c", _TRIAL), _STEP_S)
        return await self._freeze()

    async def _install(self) -> None:
        """Install the requirements together with callgate; those of a file come first, since it may have hashes for all that it names."""
        more = self._wanted.pip_words
        if self._wanted.requirements_file:
            await self._pip_step((*_INSTALL, *self._options.words, "--requirement", self._wanted.requirements_file))
            chosen = self._wheel.path.parent / "chosen.txt"
            chosen.write_text("\n".join(line for line in await self._freeze() if not line.startswith("-e ")), encoding="utf-8")
            more = ("--constraint", str(chosen))
        await self._pip_step((*_INSTALL, *self._options.words, *more, str(self._wheel.path)))

    async def _freeze(self) -> tuple[str, ...]:
        # With `--path`, pip need not start a second pip with the environment's Python.
        words = (*self._bare_pip, "freeze", "--path", str(packages_folder(self._place)), "--exclude", "callgate")
        end = await self._step("pip freeze", words, _STEP_S, quiet=True)
        return tuple(line for line in end.lines if _FROZEN.match(line))

    async def _pip_step(self, words: Sequence[str]) -> None:
        await self._step("pip", (*self._pip, *words), _BUILD_S)

    async def _step(self, what: str, words: Sequence[str], timeout_s: float, *, quiet: bool = False) -> StepEnd:
        end = await run_step(words, self._folder, timeout_s, (lambda _: None) if quiet else self._tell)
        if end.problem:
            raise BuildFailed(f"The environment could not be built: {what} failed, {end.problem}.", end.lines)
        return end


def _find_interpreter(wanted: EnvironmentRequirements) -> _Interpreter:
    """Return the engine's Python if it fits, or else the newest in PATH that does.

    Raises:
        UsageError: None fits.
    """
    ours = _Interpreter(path=sys.executable, version=platform.python_version())
    if not wanted.python:
        return ours
    from packaging.specifiers import SpecifierSet

    fits = SpecifierSet(wanted.python)
    if fits.contains(ours.version, prereleases=True):
        return ours
    for minor in range(_NEWEST_MINOR, _OLDEST_MINOR - 1, -1):
        path = shutil.which(f"python3.{minor}")
        version = _version_of(path) if path else ""
        if path and version and fits.contains(version, prereleases=True):
            return _Interpreter(path=path, version=version)
    raise UsageError(
        f"The plugin wants Python {wanted.python}; callgate runs on {ours.version}, and no python3.N in PATH "
        f"(3.{_OLDEST_MINOR} or later) fits. Install one, or change plugin.python."
    )


def _version_of(path: str) -> str:
    """Return the version of an interpreter, or an empty text if it does not run."""
    with suppress(OSError, subprocess.SubprocessError):
        words = [path, "-I", "-c", "import platform; print(platform.python_version())"]
        return subprocess.run(words, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    return ""
