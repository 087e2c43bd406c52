"""`PluginManifest`: what `callgate-plugin.toml` in a plugin's folder says of the plugin and of its tools.

The manifest belongs to the code that the operator has installed, so the effects that it declares are accepted. What a process says of its
tools while it runs is not, unless the manifest says `trust_effects = true`.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import Struct

from callgate.calls import Category, Effect
from callgate.errors import UsageError
from callgate.plugins.environment_requirements import EnvironmentRequirements, checked_requirements
from callgate.tools.tool_declaration import CacheScope

__all__ = ["MANIFEST", "PROTOCOL", "PluginManifest", "ToolSettings", "read_manifest"]

MANIFEST = "callgate-plugin.toml"
"""The name of the file."""
PROTOCOL = 1
"""The version of the protocol between the engine and a plugin."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_BYTES = 1_048_576
_MAX_PARALLEL = 1_000
_WORDS = (
    ("Object missing required field", "this is missing:"),
    ("Object contains unknown field", "this is not known:"),
    ("'array'", "a list"),
    ("'object'", "a table"),
    ("'str'", "a text"),
    ("'int'", "a whole number"),
    ("'float'", "a number"),
    ("'bool'", "true or false"),
    ("enum value", "value"),
)
"""The words of msgspec, and those of TOML for the same."""


_EXAMPLES = {
    "name": 'name = "mail"',
    "version": 'version = "0.1.0"',
    "protocol": "protocol = 1",
    "command": 'command = ["{python}", "main.py"]',
}
"""An example of each key that a plugin needs."""
_MORE_EXAMPLES = {"env": 'env = ["MAIL_TOKEN"]', "parallel": "parallel = 4", "requires": 'requires = ["httpx>=0.28"]'}
_PLACEHOLDER = re.compile(r"\{[^{}]*\}")

_CHOICES = {"effect": get_args(Effect), "category": get_args(Category), "cache_scope": get_args(CacheScope)}


class ToolSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool as data: the options of `@tool` that are not code. None: the default of `@tool`."""

    name: str
    description: str | None = None
    input_schema: dict[str, Any] | str | None = None
    """The JSON Schema of the arguments, or in a manifest the path of its file. None: the plugin describes the tool while it runs."""
    output_schema: dict[str, Any] | str | None = None
    effect: Effect | None = None
    category: Category | None = None
    key: str | None = None
    timeout_s: float | None = None
    attempt_timeout_s: float | None = None
    requires_approval: bool | None = None
    reads: str | tuple[str, ...] | None = None
    writes: str | tuple[str, ...] | None = None
    retryable: bool | None = None
    cacheable: bool | None = None
    cache_scope: CacheScope | None = None
    cache_ttl: float | None = None
    requires_actor: bool | None = None
    aliases: tuple[str, ...] | None = None
    triggers: tuple[str, ...] | None = None
    parallel: int | None = None
    coerce: bool | None = None


class _PluginTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    version: str
    protocol: int
    command: tuple[str, ...]
    description: str = ""
    env: tuple[str, ...] = ()
    parallel: int = 1
    trust_effects: bool = False
    requires: tuple[str, ...] | None = None
    requirements_file: str | None = None
    python: str | None = None


class _ToolTable(ToolSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of `[[tools]]`, in which every key is known."""


class _ManifestFile(Struct, frozen=True, forbid_unknown_fields=True):
    plugin: _PluginTable
    tools: tuple[_ToolTable, ...] = ()


class PluginManifest(Struct, frozen=True, kw_only=True):
    """A plugin's manifest, checked."""

    folder: Path
    name: str
    version: str
    description: str
    command: tuple[str, ...]
    """The program and its arguments, run in the folder; `{python}` is the interpreter of its environment, or else of the engine."""
    env: tuple[str, ...]
    """The names of the variables that the plugin may see."""
    parallel: int
    """How many calls the plugin handles at the same time."""
    trust_effects: bool
    """Whether what the plugin says of its tools while it runs is accepted like the manifest itself."""
    tools: Mapping[str, ToolSettings]
    schema_files: tuple[Path, ...] = ()
    environment: EnvironmentRequirements | None = None
    """The requirements of its virtual environment; None: it has none, and runs with the packages of the engine."""

    @property
    def describes_all(self) -> bool:
        """Whether the manifest alone describes the tools, so that the plugin need not be asked."""
        return bool(self.tools) and all(tool.input_schema is not None for tool in self.tools.values())


