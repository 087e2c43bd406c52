"""Check what a tool declares, when it is registered, because a wrong declaration would fail during a call or count as something else."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import get_args

from callgate.calls import Category, Effect
from callgate.errors import UsageError
from callgate.tools.host_functions import refuse_argument_names
from callgate.tools.key_patterns import parse_placeholders, unknown_placeholder
from callgate.tools.prefixed_names import MAX_NAME_CHARS
from callgate.tools.retry_policy import RetryPolicy
from callgate.tools.tool_declaration import CacheScope, Tool

__all__ = ["check_declaration", "effect_of"]

_NAME = re.compile(r"[./\-]*\w[\w./\-]*")
"""The limits of MCP. A provider that allows less gets another name, see `models.wire.tool_names`."""
_MAX_DESCRIPTION = 65_536
_EFFECT_OF: Mapping[Category, Effect] = {"safe_chain": "none", "async_required": "once", "terminal": "once", "dangerous": "once"}


def effect_of(tool: Tool) -> Effect:
    """Return the effect that a tool declares, or that its category has."""
    if tool.effect is not None:
        return tool.effect
    return _EFFECT_OF[tool.category] if tool.category is not None else "once"


def check_declaration(tool: Tool) -> None:
    """Raise `UsageError` if a tool cannot be registered as it is declared."""
    where = tool.where()
    for attribute in ("name", "description", "parameters", "category"):
        value = getattr(tool, attribute, None)
        if value is None or value == "":
            fix = "Write a docstring, or give description=..." if attribute == "description" else "Set it on the class or in the decorator"
            raise UsageError(f"Tool '{tool.name or where}' ({where}) has no {attribute}. {fix}.")
    for attribute in ("name", "description"):
        if not isinstance(getattr(tool, attribute), str):
            raise UsageError(f"Tool '{tool.name}' ({where}) has {attribute}={getattr(tool, attribute)!r}; it must be text.")
    if not _NAME.fullmatch(tool.name) or len(tool.name) > MAX_NAME_CHARS:
        raise UsageError(
            f"Tool name {tool.name[:80]!r} ({where}) cannot be used. Take at most {MAX_NAME_CHARS} letters, digits, '_', '-', '.' or '/',"
            " at least one of them a letter, digit or '_'."
        )
    if len(tool.description) > _MAX_DESCRIPTION:
        raise UsageError(
            f"The description of tool '{tool.name}' ({where}) has {len(tool.description)} characters;"
            f" {_MAX_DESCRIPTION} is the limit. Shorten it."
        )
    _check_choices(tool, where)


def _check_choices(tool: Tool, where: str) -> None:
    choices: dict[str, tuple[object, ...]] = {
        "category": tuple(_EFFECT_OF),
        "effect": (None, *get_args(Effect)),
        "cache_scope": get_args(CacheScope),
    }
    for attribute, allowed in choices.items():
        value = getattr(tool, attribute)
        if value not in allowed:
            names = ", ".join(repr(item) for item in allowed if item)
            raise UsageError(f"Tool '{tool.name}' ({where}) has {attribute}={value!r}; it must be one of {names}.")
    if tool.cacheable and effect_of(tool) != "none":
        raise UsageError(f"Tool '{tool.name}' ({where}) is cacheable but has effects. Say effect='none', or drop cacheable.")
    _check_numbers(tool, where)
    _check_kinds(tool, where)
    aliases: object = tool.aliases
    if not _are_texts(aliases):
        raise UsageError(f"Tool '{tool.name}' ({where}) has aliases={aliases!r}; it must be a tuple of names.")
    if tool.retry is not None and not isinstance(tool.retry, RetryPolicy):
        raise UsageError(f"Tool '{tool.name}' ({where}) has retry={tool.retry!r}; it must be a RetryPolicy.")


def _check_numbers(tool: Tool, where: str) -> None:
    """Check numbers at registration, because a wrong one would fail during a call or prevent its start."""
    for attribute in ("timeout_s", "attempt_timeout_s", "cache_ttl"):
        value = getattr(tool, attribute)
        if value is not None and not (_is_number(value, int, float) and 0 < value < math.inf):
            raise UsageError(f"Tool '{tool.name}' ({where}) has {attribute}={value!r}; it must be a finite number of seconds above 0.")
    if tool.parallel is not None and not (_is_number(tool.parallel, int) and tool.parallel >= 1):
        raise UsageError(f"Tool '{tool.name}' ({where}) has parallel={tool.parallel!r}; it must be a whole number from 1, or None.")


def _check_kinds(tool: Tool, where: str) -> None:
    """Check flags and declarations, because text instead of a flag would count as true, and an invalid declaration as none."""
    if not isinstance(tool.parameters, Mapping):
        raise UsageError(f"Tool '{tool.name}' ({where}) has parameters={tool.parameters!r:.80}; it must be a JSON Schema, as a mapping.")
    for attribute in ("coerce", "retryable", "requires_actor", "cacheable", "strict"):
        value = getattr(tool, attribute)
        if value is not None and not isinstance(value, bool):
            raise UsageError(f"Tool '{tool.name}' ({where}) has {attribute}={value!r}; it must be True or False.")
    for attribute in ("reads", "writes"):
        value = getattr(tool, attribute)
        if not (value is None or callable(value) or isinstance(value, str) or _are_texts(value)):
            raise UsageError(f"Tool '{tool.name}' ({where}) has {attribute}={value!r}; it must be a key, a tuple of keys, or a function.")
        names = tool.parameters.get("properties", ())
        if callable(value):
            refuse_argument_names(value, names, attribute, f"Tool '{tool.name}' ({where})", f"def {attribute}(arguments, scope)")
        for pattern in (value,) if isinstance(value, str) else () if value is None or callable(value) else value:
            _check_placeholders(pattern, names, f"Tool '{tool.name}' ({where}) has {attribute}={pattern!r:.80}")
    if not (isinstance(tool.not_done, tuple) and all(isinstance(one, type) and issubclass(one, BaseException) for one in tool.not_done)):
        raise UsageError(f"Tool '{tool.name}' ({where}) has not_done={tool.not_done!r}; it must be a tuple of exception classes.")
    if tool.content_key is not None and not (isinstance(tool.content_key, str) and tool.content_key):
        raise UsageError(f"Tool '{tool.name}' ({where}) has content_key={tool.content_key!r}; it must be a key of its results, or None.")
    if not _are_texts(tool.triggers):
        raise UsageError(f"Tool '{tool.name}' ({where}) has triggers={tool.triggers!r}; it must be a tuple of phrases.")


def _check_placeholders(pattern: str, names: Collection[str], subject: str) -> None:
    """Check a resource key, because the calls of a tool whose key cannot be made run beside no other call."""
    for placeholder in parse_placeholders(pattern, subject, "file:{path}"):
        if re.split(r"[.\[]", placeholder.name, maxsplit=1)[0] not in names:
            raise unknown_placeholder(placeholder.name, sorted(names), subject, ", or give a function.")


def _are_texts(value: object) -> bool:
    return isinstance(value, (tuple, list, frozenset)) and all(isinstance(one, str) for one in value)


def _is_number(value: object, *kinds: type) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)
