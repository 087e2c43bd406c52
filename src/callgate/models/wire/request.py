"""What is asked of a model, in no provider's form, and what goes over the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from callgate._limits import Limits
from callgate.messages import Message

__all__ = ["HttpRequest", "ModelRequest", "ToolSpec"]


class ToolSpec(Struct, frozen=True, kw_only=True):
    """A tool as a model is told of it."""

    name: str
    description: str = ""
    schema: Mapping[str, object] = {}
    """JSON Schema of the arguments."""
    custom: bool = False
    """Takes free text instead of JSON, where the provider has such tools."""


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One generation pass."""

    model: str
    """The provider's name for it."""
    messages: Sequence[Message]
    """The whole conversation, oldest first; each call with exactly one result in its place."""
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    """`auto`, `none`, `required`, or the name of the one tool to call."""
    stream: bool = True
    max_tokens: int | None = None
    temperature: float | None = None
    output_schema: Mapping[str, object] | None = None
    """JSON Schema of the answer, where the provider can be held to one."""
    calls_per_message: int = Limits().calls_per_message
    """An answer with more calls fails."""
    extra: Mapping[str, object] = {}
    """Merged into the body last: whatever the provider takes that has no field here."""


class HttpRequest(Struct, frozen=True, kw_only=True):
    """What a provider is sent; the transport adds the host and the credentials."""

    path: str
    body: bytes
    headers: Mapping[str, str] = {}
    method: str = "POST"
