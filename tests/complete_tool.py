"""A `Tool` subclass with every required attribute and a result in the standard shape."""

from __future__ import annotations

from typing import Any

from callgate import Tool

__all__ = ["Complete"]


class Complete(Tool):
    name = "complete"
    description = "A complete tool."
    parameters = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    category = "safe_chain"

    async def execute(self, actor: str, **params: Any) -> dict[str, Any]:
        return {"success": True, "data": params["n"]}
