"""The request to a model, independent of any provider, and the HTTP request that an encoder makes from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from callgate._engine_limits import Limits
from callgate.messages import Message

__all__ = ["HttpRequest", "ModelRequest", "ToolSpec"]


class ToolSpec(Struct, frozen=True, kw_only=True):
    """A tool as a model sees it."""

    name: str
    description: str = ""
    schema: Mapping[str, object] = {}
    """JSON Schema of the arguments."""
    custom: bool = False
    """Whether the tool takes free text instead of JSON, where the provider supports such tools."""


class ModelRequest(Struct, frozen=True, kw_only=True):
    """The request for one pass."""

    model: str
    """The provider's name for the model."""
    messages: Sequence[Message]
    """The whole conversation, oldest first; each call is followed by exactly one result."""
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    """`auto`, `none`, `required`, or the name of the one tool to call."""
    stream: bool = True
    max_tokens: int | None = None
    temperature: float | None = None
    output_schema: Mapping[str, object] | None = None
    """JSON Schema of the answer, where the provider can enforce one."""
    calls_per_message: int = Limits().calls_per_message
    """Maximum number of calls in the answer; more are an error."""
    extra: Mapping[str, object] = {}
    """Fields that are merged into the body last: options of a provider that have no field here."""


class HttpRequest(Struct, frozen=True, kw_only=True):
    """An encoded request. The transport adds the host and the credentials."""

    path: str
    body: bytes
    headers: Mapping[str, str] = {}
    method: str = "POST"
