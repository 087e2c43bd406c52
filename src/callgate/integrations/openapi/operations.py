"""Read the operations of an OpenAPI document: their parameters, their bodies, and the schema of their arguments.

The name of an argument is that of its parameter. Where two parameters have one name, or a parameter is called `body`, its place is added:
`id` and `id_query`. The body is the argument `body`. Pure; knows nothing of requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct

from callgate._json import json_text
from callgate.errors import UsageError
from callgate.integrations.openapi.document import Document, describe_kind
from callgate.integrations.openapi.schemas import SchemaReader

__all__ = ["BODY", "Body", "BodyKind", "Hidden", "Listed", "Operation", "Parameter", "Unsendable", "read_operation", "read_operations"]

BODY = "body"
"""The argument with the request's body."""

BodyKind = Literal["json", "form", "multipart", "text", "bytes"]

Location = Literal["path", "query", "header", "cookie"]
_MAX_SHOWN = 2_000
"""Characters of a schema in a description."""
_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_STYLES: Mapping[Location, tuple[str, ...]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
"""The styles of each place; the first one is the default."""
_OF_THE_HOST = frozenset({"accept", "content-type", "authorization", "host", "content-length", "transfer-encoding", "connection", "cookie"})
"""Headers that are not arguments: OpenAPI ignores the first three as parameters, and the others belong to the HTTP client."""


class Parameter(Struct, frozen=True, kw_only=True):
    """A parameter of an operation."""

    argument: str
    """The name of the argument that the model gives."""
    name: str
    location: Location
    style: str
    explode: bool
    required: bool
    as_json: bool = False
    """Whether the value is sent as JSON text."""
    keeps_reserved: bool = False
    """Whether `/?:@` and the like are sent as they are."""


class Body(Struct, frozen=True, kw_only=True):
    """The body of an operation's requests."""

    media_type: str
    kind: BodyKind
    required: bool
    fields: Mapping[str, Parameter] = {}
    """How the fields of a form are written whose encoding has a style."""
    media_types: Mapping[str, str] = {}
    """The media types of fields in a multipart form, if the document names them."""
    files: frozenset[str] = frozenset()
    """The fields of a multipart form that are files. Their arguments are base64."""


class Operation(Struct, frozen=True, kw_only=True):
    """An operation with everything that a request needs."""

    method: str
    base_url: str
    """The URL before the path."""
    path: str
    operation_id: str
    description: str
    parameters: tuple[Parameter, ...]
    body: Body | None
    schema: dict[str, Any]
    """The JSON Schema of the arguments."""

    @property
    def label(self) -> str:
        """The operation as `GET /pets/{petId}`."""
        return f"{self.method} {self.path}"


class Hidden(Struct, frozen=True, kw_only=True):
    """The parameters that the host sends with every request, and that are therefore not arguments. Header names are in lower case."""

    headers: frozenset[str] = frozenset()
    query: frozenset[str] = frozenset()


class Unsendable(Exception):
    """An operation's body has no media type that can be sent; the text says which types it has."""


class Listed(Struct, frozen=True):
    """An operation that is not read yet."""

    method: str
    path: str
    node: Mapping[str, Any]
    shared: object
    """The parameters of all operations of the path."""
    shared_servers: object
    """The servers of all operations of the path."""

    @property
    def where(self) -> str:
        """The operation, for errors."""
        named = self.node.get("operationId")
        label = f"{self.method} {self.path}"
        return f"Operation '{named}' ({label})" if isinstance(named, str) else f"Operation {label}"


def read_operations(document: Document) -> list[Listed]:
    """Return the operations of the document, in its order.

    Raises:
        UsageError: The document has no paths, or a path or an operation is not an object.
    """
    paths = document.root.get("paths")
    if not isinstance(paths, Mapping):
        raise UsageError(f"The OpenAPI document's 'paths' is {describe_kind(paths)}; it must be an object.")
    found = []
    for path, node in paths.items():
        if path.startswith("x-"):
            continue
        if not path.startswith("/"):
            raise UsageError(f"Path {path[:200]!r} of the OpenAPI document does not begin with '/'. Correct it.")
        item = document.resolved(node, f"Path {path}")
        for method in _METHODS:
            if method in item:
                operation = document.resolved(item[method], f"Operation {method.upper()} {path}")
                found.append(Listed(method.upper(), path, operation, item.get("parameters"), item.get("servers")))
    return found


def read_operation(document: Document, listed: Listed, hidden: Hidden, base_url: str) -> Operation:
    """Return an operation whose requests begin with `base_url`.

    Raises:
        UsageError: Something in it is wrong; the error names the operation and the place.
        Unsendable: Its body cannot be sent.
    """
    return _OperationReader(document, listed, hidden).read(base_url)


class _OperationReader:
    def __init__(self, document: Document, listed: Listed, hidden: Hidden) -> None:
        self._document, self._listed, self._hidden = document, listed, hidden
        self._where = listed.where
        self._schemas = SchemaReader(document, self._where)
        self._properties: dict[str, Any] = {}
        self._required: list[str] = []

    def read(self, base_url: str) -> Operation:
        nodes = self._parameters()
        body = self._document.resolved(self._listed.node["requestBody"], f"{self._where}, requestBody") if self._has_body else None
        parameters = tuple(found for place, node in nodes if (found := self._parameter(place, node, has_body=body is not None)) is not None)
        self._check_path(parameters)
        sent = None if body is None else self._body(body)
        schema: dict[str, Any] = {"type": "object", "properties": self._properties}
        if self._required:
            schema["required"] = self._required
        schema["additionalProperties"] = False
        if self._schemas.definitions:
            schema["$defs"] = self._schemas.definitions
        return Operation(
            method=self._listed.method,
            base_url=base_url,
            path=self._listed.path,
            operation_id=self._get_text("operationId"),
            description=self._description(),
            parameters=parameters,
            body=sent,
            schema=schema,
        )

    @property
    def _has_body(self) -> bool:
        return self._listed.node.get("requestBody") is not None

    def _get_text(self, key: str) -> str:
        value = self._listed.node.get(key)
        return value.strip() if isinstance(value, str) else ""

    def _description(self) -> str:
        summary, more = self._get_text("summary"), self._get_text("description")
        texts = [more] if more.startswith(summary.rstrip(".")) else [summary, more]
        return "\n\n".join(filter(None, texts)) or f"{self._listed.method} {self._listed.path}"

    def _parameters(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the parameters with their places. An operation's own parameter replaces the path's with the same name and location."""
        found: dict[tuple[object, object], tuple[str, Mapping[str, Any]]] = {}
        for nodes in (self._listed.shared, self._listed.node.get("parameters")):
            if nodes is not None and not isinstance(nodes, (list, tuple)):
                raise UsageError(f"{self._where}: 'parameters' is {describe_kind(nodes)}; it must be a list.")
            for number, node in enumerate(nodes or ()):
                place = f"{self._where}, parameters/{number}"
                parameter = self._document.resolved(node, place)
                found[(parameter.get("name"), parameter.get("in"))] = (place, parameter)
        order = list(_STYLES)
        yield from sorted(found.values(), key=lambda one: order.index(one[1]["in"]) if one[1].get("in") in order else len(order))

    def _parameter(self, place: str, node: Mapping[str, Any], *, has_body: bool) -> Parameter | None:
        name, location = node.get("name"), node.get("in")
        if not isinstance(name, str) or not name:
            raise UsageError(f"{place}: the parameter's name is {describe_kind(name)}; it must be text.")
        if location not in ("path", "query", "header", "cookie"):
            raise UsageError(f"{place}: parameter '{name}' has in={location!r:.40}; it must be path, query, header or cookie.")
        place = f"{self._where}, {location} parameter '{name}'"
        required = node.get("required") is True or location == "path"
        if self._is_hidden(name, location):
            return None
        style, explode = self._style(node, location, place)
        as_json, schema = self._parameter_schema(node, f"{location} parameter '{name}'")
        argument = self._argument(name, location, has_body=has_body)
        if isinstance(node.get("description"), str) and "description" not in schema:
            schema = schema | {"description": node["description"]}
        self._properties[argument] = schema
        if required:
            self._required.append(argument)
        return Parameter(
            argument=argument,
            name=name,
            location=location,
            style=style,
            explode=explode,
            required=required,
            as_json=as_json,
            keeps_reserved=node.get("allowReserved") is True,
        )

    def _is_hidden(self, name: str, location: str) -> bool:
        if location == "header":
            return name.lower() in _OF_THE_HOST | self._hidden.headers
        return location == "query" and name in self._hidden.query

    def _style(self, node: Mapping[str, Any], location: Location, place: str) -> tuple[str, bool]:
        style = node.get("style", _STYLES[location][0])
        if style not in _STYLES[location]:
            known = ", ".join(_STYLES[location])
            raise UsageError(f"{place} has style={style!r:.40}; in {location}, the styles are {known}.")
        return style, node.get("explode", style in ("form", "deepObject")) is True

    def _parameter_schema(self, node: Mapping[str, Any], place: str) -> tuple[bool, dict[str, Any]]:
        content = node.get("content")
        if isinstance(content, Mapping) and content:
            media = self._document.resolved(next(iter(content.values())), f"{self._where}, {place}/content")
            return True, self._schemas.read(media.get("schema", {}), place)
        return False, self._schemas.read(node.get("schema", {}), place)

    def _argument(self, name: str, location: str, *, has_body: bool) -> str:
        taken = {*self._properties, *((BODY,) if has_body else ())}
        free = name if name not in taken else f"{name}_{location}"
        number = 2
        while free in taken:
            free, number = f"{name}_{location}_{number}", number + 1
        return free

    def _check_path(self, parameters: tuple[Parameter, ...]) -> None:
        """Raise if the path's placeholders and the path parameters differ, because no valid URL could be made."""
        named = {one.name for one in parameters if one.location == "path"}
        for name in sorted(named):
            if f"{{{name}}}" not in self._listed.path:
                raise UsageError(f"{self._where}: the path has no {{{name}}}, but there is a path parameter '{name}'. Correct one of them.")
        left = self._listed.path
        for name in named:
            left = left.replace(f"{{{name}}}", "")
        if "{" in left:
            missing = left[left.index("{") + 1 :].partition("}")[0]
            raise UsageError(f"{self._where}: the path has {{{missing}}}, but there is no path parameter '{missing}'. Add it.")

    def _body(self, node: Mapping[str, Any]) -> Body:
        content = node.get("content")
        if not isinstance(content, Mapping) or not content:
            raise UsageError(f"{self._where}, requestBody: 'content' is {describe_kind(content)}; it must name a media type.")
        kind, media_type = _choose_media_type(content)
        place = f"requestBody/content/{media_type}"
        media = self._document.resolved(content[media_type], f"{self._where}, {place}")
        schema = self._schemas.read(media.get("schema", {}), place)
        files = self._files(media, place) if kind == "multipart" else frozenset()
        described = _describe_files(schema if kind != "bytes" else {"type": "string"}, node, kind, files)
        self._properties[BODY] = _as_xml_text(described) if kind == "text" and _is_xml(media_type) else described
        required = node.get("required") is True
        if required:
            self._required.append(BODY)
        return Body(
            media_type=media_type,
            kind=kind,
            required=required,
            fields=self._fields(media, place) if kind == "form" else {},
            media_types=_media_types(media) if kind == "multipart" else {},
            files=files,
        )

    def _files(self, media: Mapping[str, Any], place: str) -> frozenset[str]:
        """Return the fields of a multipart form that are files, or lists of files."""
        found, seen, waiting = set[str](), set[int](), [media.get("schema", {})]
        while waiting:
            schema = self._document.resolved(waiting.pop(), f"{self._where}, {place}")
            parts = schema.get("allOf")
            waiting += parts if isinstance(parts, list) and id(schema) not in seen else []
            seen.add(id(schema))
            properties = schema.get("properties")
            for name, inner in properties.items() if isinstance(properties, Mapping) else ():
                field = self._document.resolved(inner, f"{self._where}, {place}/{name}") if isinstance(inner, Mapping) else {}
                items = field.get("items")
                one = self._document.resolved(items, f"{self._where}, {place}/{name}/items") if isinstance(items, Mapping) else field
                if one.get("format") in ("binary", "byte", "base64") or "contentEncoding" in one or "contentMediaType" in one:
                    found.add(name)
        return frozenset(found)

    def _fields(self, media: Mapping[str, Any], place: str) -> dict[str, Parameter]:
        """Return how the fields are written whose encoding has a style. All others are written in the default way."""
        encoding = media.get("encoding")
        found = {}
        for name, node in encoding.items() if isinstance(encoding, Mapping) else ():
            if isinstance(node, Mapping) and node.keys() & {"style", "explode"}:
                style, explode = self._style(node, "query", f"{self._where}, {place}/encoding/{name}")
                found[name] = Parameter(argument=name, name=name, location="query", style=style, explode=explode, required=False)
        return found


def _as_xml_text(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an XML body, which is given as text: its own one describes the content."""
    if schema.get("type") == "string":
        return schema
    content = {key: value for key, value in schema.items() if key != "description"}
    texts = (
        schema.get("description"),
        "XML as text.",
        f"JSON Schema of its content: {json_text(content)[:_MAX_SHOWN]}" if content else None,
    )
    return {"type": "string", "description": " ".join(filter(None, texts))}


def _is_xml(media_type: str) -> bool:
    name = media_type.partition(";")[0].strip().lower()
    return name in ("application/xml", "text/xml") or name.endswith("+xml")


def _describe_files(schema: dict[str, Any], node: Mapping[str, Any], kind: BodyKind, files: frozenset[str]) -> dict[str, Any]:
    """Return the schema of a body with a description that says what is base64."""
    given = schema.get("description") or node.get("description")
    texts = [given] if isinstance(given, str) else []
    if kind == "bytes":
        texts.append("The bytes as base64.")
    if files:
        texts.append(f"Files as base64: {', '.join(sorted(files))}.")
    return schema | {"description": " ".join(texts)} if texts else schema


def _media_types(media: Mapping[str, Any]) -> dict[str, str]:
    encoding = media.get("encoding")
    nodes = encoding.items() if isinstance(encoding, Mapping) else ()
    named = {str(name): str(node.get("contentType") or "").partition(",")[0].strip() for name, node in nodes if isinstance(node, Mapping)}
    return {name: one for name, one in named.items() if one and one.isascii() and one.isprintable() and "*" not in one}


def _choose_media_type(content: Mapping[str, Any]) -> tuple[BodyKind, str]:
    """Return the first media type that is JSON, else a form, else text, else any other but a multipart one."""
    plain = {media_type: media_type.partition(";")[0].strip().lower() for media_type in content}
    for media_type, name in plain.items():
        if name == "application/json" or name.endswith("+json") or name == "*/*":
            return "json", media_type
    for media_type, name in plain.items():
        if name == "application/x-www-form-urlencoded":
            return "form", media_type
    for media_type, name in plain.items():
        if name == "multipart/form-data":
            return "multipart", media_type
    for media_type, name in plain.items():
        if name.startswith("text/") or _is_xml(name):
            return "text", media_type
    for media_type, name in plain.items():
        if not name.startswith("multipart/"):
            return "bytes", media_type
    raise Unsendable(", ".join(map(str, content)))
