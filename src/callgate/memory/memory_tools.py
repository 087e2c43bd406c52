"""The tools `remember`, `recall` and `forget`, with which a model uses a memory.

They are ordinary tools. A caller (`scope.principal`) reads and writes only its own memory. Results are returned as data with their origin.
Knows nothing of engines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Protocol

from callgate.builtins._text_pages import PAGE_BYTES, cut
from callgate.builtins._tool_failures import CannotDo, Result, failures_as_results
from callgate.calls import Scope
from callgate.memory.ended_calls import ABOUT
from callgate.memory.passage import FoundPassage
from callgate.tools import Tool, ToolContext, tool

__all__ = ["MemoryTools"]

_NOTE_SHOWN = 2_000


class Remembering(Protocol):
    """The part of a memory that the tools use."""

    @property
    def catching_up(self) -> bool: ...

    def remember(self, text: str, *, tags: Iterable[str], scope: Scope, call: str) -> str: ...

    def recalled(self, text: str, *, scope: Scope, limit: int) -> list[FoundPassage]: ...

    def forget(self, identity: str, *, principal: str) -> None: ...


class MemoryTools:
    """The three tools of one memory."""

    def __init__(self, memory: Remembering) -> None:
        self._memory = memory

    def tools(self) -> list[Tool]:
        return [
            tool(category="async_required", effect="idempotent", writes=_key)(self.remember),
            tool(category="safe_chain", effect="none", reads=_key)(self.recall),
            tool(category="async_required", effect="idempotent", writes=_key)(self.forget),
        ]

    @failures_as_results
    def remember(self, context: ToolContext, text: str, tags: list[str] | None = None) -> Result:
        """Keep a note for later, in this conversation and in others. The same text is kept only once.

        Args:
            text: What to remember, understandable on its own. At most 8,192 bytes.
            tags: Words to find it by, at most 16.
        """
        return {"remembered": self._memory.remember(text, tags=tags or (), scope=context.scope, call=context.uid)}

    @failures_as_results
    def recall(self, context: ToolContext, query: str, limit: int = 10) -> Result:
        """Search notes, the results of earlier calls, and the files that these calls wrote.

        Args:
            query: Words to look for, in any order. Passages with more of them come first.
            limit: How many passages to return at most, up to 50.
        """
        if not query.strip():
            raise CannotDo("`query` is empty. Give words to look for.")
        found = self._memory.recalled(query, scope=context.scope, limit=limit)
        shown: list[Result] = []
        size = 0
        for one in found:
            if one.passage.path and not context.may_visit(one.passage.path):
                continue
            item = _as_result(one)
            size += len(str(item).encode("utf-8", "replace"))
            if size > PAGE_BYTES:
                break
            shown.append(item)
        result: Result = {"about": ABOUT, "found": shown, "left_out": len(found) - len(shown)}
        if self._memory.catching_up:
            result["note"] = "Older calls are still being read in. Ask again later if something is missing."
        return result

    @failures_as_results
    def forget(self, context: ToolContext, id: str) -> Result:
        """Delete a note.

        Args:
            id: The note's id, as `remember` and `recall` give it.
        """
        self._memory.forget(id, principal=context.principal)
        return {"forgotten": id}


def _key(_: Mapping[str, object], scope: Scope) -> tuple[str, ...]:
    """Return the resource key of a principal's memory, so that `recall` waits for `remember` in the same message."""
    return (f"memory:{scope.principal}",)


def _as_result(found: FoundPassage) -> Result:
    """Return a passage for a model: its text, origin and time."""
    passage = found.passage
    item: Result = {"from": passage.kind, "when": _time(passage.at_ns), "run": passage.run, "call": passage.call}
    match passage.kind:
        case "note":
            text = passage.text if len(passage.text) <= _NOTE_SHOWN else found.snippet
            item |= {"id": passage.origin.partition(":")[2], "text": text}
            item |= {"tags": list(passage.tags)} if passage.tags else {}
        case "file":
            item |= {"path": passage.path, "line": passage.line, "text": found.snippet}
        case "call":
            item |= {"tool": passage.tool, "text": cut(passage.text, _NOTE_SHOWN)}
    return item


def _time(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
