"""callgate: the tool-call engine for LLM agents.

Every tool call that a model emits takes one route until its result is ready for the next prompt: parse, resolve,
validate, gate, cache, run, check, hooks, normalise. Each step is recorded. The names below are the public API; the
modules behind a name are imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from callgate._version import __version__ as __version__

_WHERE = {
    "AbortController": "_abort_signals",
    "Aborted": "calls",
    "Agent": "agent",
    "Allow": "policy",
    "Answered": "calls",
    "Ask": "policy",
    "Audio": "content_parts",
    "CallgateError": "errors",
    "Deny": "policy",
    "DirectoryBlobs": "_blob_store",
    "Engine": "engine",
    "EventQuery": "event_queries",
    "Hook": "hooks",
    "Image": "content_parts",
    "Judge": "judging",
    "Limits": "_engine_limits",
    "Link": "content_parts",
    "Memory": "memory",
    "MemoryJournal": "_journal",
    "Modify": "policy",
    "NotDone": "errors",
    "Policy": "protocols",
    "PostgresJournal": "_journal",
    "ProcessLimits": "_runners.process",
    "RawCall": "calls",
    "Resource": "content_parts",
    "ResponseReply": "response_calls",
    "Restarted": "calls",
    "RetryPolicy": "tools",
    "Retryable": "errors",
    "Rules": "policy",
    "Scope": "calls",
    "SqliteCache": "_cache",
    "SqliteJournal": "_journal",
    "Suspended": "calls",
    "Text": "content_parts",
    "Tool": "tools",
    "ToolContext": "tools",
    "ToolResult": "calls",
    "UsageError": "errors",
    "ValidationResult": "tools",
    "Verified": "tools",
    "after_call": "hooks",
    "before_call": "hooks",
    "tool": "tools",
}

__all__ = [
    "AbortController",
    "Aborted",
    "Agent",
    "Allow",
    "Answered",
    "Ask",
    "Audio",
    "CallgateError",
    "Deny",
    "DirectoryBlobs",
    "Engine",
    "EventQuery",
    "Hook",
    "Image",
    "Judge",
    "Limits",
    "Link",
    "Memory",
    "MemoryJournal",
    "Modify",
    "NotDone",
    "Policy",
    "PostgresJournal",
    "ProcessLimits",
    "RawCall",
    "Resource",
    "ResponseReply",
    "Restarted",
    "RetryPolicy",
    "Retryable",
    "Rules",
    "Scope",
    "SqliteCache",
    "SqliteJournal",
    "Suspended",
    "Text",
    "Tool",
    "ToolContext",
    "ToolResult",
    "UsageError",
    "ValidationResult",
    "Verified",
    "after_call",
    "before_call",
    "tool",
]

_ELSEWHERE = {
    "CallgateCapability": "integrations.pydantic_ai",
    "CallgateMiddleware": "integrations.langchain",
    "CallgateToolNode": "integrations.langgraph",
    "CallgateToolset": "integrations.pydantic_ai",
    "Gateway": "gateway",
    "callgate_middleware": "integrations.agent_framework",
    "callgate_tools": "integrations.openai_agents",
    "import_tools": "integrations",
    "plugin": "plugins",
}
"""The modules of names that are often looked for here. They need packages that callgate does not."""

if TYPE_CHECKING:
    from callgate._abort_signals import AbortController
    from callgate._blob_store import DirectoryBlobs
    from callgate._cache import SqliteCache
    from callgate._engine_limits import Limits
    from callgate._journal import MemoryJournal, PostgresJournal, SqliteJournal
    from callgate._runners.process import ProcessLimits
    from callgate.agent import Agent
    from callgate.calls import Aborted, Answered, RawCall, Restarted, Scope, Suspended, ToolResult
    from callgate.content_parts import Audio, Image, Link, Resource, Text
    from callgate.engine import Engine
    from callgate.errors import CallgateError, NotDone, Retryable, UsageError
    from callgate.event_queries import EventQuery
    from callgate.hooks import Hook, after_call, before_call
    from callgate.judging import Judge
    from callgate.memory import Memory
    from callgate.policy import Allow, Ask, Deny, Modify, Rules
    from callgate.protocols import Policy
    from callgate.response_calls import ResponseReply
    from callgate.tools import RetryPolicy, Tool, ToolContext, ValidationResult, Verified, tool


else:  # to a type checker, a name that is not above does not exist

    def __getattr__(name: str) -> Any:
        if name in _WHERE:
            value = globals()[name] = getattr(import_module(f"callgate.{_WHERE[name]}"), name)
            return value
        is_module = name in _WHERE.values()  # `from callgate import memory` then imports it
        meant = None if is_module else next((known for known in _WHERE if known.lower() == name.lower()), None)
        place = f"callgate.{_ELSEWHERE[name]}" if name in _ELSEWHERE else "callgate"
        if meant is not None or name in _ELSEWHERE:
            raise ImportError(f"cannot import name '{name}' from 'callgate'. Write: from {place} import {meant or name}")
        raise AttributeError(f"module 'callgate' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
