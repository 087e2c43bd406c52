"""Turn the options of a run into a task, a model, policies and settings.

Raises `UsageError` for every wrong option before a model is asked or a journal is opened.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from callgate._limits_from_environment import silence_from_environment, timeout_from_environment
from callgate._server_processes.shown_command import shown_command, shown_word
from callgate.agent import PRESETS, Settings
from callgate.cli._call_arguments import refuse_odd_text
from callgate.cli._command_options import RunOptions
from callgate.errors import UsageError
from callgate.judging import Judge
from callgate.mcp import McpServer, mcp, read_mcp_servers
from callgate.models.http_model import HttpModel
from callgate.models.providers import PROVIDERS
from callgate.models.providers import model as provider_model
from callgate.policy import Rules, careful

__all__ = ["model_of", "named_model", "policies_of", "servers_of", "settings_of", "shown_server", "system_of", "task_of"]

_MODELS = "Give one as provider:model, such as openai:gpt-5, or a URL with --base-url."


def task_of(given: str) -> str:
    text = sys.stdin.buffer.read().decode("utf-8", "replace") if given == "-" else given
    refuse_odd_text(task=text)
    if not text.strip():
        raise UsageError('The task is empty. Give one: callgate run "...", or - to read it from standard input.')
    return text


def system_of(given: str) -> str:
    if not given.startswith("@"):
        refuse_odd_text(system=given)
        return given
    try:
        return Path(given[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(
            f"The file {given[1:]} with the system prompt cannot be read: {reason}. Give another with --system @FILE."
        ) from error


def policies_of(options: RunOptions) -> tuple[Rules | Judge, ...]:
    for option, value, wanted in (("rules", options.rules, "a file of rules"), ("judge", options.judge, "provider:model")):
        if value is not None and not value.strip():
            raise UsageError(f"--{option} is empty. Give {wanted}, or leave the option out.")
    rules = Rules.load(options.rules) if options.rules is not None else None
    given = (rules,) if rules is not None else () if options.yes else (careful(),)
    if options.judge is not None:
        judge = options.judge.strip()
        return (*given, Judge(named_model(judge, "" if judge.partition(":")[0].lower() in PROVIDERS else options.base_url)))
    if rules is not None and rules.judge_required_by:
        raise UsageError(f"{rules.judge_required_by} has the verdict judge, which needs a model. Give one with --judge provider:model.")
    return given


def model_of(options: RunOptions) -> HttpModel:
    name = options.model.strip()
    if not name:
        raise UsageError(f"No model is named. {_MODELS} CALLGATE_MODEL is used where --model is not given.")
    return named_model(name, options.base_url, native_tools=options.text_calls != "always")


def named_model(name: str, base_url: str, *, native_tools: bool = True) -> HttpModel:
    """Return the model with this name. With a `base_url`, any model name is accepted."""
    refuse_odd_text(model=name, address=base_url)
    if base_url and name.partition(":")[0].lower() not in PROVIDERS:
        name = f"openai-compatible:{name}"
    return provider_model(name, base_url=base_url or None, native_tools=native_tools)


def servers_of(words: Sequence[str]) -> list[McpServer]:
    """Return the MCP servers of `--mcp`: those of a configuration file, or one with an address or a command."""
    found = list[McpServer]()
    for word in words:
        refuse_odd_text(mcp=word)
        if not word.strip():
            raise UsageError("--mcp is empty. Give a configuration file such as .mcp.json, an address, or a command.")
        found += read_mcp_servers(word) if _is_file(word) else [_server(word)]
    return [_differently_named(server, found[:index]) for index, server in enumerate(found)]


def _is_file(word: str) -> bool:
    return os.path.isfile(word) or (word.endswith((".json", ".jsonc")) and " " not in word and "://" not in word)


def _server(word: str) -> McpServer:
    try:
        shlex.split(word)
    except ValueError as error:
        raise UsageError(f"--mcp {word[:80]}: the command cannot be read: {error}. Close every quotation mark.") from error
    return mcp(word)


def shown_server(word: str) -> str:
    """Return a value of `--mcp` without the credentials in it, so that it can be shown and recorded by a shell."""
    if _is_file(word) or "://" in word.split(maxsplit=1)[0]:
        return shown_word(word)
    words = shlex.split(word)
    shown = shown_command(words)
    return word if shown == shlex.join(words) else shown


def _differently_named(server: McpServer, others: Sequence[McpServer]) -> McpServer:
    """Return the server; raise if another one has its name."""
    if server.name in (other.name for other in others):
        raise UsageError(
            f"Two servers of --mcp are named '{server.name}'. Write them to one file with names of their own: callgate mcp add."
        )
    return server


def settings_of(options: RunOptions) -> Settings:
    """Return the loop's settings. Checks the time limits from the environment too, before anything is opened."""
    timeout_from_environment()
    silence_from_environment()
    settings = PRESETS[options.preset]
    if options.max_iterations is None:
        return settings
    if options.max_iterations < 0:
        raise UsageError(f"--max-iterations is {options.max_iterations}; it must be 0 or more.")
    return replace(settings, budget=replace(settings.budget, iterations=options.max_iterations))