def read_manifest(folder: Path) -> PluginManifest:
    """Read and check the manifest in a plugin's folder.

    Raises:
        UsageError: There is none, or it says something that cannot be used. The message names the file and the key.
    """
    path = folder / MANIFEST
    try:
        data = tomllib.loads(_text_of(path))
    except FileNotFoundError:
        raise UsageError(
            f"There is no {MANIFEST} in {folder}. Give the folder of a plugin, or make one: callgate plugin new NAME."
        ) from None
    except RecursionError:
        raise UsageError(f"{path} cannot be read: its values are nested too deeply.") from None
    except (OSError, ValueError) as error:  # not UTF-8, or no TOML
        raise UsageError(f"{path} cannot be read: {_read_error(error)}. Correct it.") from error
    try:
        given = msgspec.convert(data, _ManifestFile, strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {_describe_error(error)}.") from error
    table = given.plugin
    _check(path, table)
    environment = _environment(path, table)
    files: list[Path] = []
    tools: dict[str, ToolSettings] = {}
    for tool in given.tools:
        if tool.name in tools:
            raise UsageError(f"{path}: the tool '{tool.name}' is there twice. Remove one.")
        tools[tool.name] = _with_schemas(folder, tool, files)
    return PluginManifest(
        folder=folder,
        name=table.name,
        version=table.version,
        description=table.description,
        command=table.command,
        env=table.env,
        parallel=table.parallel,
        trust_effects=table.trust_effects,
        tools=tools,
        schema_files=tuple(files),
        environment=environment,
    )


def _describe_error(error: msgspec.ValidationError) -> str:
    """Return the error of msgspec in the words of TOML, with the key as it is written in the file first."""
    text, _, place = str(error).replace("`", "'").partition(" - at ")
    for of_msgspec, of_toml in _WORDS:
        text = text.replace(of_msgspec, of_toml)
    key = place.strip("'").removeprefix("$").removeprefix(".")
    told = f"{text[0].lower()}{text[1:]}{_expected_values(key, text)}"
    return f"{key}: {told}" if key else told


def _expected_values(key: str, text: str) -> str:
    """Return the allowed keys, words or an example for a key, as the end of an error; empty if there are none."""
    if "this is not known" in text:
        table = {"": _ManifestFile, "plugin": _PluginTable}.get(key, _ToolTable)
        return f". The keys of this table are: {', '.join(table.__struct_fields__)}"
    if key == "plugin" and "is missing" in text:
        return f". A plugin needs: {', '.join(_EXAMPLES.values())}"
    example = (_EXAMPLES | _MORE_EXAMPLES).get(key.removeprefix("plugin.")) if key.startswith("plugin.") else None
    if example:
        return f". Write it as {example}"
    words = _CHOICES.get(key.rpartition(".")[2], ())
    return f". It must be one of: {', '.join(words)}" if words else ""


def _check(path: Path, table: _PluginTable) -> None:
    if not _NAME.fullmatch(table.name):
        raise UsageError(f"{path}: plugin.name is {table.name[:80]!r}; it must be at most 64 letters, digits, '_', '-' and '.'.")
    if table.protocol != PROTOCOL:
        raise UsageError(f"{path}: plugin.protocol is {table.protocol}; this engine speaks {PROTOCOL}. Update the plugin, or callgate.")
    if not table.command or not all(table.command) or any("\0" in word for word in table.command):
        raise UsageError(f'{path}: plugin.command must be a list of words, such as ["{{python}}", "main.py"].')
    if _PLACEHOLDER.fullmatch(table.command[0]) and table.command[0] != "{python}":
        raise UsageError(
            f"{path}: plugin.command begins with {table.command[0][:80]}, which is not known. The only placeholder is {{python}}."
        )
    if not 1 <= table.parallel <= _MAX_PARALLEL:
        raise UsageError(f"{path}: plugin.parallel is {table.parallel}; it must be from 1 to {_MAX_PARALLEL}.")
    for name in table.env:
        if not _VARIABLE.fullmatch(name):
            raise UsageError(f"{path}: plugin.env has {name[:80]!r}; it must be names of variables, without values.")


def _environment(path: Path, table: _PluginTable) -> EnvironmentRequirements | None:
    try:
        return checked_requirements(path.parent, table.requires, table.requirements_file, table.python)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _with_schemas(folder: Path, tool: _ToolTable, files: list[Path]) -> ToolSettings:
    """Return a tool with the schemas of its files."""
    settings = {field: getattr(tool, field) for field in ToolSettings.__struct_fields__}
    for key in ("input_schema", "output_schema"):
        if isinstance(settings[key], str):
            settings[key] = _schema_of(folder, settings[key], f"{tool.name}.{key}")
            files.append(folder / getattr(tool, key))
    return ToolSettings(**settings)


def _schema_of(folder: Path, name: str, key: str) -> dict[str, Any]:
    path, told = folder / name, f"{folder / MANIFEST}: {key} is the file {name[:200]!r}, which"
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise UsageError(f"{told} is not in the plugin's folder.")
        schema = json.loads(_text_of(path))
    except RecursionError:
        raise UsageError(f"{told} is nested too deeply.") from None
    except (OSError, ValueError) as error:  # not a path, not UTF-8, or no JSON
        raise UsageError(f"{told} cannot be read: {_read_error(error)}.") from error
    if not isinstance(schema, dict):
        raise UsageError(f"{told} has no JSON object.")
    return schema


def _text_of(path: Path) -> str:
    """Return the text of a file, which is small and no device or pipe, for which one could wait for ever.

    Raises:
        OSError: It cannot be read.
        ValueError: It is too large, or no text.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is not a file")
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise ValueError(f"it has more than {_MAX_BYTES} bytes")
    return data.decode("utf-8-sig")


def _read_error(error: OSError | ValueError) -> str:
    """Return why a file cannot be read, without its path, which the text already has."""
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
