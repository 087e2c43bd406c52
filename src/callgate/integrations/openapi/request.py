"""Make the HTTP request of a call from its arguments: path, query, headers and body.

Writes values in the styles of OpenAPI, with everything escaped that could change the meaning of a URL or a header. Pure; sends nothing.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

from msgspec import Struct

from callgate._json import json_text, plain_bytes
from callgate.integrations.openapi.multipart import Part, write_multipart
from callgate.integrations.openapi.operations import BODY, Body, Operation, Parameter

__all__ = ["Request", "find_unsendable", "make_request"]

_RESERVED = ":/?[]@!$'()*,;"
"""Reserved characters that a query may keep if its parameter allows it; `&`, `=` and `#` would end the value, and `+` is a blank."""
_SEPARATORS = {"form": ",", "simple": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}

Pairs = Iterator[tuple[str, str]]


class Request(Struct, frozen=True, kw_only=True):
    """A request without what the host adds to it."""

    method: str
    path: str
    """The escaped path, with a leading slash."""
    query: str
    headers: dict[str, str]
    content: bytes | None


def make_request(operation: Operation, arguments: Mapping[str, object]) -> Request:
    """Return the request for valid arguments."""
    path, query, headers, cookies = operation.path, list[str](), dict[str, str](), list[str]()
    for parameter in operation.parameters:
        value = arguments.get(parameter.argument)
        if parameter.argument not in arguments or _is_left_out(parameter, value):
            continue
        match parameter.location:
            case "path":
                path = path.replace(f"{{{parameter.name}}}", _path_text(parameter, value))
            case "query":
                query += [f"{name}={text}" for name, text in _pairs(parameter, value)]
            case "header":
                headers[parameter.name] = _header_text(parameter, value)
            case "cookie":
                cookies += [f"{name}={text}" for name, text in _pairs(parameter, value)]
    if cookies:
        headers["Cookie"] = "; ".join(cookies)
    content = None
    if operation.body is not None and BODY in arguments:
        headers["Content-Type"], content = _content(operation.body, arguments[BODY])
    return Request(method=operation.method, path=path, query="&".join(query), headers=headers, content=content)


def _is_left_out(parameter: Parameter, value: object) -> bool:
    """Whether null means that the parameter is not sent: only JSON can write it, and a path has no place without a value."""
    return value is None and parameter.location != "path" and not parameter.as_json


def find_unsendable(operation: Operation, arguments: Mapping[str, object]) -> list[str]:
    """Return the errors of arguments that match the schema, but would make a request of another meaning.

    An empty value in a path, or one with the step `..`, would reach another operation; a header takes one line of printable ASCII.
    """
    errors, path = list[str](), operation.path
    for parameter in operation.parameters:
        if parameter.argument not in arguments:
            continue
        if parameter.location == "path":
            written = _path_text(parameter, arguments[parameter.argument])
            path = path.replace(f"{{{parameter.name}}}", written)
            if not written:
                errors.append(f"{parameter.argument} is empty; it is a part of the path {operation.path} and needs a value.")
        elif parameter.location == "header":
            written = _header_text(parameter, arguments[parameter.argument])
            if not (written.isascii() and written.isprintable()):
                errors.append(f"{parameter.argument} is sent as a header, which takes printable ASCII only. Leave other characters out.")
    if {".", ".."} & set(unquote(path).replace("\\", "/").split("/")):
        errors.append(f"The path {operation.path} would get the step '.' or '..' and lead elsewhere. Give its values without such steps.")
    if operation.body is not None and BODY in arguments:
        errors += [
            f"{place} is a file; give its bytes as base64."
            for place, text in _files(operation.body, arguments[BODY])
            if not _is_base64(text)
        ]
    return errors


def _files(body: Body, value: object) -> Iterator[tuple[str, object]]:
    """Yield the arguments that are files, with their places."""
    if body.kind == "bytes":
        yield BODY, value
    fields: Mapping[str, object] = value if isinstance(value, Mapping) else {}
    for name in sorted(body.files):
        found = fields.get(name)
        yield from ((f"{BODY}.{name}", one) for one in (found if isinstance(found, (list, tuple)) else (found,)) if one is not None)


def _is_base64(text: object) -> bool:
    try:
        return isinstance(text, str) and b64decode(text, validate=True) is not None
    except ValueError:
        return False


def _path_text(parameter: Parameter, value: object) -> str:
    if parameter.as_json:
        return quote(json_text(value), safe="")
    name, explode = quote(parameter.name, safe=""), parameter.explode
    items = _items(value)
    match parameter.style:
        case "label":
            return "." + _join(items, "." if explode else ",", explode)
        case "matrix" if explode:
            return "".join(f";{key or name}={text}" for key, text in items)
        case "matrix":
            return f";{name}=" + _join(items, ",", explode)
    return _join(items, ",", explode)


def _join(items: list[tuple[str, str]], separator: str, explode: bool) -> str:
    """Join values; the entries of an object are written `key=value` or, if they are not exploded, `key,value`."""
    return separator.join(f"{key}{'=' if explode else ','}{text}" if key else text for key, text in items)


def _header_text(parameter: Parameter, value: object) -> str:
    if parameter.as_json:
        return json_text(value)
    return _join(_items(value, escape=False), ",", parameter.explode)


def _pairs(parameter: Parameter, value: object) -> Pairs:
    """Yield the names and values of a parameter in a query, a cookie or a form, escaped."""
    safe = _RESERVED if parameter.keeps_reserved else ""
    name = quote(parameter.name, safe="")
    if parameter.as_json:
        yield name, quote(json_text(value), safe=safe)
    elif parameter.style == "deepObject" and isinstance(value, Mapping):
        yield from _deep_pairs(name, value, safe)
    elif not isinstance(value, (list, tuple, Mapping)):
        yield name, quote(_as_text(value), safe=safe)
    elif not value:
        return
    elif parameter.explode:
        yield from ((key or name, text) for key, text in _items(value, safe))
    else:
        yield name, _join(_items(value, safe), _SEPARATORS.get(parameter.style, ","), explode=False)


def _deep_pairs(name: str, value: Mapping[Any, object], safe: str) -> Pairs:
    for key, item in value.items():
        inner = f"{name}%5B{quote(str(key), safe='')}%5D"
        if isinstance(item, Mapping):
            yield from _deep_pairs(inner, item, safe)
        else:
            yield from ((inner, text) for _, text in _items(item, safe))


def _items(value: object, safe: str = "", *, escape: bool = True) -> list[tuple[str, str]]:
    """Return the entries of an object, the items of a list with an empty key, or the one value."""

    def written(item: object) -> str:
        return quote(_as_text(item), safe=safe) if escape else _as_text(item)

    if isinstance(value, Mapping):
        return [(written(key), written(item)) for key, item in value.items()]
    return [("", written(item)) for item in (value if isinstance(value, (list, tuple)) else (value,))]


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json_text(value)


def _content(body: Body, value: object) -> tuple[str, bytes]:
    """Return the media type and the bytes of a body."""
    media_type = body.media_type if body.media_type != "*/*" else "application/json"
    match body.kind:
        case "json":
            return media_type, plain_bytes(value)
        case "text":
            return media_type, _as_text(value).encode("utf-8", "replace")
        case "bytes":
            return media_type, b64decode(_as_text(value))
    fields = value.items() if isinstance(value, Mapping) else ()
    if body.kind == "multipart":
        boundary, content = write_multipart([part for name, item in fields for part in _parts(body, str(name), item)])
        return f"multipart/form-data; boundary={boundary}", content
    return media_type, "&".join(f"{key}={text}" for name, item in fields for key, text in _field(body, str(name), item)).encode()


def _parts(body: Body, name: str, value: object) -> Iterator[Part]:
    """Yield the parts of a field of a multipart form. A list repeats the field, and an object is sent as JSON."""
    for item in value if isinstance(value, (list, tuple)) else (value,):
        if name in body.files:
            content, default = b64decode(_as_text(item)), "application/octet-stream"
        else:
            content, default = _as_text(item).encode("utf-8", "replace"), "application/json" if isinstance(item, Mapping) else ""
        yield Part(name=name, content=content, media_type=body.media_types.get(name, default), is_file=name in body.files)


def _field(body: Body, name: str, value: object) -> Pairs:
    """Yield a field of a form. Without a style, a list repeats the field, and an object is sent as JSON."""
    as_json = name not in body.fields and isinstance(value, Mapping)
    default = Parameter(argument=name, name=name, location="query", style="form", explode=True, required=False, as_json=as_json)
    return _pairs(body.fields.get(name, default), value)
