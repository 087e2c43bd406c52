"""A server of the official SDK that speaks both eras: `python -m tests.gateway.dual_era_server`.

Its tools ask the client by requests of the server, as tools that were written for sessions do; `hand` asks within its result.
"""

from __future__ import annotations

import os
from typing import Annotated

from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel

server = MCPServer("dual", log_level="WARNING")


class Colour(BaseModel):
    colour: str


@server.tool()
async def ask(ctx: Context) -> str:
    """Ask the user for a colour."""
    answer = await ctx.elicit("Which colour?", Colour)
    return getattr(answer, "data", Colour(colour=answer.action)).colour


@server.tool()
async def model(ctx: Context) -> str:
    """Ask the client's language model."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text="hi"))
    answer = await ctx.session.create_message([message], max_tokens=5)
    return answer.content.text if isinstance(answer.content, TextContent) else "no text"


@server.tool()
async def folders(ctx: Context) -> str:
    """Return the client's folders."""
    return ", ".join(str(root.uri) for root in (await ctx.session.list_roots()).roots)


async def which_colour() -> Elicit[Colour]:
    return Elicit("Which colour?", Colour)


@server.tool()
async def resolve(colour: Annotated[Colour, Resolve(which_colour)]) -> str:
    """Ask the user for a colour, in the way of the client's era."""
    return colour.colour


@server.tool()
async def hand(ctx: Context) -> CallToolResult | InputRequiredResult:
    """Ask the user for a colour within the result."""
    answer = (ctx.input_responses or {}).get("colour")
    if isinstance(answer, ElicitResult):
        return CallToolResult(content=[TextContent(type="text", text=str((answer.content or {}).get("colour")))])
    schema = {"type": "object", "properties": {"colour": {"type": "string"}}}
    question = ElicitRequest(params=ElicitRequestFormParams(message="Which colour?", requested_schema=schema))
    return InputRequiredResult(input_requests={"colour": question}, request_state="asked")


@server.tool()
async def process() -> str:
    """Return the id of this process."""
    return str(os.getpid())


if __name__ == "__main__":
    server.run("stdio")
