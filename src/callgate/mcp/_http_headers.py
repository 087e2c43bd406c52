"""The HTTP headers of requests: those that repeat parts of a stateless request's body, and those that the operator configures.

In revision 2026-07-28 a proxy may route by `Mcp-Method`, `Mcp-Name` and `Mcp-Param-*`, and a server refuses a request whose headers differ
from its body. Which arguments of a tool become headers is declared in its input schema, so the tools that the server lists are read here.
Pure.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any

from callgate.errors import UsageError

__all__ = ["ArgumentHeaders", "check_headers", "header_value", "routing_headers"]

_ANNOTATION = "x-mcp-header"
_PREFIX = "mcp-param-"
_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_NAMED_BY |= dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PLAIN = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?")
_ENCODED = re.compile(r"=\?base64\?.*\?=")
_TYPES = ("string", "integer", "boolean")

_ONE_SCHEMA = (
    *("items", "contains", "unevaluatedItems", "additionalItems", "additionalProperties", "propertyNames", "unevaluatedProperties"),
    *("not", "if", "then", "else", "contentSchema"),
)
_LISTS_OF_SCHEMAS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_MAPS_OF_SCHEMAS = ("patternProperties", "dependentSchemas", "$defs", "definitions")

_Path = tuple[str, ...]
_OF_THE_BODY = frozenset({"content-length", "transfer-encoding", "trailer"})


def check_headers(server: str, headers: Mapping[str, str]) -> None:
    """Check the headers that the operator configured for a server.

    Raises:
        UsageError: A name or value is not allowed in HTTP, or the header is made from the request itself. The message does not contain the
            value.
    """
    for name, value in headers.items():
        if name.lower() in _OF_THE_BODY:
            raise UsageError(f"MCP server '{server}': the header '{name}' is made from the body of each request. Remove it.")
        if not _TOKEN.fullmatch(name):
            raise UsageError(f"MCP server '{server}': {name!r} is not the name of an HTTP header. Write it as in 'Authorization'.")
        if not _PLAIN.fullmatch(value):
            raise UsageError(
                f"MCP server '{server}': the value of the header '{name}' has a line break, a character other than ASCII, or white "
                "space at an end. Correct the value."
            )


def header_value(text: str) -> str:
    """Return `text` as the value of a header: as it is if it is plain ASCII, else as `=?base64?...?=`."""
    if _PLAIN.fullmatch(text) and not _ENCODED.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def routing_headers(method: str, params: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers that repeat the method of a stateless request, and the tool, prompt, resource or task that it names."""
    headers = {"mcp-method": method}
    name = params.get(_NAMED_BY.get(method, ""))
    if isinstance(name, str):
        headers["mcp-name"] = header_value(name)
    return headers


class ArgumentHeaders:
    """The arguments that a server wants repeated as headers, by tool."""

    def __init__(self) -> None:
        self._tools: dict[str, dict[_Path, str]] = {}

    def read_tools(self, tools: list[Any]) -> tuple[list[Any], list[str]]:
        """Remember the annotations of listed tools.

        Returns: the tools that can be called, and for each other one a sentence that says why not.
        """
        accepted: list[Any] = []
        refused: list[str] = []
        for one in tools:
            if not isinstance(one, dict) or not isinstance(name := one.get("name"), str):
                accepted.append(one)
                continue
            try:
                headers = _annotations(one.get("inputSchema"))
            except _InvalidAnnotation as error:
                self._tools.pop(name, None)
                refused.append(f"The tool '{name[:128]}' cannot be called: {error}")
            else:
                self._tools[name] = headers
                accepted.append(one)
        return accepted, refused

    def paths(self, tool: str) -> dict[str, _Path]:
        """Return where in its arguments each header of a tool is, by the last part of the header's name."""
        return {token: path for path, token in self._tools.get(tool, {}).items()}

    def headers_of_call(self, params: Mapping[str, Any]) -> dict[str, str]:
        """Return the headers that repeat the arguments of a call."""
        name = params.get("name")
        annotations = self._tools.get(name) if isinstance(name, str) else None
        if not annotations:
            return {}
        arguments = params.get("arguments")
        values = {token: _as_header_text(_value_at(arguments, path)) for path, token in annotations.items()}
        return {_PREFIX + token.lower(): header_value(text) for token, text in values.items() if text is not None}


class _InvalidAnnotation(ValueError):
    """An annotation does not follow the specification, which forbids the tool."""


def _annotations(schema: object) -> dict[_Path, str]:
    """Return the annotated arguments of an input schema: the path of each, and the last part of its header's name.

    Raises:
        _InvalidAnnotation: An annotation is not allowed.
    """
    found: dict[_Path, str] = {}
    for path, one in _walk_schemas(schema):
        if _ANNOTATION not in one:
            continue
        if not path:
            raise _InvalidAnnotation(f"its input schema has '{_ANNOTATION}' at a place other than a property")
        token = _check_token(".".join(path)[:200], one)
        if token.lower() in (other.lower() for other in found.values()):
            raise _InvalidAnnotation(f"two of its arguments have the '{_ANNOTATION}' {token[:128]!r}")
        found[path] = token
    return found


def _check_token(argument: str, schema: Mapping[str, Any]) -> str:
    token, kind = schema[_ANNOTATION], schema.get("type")
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise _InvalidAnnotation(f"the '{_ANNOTATION}' of its argument '{argument}' is not the name of a header")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise _InvalidAnnotation(f"its argument '{argument}' has '{_ANNOTATION}', which only strings, integers and booleans may have")
    return token


def _walk_schemas(root: object) -> Iterator[tuple[_Path | None, dict[str, Any]]]:
    """Yield every schema within `root`, with the names of the properties that lead to it; None where something else leads to it."""
    waiting: list[tuple[_Path | None, object]] = [((), root)]
    while waiting:
        path, schema = waiting.pop()
        if not isinstance(schema, dict):
            continue
        yield path, schema
        properties = schema.get("properties")
        if isinstance(properties, dict):
            waiting.extend((None if path is None else (*path, name), one) for name, one in properties.items())
        waiting.extend((None, schema[word]) for word in _ONE_SCHEMA if word in schema)
        for word in _LISTS_OF_SCHEMAS:
            if isinstance(several := schema.get(word), list):
                waiting.extend((None, one) for one in several)
        for word in _MAPS_OF_SCHEMAS:
            if isinstance(named := schema.get(word), dict):
                waiting.extend((None, one) for one in named.values())


def _value_at(arguments: object, path: _Path) -> object:
    """Return the argument at this path, or None if there is none."""
    for name in path:
        if not isinstance(arguments, Mapping):
            return None
        arguments = arguments.get(name)
    return arguments


def _as_header_text(value: object) -> str | None:
    """Return an argument as the text of a header, or None if it has none."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, (str, int, float)):
        return None
    try:
        return str(value)
    except ValueError:  # an integer with more digits than Python writes
        return None
