"""Helpers for the tests of built-in tools: a hand-made context, and calls through `Tool.invoke`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from callgate import AbortController
from callgate.calls import Scope
from callgate.tools import Tool, ToolContext

Shown = list[tuple[str, str]]


def context(workspace: Path | str = "", *, shown: Shown | None = None, controller: AbortController | None = None) -> ToolContext:
    def report(text: str, stream: str) -> None:
        if shown is not None:
            shown.append((stream, text))

    return ToolContext(
        scope=Scope(run="r", workspace=str(workspace)),
        call_id="c1",
        uid="r/0/0",
        tool="t",
        idempotency_key="k",
        signal=(controller or AbortController()).signal,
        report=report,
    )


class Box:
    """Calls tools by name in one workspace."""

    def __init__(self, tools: list[Tool], workspace: Path | str = "") -> None:
        self.tools = {tool.name: tool for tool in tools}
        self.workspace = workspace

    def __call__(self, name: str, /, **arguments: Any) -> Any:
        return self.tools[name].invoke(context(self.workspace), arguments)
