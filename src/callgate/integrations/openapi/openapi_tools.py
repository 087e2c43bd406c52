"""Make tools from an OpenAPI document: choose operations, name the tools, and declare their effects.

Knows nothing of requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import quote

from callgate._globs import glob_regex
from callgate._option_checks import by_name
from callgate.calls import Effect
from callgate.errors import UsageError
from callgate.integrations.openapi.document import Document, Source, read_document
from callgate.integrations.openapi.operation_tool import (
    Headers,
    OperationTool,
    Server,
    check_header_name,
    check_headers,
    check_texts,
    import_httpx2,
)
from callgate.integrations.openapi.operations import Hidden, Listed, Unsendable, read_operation, read_operations
from callgate.integrations.openapi.servers import read_base_url, read_operation_url
from callgate.models._credential_redaction import secrets_in_url
from callgate.tools import Tool

if TYPE_CHECKING:
    import httpx2

__all__ = ["openapi_tools"]

_EFFECTS: Mapping[str, Effect] = {
    **dict.fromkeys(("GET", "HEAD", "OPTIONS", "TRACE"), "none"),
    **dict.fromkeys(("PUT", "DELETE"), "idempotent"),
    **dict.fromkeys(("POST", "PATCH"), "once"),
}
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_NAME = 64


@by_name
def openapi_tools(
    document: Source,
    *,
    base_url: str | None = None,
    headers: Headers | None = None,
    query: Mapping[str, str] | None = None,
    client: httpx2.AsyncClient | None = None,
    effects: Mapping[str, Effect] | None = None,
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

    In `effects`, `include` and `exclude`, an operation is named by its id, by the tool's name, or as `GET /pets/{petId}`;
    `*` and `?` match any characters.

    Args:
        document: The document as a dict, as JSON text, or as the path of a JSON file. YAML needs PyYAML.
        base_url: The URL before the paths. None: the client's, or the document's first server. An operation or a path with
            servers of its own keeps them. They must have the same scheme, host and port, because all requests carry the
            credentials of `headers`, `query` and `client`.
        headers: Headers for every request, such as credentials, or a function that is given the `ToolContext` of the
            call and returns them, also as a coroutine. Neither the model nor the journal sees them, and parameters of
            these names are not arguments. A function is asked for each call, so its names stay arguments.
        query: Parameters for the query of every request, such as an API key; treated like headers.
        client: Your own `httpx2.AsyncClient`, with your own proxies and certificates; you close it. None: each request
            has a connection of its own.
        effects: Effects of operations, instead of those above.
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
    fixed = {} if headers is None or callable(headers) else headers
    check_headers(fixed, "openapi_tools: headers")
    if idempotency_header is not None:
        check_header_name(idempotency_header, "openapi_tools: idempotency_header")
    check_texts(query or {}, "openapi_tools: query")
    listed = read_operations(read)
    names = _names(listed)
    chosen = _choose(listed, names, include, exclude)
    changed = _declared_effects(listed, names, effects or {})
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
    return _build_tools(read, [(listed[index], names[index], changed.get(index)) for index in chosen], server, hidden)


def _build_tools(document: Document, chosen: Sequence[tuple[Listed, str, Effect | None]], server: Server, hidden: Hidden) -> list[Tool]:
    tools, unsendable = list[Tool](), list[str]()
    for listed, name, effect in chosen:
        try:
            operation = read_operation(document, listed, hidden, read_operation_url(listed, server.base_url))
        except Unsendable as error:
            unsendable.append(f"{listed.where} takes {error}")
            continue
        tools.append(OperationTool(operation, server, name, effect or _EFFECTS[listed.method]))
    if unsendable:
        raise UsageError(
            f"{'; '.join(unsendable)}. A multipart body can only be a form. Leave these operations out with exclude=[...], and write"
            " tools for them."
        )
    return tools


def _names(listed: Sequence[Listed]) -> list[str]:
    """Return a unique tool name for each operation. A name that is given twice gets a number."""
    names, taken = list[str](), set[str]()
    for one in listed:
        given = one.node.get("operationId")
        plain = _as_tool_name(given if isinstance(given, str) else "") or _as_tool_name(f"{one.method.lower()}_{one.path}")
        name, number = plain[:_MAX_NAME].rstrip("_-"), 2
        while name in taken:
            suffix = f"_{number}"
            name, number = plain[: _MAX_NAME - len(suffix)] + suffix, number + 1
        taken.add(name)
        names.append(name)
    return names


def _as_tool_name(text: str) -> str:
    return _NOT_IN_NAME.sub("_", text).strip("_-")


def _choose(listed: Sequence[Listed], names: Sequence[str], include: Iterable[str] | None, exclude: Iterable[str]) -> list[int]:
    for option, given in (("include", include), ("exclude", exclude)):
        if isinstance(given, str):
            raise UsageError(f"openapi_tools({option}={given!r:.80}): it must be a list of names, such as [{given!r:.80}].")
    kept = set(range(len(listed))) if include is None else _find_operations(listed, names, include, "include")
    return sorted(kept - _find_operations(listed, names, exclude, "exclude"))


def _declared_effects(listed: Sequence[Listed], names: Sequence[str], effects: Mapping[str, Effect]) -> dict[int, Effect]:
    """Return the declared effects by the operation's number.

    A name takes precedence over a pattern, and a later entry over an earlier one.
    """
    found: dict[int, Effect] = {}
    for pattern in sorted(effects, key=_is_pattern, reverse=True):
        effect: Any = effects[pattern]
        if effect not in get_args(Effect):
            known = ", ".join(get_args(Effect))
            raise UsageError(f"openapi_tools(effects={{{pattern!r:.80}: {effect!r:.40}}}): the effect must be one of {known}.")
        found |= dict.fromkeys(_find_operations(listed, names, (pattern,), "effects"), effect)
    return found


def _is_pattern(name: str) -> bool:
    return "*" in name or "?" in name


def _find_operations(listed: Sequence[Listed], names: Sequence[str], patterns: Iterable[str], option: str) -> set[int]:
    """Return the numbers of the operations that these names or patterns match.

    Raises:
        UsageError: One of them matches none.
    """
    found = set[int]()
    known = [_names_of(one, name) for one, name in zip(listed, names, strict=True)]
    for pattern in patterns:
        regex = re.compile(glob_regex(pattern) if _is_pattern(pattern) else re.escape(pattern) + r"\Z")
        matched = {index for index, words in enumerate(known) if any(regex.match(word) for word in words)}
        if not matched:
            near = get_close_matches(pattern, [word for words in known for word in words], n=1, cutoff=0.5)
            meant = f"; did you mean {near[0]!r}?" if near else "."
            raise UsageError(f"openapi_tools({option}=...) names {pattern!r:.100}, which no operation of the document has{meant}")
        found |= matched
    return found


def _names_of(listed: Listed, name: str) -> tuple[str, ...]:
    given = listed.node.get("operationId")
    return (name, f"{listed.method} {listed.path}", *((given,) if isinstance(given, str) else ()))
