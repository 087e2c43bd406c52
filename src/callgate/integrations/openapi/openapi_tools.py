"""Make tools from an OpenAPI document, from the operations that the options choose.

Knows nothing of requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from msgspec import Struct

from callgate._option_checks import by_name
from callgate.calls import Effect
from callgate.errors import UsageError
from callgate.integrations.openapi.document import Document, Source, read_document
from callgate.integrations.openapi.named_operations import NamedOperations
from callgate.integrations.openapi.operation_tool import (
    Headers,
    OperationTool,
    Server,
    check_header_name,
    check_headers,
    check_texts,
    import_httpx2,
    refuse_second_authorization,
)
from callgate.integrations.openapi.operations import Hidden, Listed, Unsendable, read_operation, read_operations
from callgate.integrations.openapi.servers import read_base_url, read_operation_url
from callgate.models._credential_redaction import secrets_in_url
from callgate.tools import Tool, ToolOptions

if TYPE_CHECKING:
    import httpx2

__all__ = ["openapi_tools"]

_EFFECTS: Mapping[str, Effect] = {
    **dict.fromkeys(("GET", "HEAD", "OPTIONS", "TRACE"), "none"),
    **dict.fromkeys(("PUT", "DELETE"), "idempotent"),
    **dict.fromkeys(("POST", "PATCH"), "once"),
}


class _Chosen(Struct, frozen=True):
    """An operation that becomes a tool, and what the host declares for it."""

    listed: Listed
    name: str
    effect: Effect | None
    options: Mapping[str, Any]


@by_name
def openapi_tools(
    document: Source,
    *,
    base_url: str | None = None,
    headers: Headers | None = None,
    query: Mapping[str, str] | None = None,
    client: httpx2.AsyncClient | None = None,
    effects: Mapping[str, Effect] | None = None,
    options: Mapping[str, ToolOptions] | None = None,
    include: Iterable[str] | None = None,
    exclude: Iterable[str] = (),
    idempotency_header: str | None = None,
) -> list[Tool]:
    """Return one tool for each operation of an OpenAPI document of version 3.0 or 3.1.

    A tool has the operation's id as its name, or `get_pets_petId`, made from method and path. Parameters are arguments of
    the same names, and the body is the argument `body`; their schemas are unchanged. A body in JSON, as a form or as text
    can be sent. A 2xx response is the result: JSON data, text, or an image, audio or binary part. Any other response is a
    failure that shows the status and at most 2,000 characters of the body.

    `GET`, `HEAD`, `OPTIONS` and `TRACE` have the effect `none`, `PUT` and `DELETE` `idempotent`, `POST` and `PATCH` `once`.

    In `effects`, `options`, `include` and `exclude`, an operation is named by its id, by the tool's name, or as `GET /pets/{petId}`;
    `*` and `?` match any characters.

    Args:
        document: The document as a dict, as JSON text, or as the path of a JSON file. YAML needs PyYAML.
        base_url: The URL before the paths. None: the client's, or the document's first server. An operation or a path with
            servers of its own keeps them. They must have the same scheme, host and port, because all requests carry the
            credentials of `headers`, `query` and `client`.
        headers: Headers for every request, such as credentials, or a function that is given the `ToolContext` of the
            call and returns them. The function may be async; a plain one runs in a thread. Neither the model nor the
            journal sees them, and parameters of these names are not arguments. A function is asked for each call, so its
            names stay arguments.
        query: Parameters for the query of every request, such as an API key; treated like headers.
        client: Your own `httpx2.AsyncClient`, with your own proxies and certificates; you close it. None: each request
            has a connection of its own.
        effects: Effects of operations, instead of those above.
        options: More options of `@tool` for operations, such as `{"pay": {"requires_approval": True}}`; those that
            `McpServer.options` takes.
        include: The operations to use; None for all.
        exclude: Operations to leave out.
        idempotency_header: The header in which the server takes an idempotency key, such as `Idempotency-Key`. Each call
            sends its key in it, the same one with every attempt, unless its effect is `none`. If that makes a repeated
            `POST` safe, declare this with `effects={"POST *": "idempotent"}`.

    Raises:
        UsageError: The document or an option is wrong. Errors of the document name the operation and the place.
    """
    read = read_document(document)
    import_httpx2()
    fixed = _check_additions(headers, query or {}, idempotency_header)
    operations = NamedOperations(read_operations(read))
    chosen = operations.choose(include, exclude)
    changed = operations.declared_effects(effects or {})
    declared = operations.declared_options(options or {})
    url = read_base_url(read, base_url, client)
    server = Server(
        base_url=url,
        headers=headers or {},
        query="&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in (query or {}).items()),
        secrets=(*(query or {}).values(), *secrets_in_url(url)),
        client=client,
        idempotency_header=idempotency_header,
    )
    sent = (*fixed, *(() if client is None else client.headers), *((idempotency_header,) if idempotency_header else ()))
    hidden = Hidden(headers=frozenset(name.lower() for name in sent), query=frozenset(query or ()))
    refuse_second_authorization(fixed, url)
    named = [_Chosen(operations.listed[index], operations.names[index], changed.get(index), declared.get(index, {})) for index in chosen]
    return _build_tools(read, named, server, hidden)


def _check_additions(headers: Headers | None, query: Mapping[str, str], idempotency_header: str | None) -> Mapping[str, str]:
    """Return the headers that are the same for every request.

    Raises:
        UsageError: What the host adds to each request cannot be sent.
    """
    fixed = {} if headers is None or callable(headers) else headers
    check_headers(fixed, "openapi_tools: headers")
    if idempotency_header is not None:
        check_header_name(idempotency_header, "openapi_tools: idempotency_header")
    check_texts(query, "openapi_tools: query")
    return fixed


def _build_tools(document: Document, chosen: Sequence[_Chosen], server: Server, hidden: Hidden) -> list[Tool]:
    tools, unsendable = list[Tool](), list[str]()
    for one in chosen:
        try:
            operation = read_operation(document, one.listed, hidden, read_operation_url(one.listed, server.base_url))
        except Unsendable as error:
            unsendable.append(f"{one.listed.where} takes {error}")
            continue
        tools.append(OperationTool(operation, server, one.name, one.effect or _EFFECTS[one.listed.method], one.options))
    if unsendable:
        raise UsageError(
            f"{'; '.join(unsendable)}. A multipart body can only be a form. Leave these operations out with exclude=[...], and write"
            " tools for them."
        )
    return tools
