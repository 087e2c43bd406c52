"""Turn the options of a run into a task, a model, policies and settings.

Raises `UsageError` for every wrong option before a model is asked or a journal is opened.
"""

from __future__ import annotations

import sys
from pathlib import Path

from msgspec.structs import replace

from callgate._limits_from_environment import silence_from_environment, timeout_from_environment
from callgate.agent import PRESETS, Settings
from callgate.cli._call_arguments import refuse_odd_text
from callgate.cli._command_options import RunOptions
from callgate.cli._named_servers import files_of_servers
from callgate.cli._shared_options import protected_configuration
from callgate.errors import UsageError
from callgate.judging import Judge
from callgate.models.http_model import HttpModel
from callgate.models.providers import PROVIDERS
from callgate.models.providers import model as provider_model
from callgate.policy import Rules, careful

__all__ = ["model_of", "named_model", "policies_of", "settings_of", "system_of", "task_of"]

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
    files = (*files_of_servers(options.mcp), *(() if options.rules is None else (options.rules,)))
    chosen = (rules,) if rules is not None else () if options.yes else (careful(),)
    given = (*protected_configuration(files, options.workspace, "callgate run"), *chosen)
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
