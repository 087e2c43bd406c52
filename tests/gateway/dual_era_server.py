"""A server of the official SDK that speaks both eras: `python -m tests.gateway.dual_era_server`.

Its tools ask the client by requests of the server, as tools that were written for sessions do; `hand` asks within its result.
"""

from __future__ import annotations

import os
from typing import Annotated

from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequiredResult,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel


class Colour(BaseModel):
    colour: str


async def ask(ctx: Context) -> str:
    """Ask the user for a colour."""
    answer = await ctx.elicit("Which colour?", Colour)
    return getattr(answer, "data", Colour(colour=answer.action)).colour


async def model(ctx: Context) -> str:
    """Ask the client's language model."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text="hi"))
    answer = await ctx.session.create_message([message], max_tokens=5)
    return answer.content.text if isinstance(answer.content, TextContent) else "no text"


async def folders(ctx: Context) -> str:
    """Return the client's folders."""
    return ", ".join(str(root.uri) for root in (await ctx.session.list_roots()).roots)


async def open_page(ctx: Context) -> str:
    """Send the user to an address."""
    return (await ctx.elicit_url("Pay here.", "https://shop.example/pay", "payment-1")).action


async def refuse_until_paid() -> str:
    """Refuse until the user has been at an address."""
    asked = ElicitRequestURLParams(message="Pay here.", url="https://shop.example/pay", elicitation_id="payment-2")
    raise UrlElicitationRequiredError([asked])


async def user_has_paid(ctx: Context) -> str:
    """Say that the user is done at these addresses."""
    for number in range(4):
        await ctx.session.send_elicit_complete(f"payment-{number}")
    return "paid"


async def which_colour() -> Elicit[Colour]:
    return Elicit("Which colour?", Colour)


async def resolve(colour: Annotated[Colour, Resolve(which_colour)]) -> str:
    """Ask the user for a colour, in the way of the client's era."""
    return colour.colour


async def hand(ctx: Context) -> CallToolResult | InputRequiredResult:
    """Ask the user for a colour within the result."""
    answer = (ctx.input_responses or {}).get("colour")
    if isinstance(answer, ElicitResult):
        return CallToolResult(content=[TextContent(type="text", text=str((answer.content or {}).get("colour")))])
    schema = {"type": "object", "properties": {"colour": {"type": "string"}}}
    question = ElicitRequest(params=ElicitRequestFormParams(message="Which colour?", requested_schema=schema))
    return InputRequiredResult(input_requests={"colour": question}, request_state="asked")


async def process() -> str:
    """Return the id of this process."""
    return str(os.getpid())


async def grow(ctx: Context) -> str:
    """Add a tool, and say so in the way of the stateless era."""
    ctx.mcp_server.add_tool(ask, name="ask_later")
    await ctx.notify_tools_changed()
    return "added"


def dual_server() -> MCPServer:
    server = MCPServer("dual", log_level="WARNING")
    for function in (ask, model, folders, open_page, refuse_until_paid, user_has_paid, resolve, hand, process, grow):
        server.add_tool(function)
    return server


if __name__ == "__main__":
    dual_server().run("stdio")
