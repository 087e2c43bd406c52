"""Tools of every category that record their executions, and a function that runs an agent with them."""

from __future__ import annotations

from typing import Any

from callgate import Tool, ToolContext, tool
from callgate.agent import Agent, RunResult
from tests.agent.scripted_model import Script, call, says

__all__ = ["LOOK", "Board", "RecordingTools", "run"]

LOOK = says("I will look.", call("look", {"what": "a"}, id="1"))


class Board:
    """Tools of every category. `done` lists what they executed."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.contexts: list[ToolContext] = []

    def tools(self) -> list[Tool]:
        board = self

        @tool(effect="none")
        async def look(what: str, ctx: ToolContext) -> dict[str, str]:
            """Look at something."""
            board.done.append(f"look {what}")
            board.contexts.append(ctx)
            return {"seen": what}

        @tool(category="terminal", effect="once")
        async def tell(text: str) -> str:
            """Tell somebody something."""
            board.done.append(f"tell {text}")
            return "told"

        @tool(category="dangerous")
        async def change(what: str) -> str:
            """Change something."""
            board.done.append(f"change {what}")
            return "changed"

        @tool(category="async_required")
        async def fetch(what: str) -> str:
            """Take long."""
            board.done.append(f"fetch {what}")
            return "fetched"

        @tool(effect="none")
        async def fail(why: str) -> str:
            """Fail."""
            board.done.append(f"fail {why}")
            raise ValueError(why)

        @tool(effect="once")
        async def finish() -> dict[str, object]:
            """End the turn."""
            return {"success": True, "data": "over", "end_turn": True}

        return [look, tell, change, fetch, fail, finish]


class RecordingTools:
    """Two tools that record their arguments."""

    def __init__(self) -> None:
        self.looked: list[str] = []
        self.changed: list[str] = []

    def tools(self) -> list[Tool]:
        @tool(effect="none")
        async def look(what: str = "") -> str:
            """Look."""
            self.looked.append(what)
            return f"saw {what}"

        @tool(effect="once")
        async def change(what: str = "") -> str:
            """Change."""
            self.changed.append(what)
            return f"changed {what}"

        return [look, change]


async def run(board: Board, *answers: Any, task: str = "Do it.", **options: Any) -> tuple[RunResult, Script]:
    """Run an agent with the tools of `board`; return its result and its model."""
    model = Script(*answers)
    async with Agent(model, tools=board.tools(), **options) as agent:
        return await agent.run(task), model
