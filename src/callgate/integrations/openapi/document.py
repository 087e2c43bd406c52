"""Read an OpenAPI document from a dict, a text or a file, and resolve its references.

Nothing is fetched: a reference to another document is refused. Knows nothing of tools or requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from callgate.errors import UsageError

__all__ = ["Document", "Source", "describe_kind", "read_document"]

Source = Mapping[str, Any] | str | bytes | PathLike[str]
"""A document as a dict, as JSON or YAML text, or the path of a file with one."""

_MAX_CHAIN = 100


class Document:
    """An OpenAPI document of version 3.0 or 3.1."""

    def __init__(self, root: Mapping[str, Any], version: str) -> None:
        self.root = root
        self.version = version
        """The value of `openapi`, such as `3.0.3`."""

    @property
    def is_3_0(self) -> bool:
        """Whether schemas are those of OpenAPI 3.0, which are not quite JSON Schema."""
        return self.version.startswith("3.0")

    def target(self, reference: object, where: str) -> Any:
        """Return what a `$ref` points to.

        Args:
            where: The operation and the place of the reference, for errors.

        Raises:
            UsageError: The reference leads out of the document, or nowhere.
        """
        if not isinstance(reference, str):
            raise UsageError(f"{where}: $ref is {describe_kind(reference)}; it must be text, such as '#/components/schemas/Pet'.")
        if not reference.startswith("#"):
            raise UsageError(f"{where}: $ref {reference[:200]!r} leads to another document. Bundle all of them into one, and try again.")
        found: Any = self.root
        for step in unquote(reference[1:]).split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and step in found:
                found = found[step]
            elif isinstance(found, (list, tuple)) and step.isdigit() and int(step) < len(found):
                found = found[int(step)]
            else:
                found = None
                break
        if found is None or reference[1:2] not in ("", "/"):
            raise UsageError(f"{where}: $ref {reference[:200]!r} leads nowhere in the document. Correct it, or add what it names.")
        return found

    def resolved(self, node: object, where: str) -> Mapping[str, Any]:
        """Return an object of the document, or the one that its `$ref` leads to.

        Raises:
            UsageError: It is not an object, or its reference leads nowhere or in a circle.
        """
        for _ in range(_MAX_CHAIN):
            if not isinstance(node, Mapping):
                raise UsageError(f"{where} is {describe_kind(node)}; it must be an object.")
            if "$ref" not in node:
                return node
            node = self.target(node["$ref"], where)
        raise UsageError(f"{where}: its $ref leads in a circle. Let one of the references lead to an object.")


def read_document(source: Source) -> Document:
    """Return the document.

    Raises:
        UsageError: It cannot be read, or is not an OpenAPI document of version 3.0 or 3.1.
    """
    root = source if isinstance(source, Mapping) else _parse(source)
    if not isinstance(root, Mapping):
        raise UsageError(f"The OpenAPI document is {describe_kind(root)}; it must be an object with 'openapi' and 'paths'.")
    version = root.get("openapi")
    if "swagger" in root and version is None:
        raise UsageError(
            f"The document is of Swagger {str(root['swagger'])[:20]}; OpenAPI 3.0 and 3.1 can be read. Convert it, for example with"
            " swagger2openapi."
        )
    if isinstance(version, float):  # written without quotes
        version = str(version)
    if not isinstance(version, str) or not version.startswith(("3.0", "3.1")):
        raise UsageError(f"The document has openapi={version!r:.40}; 3.0 and 3.1 can be read.")
    return Document(root, version)


def _parse(source: str | bytes | PathLike[str]) -> object:
    if isinstance(source, bytes):
        return _parse_json(source, "The OpenAPI document")
    if not isinstance(source, (str, PathLike)):
        raise UsageError(f"openapi_tools was given {describe_kind(source)}; it takes a dict, JSON text, or the path of a file.")
    if isinstance(source, str) and source.lstrip().startswith("{"):
        return _parse_json(source, "The OpenAPI document")
    if isinstance(source, str) and "\n" in source:
        return _parse_yaml(source, "The OpenAPI document")
    if isinstance(source, str) and source.startswith(("http://", "https://")):
        raise UsageError("openapi_tools was given the URL of a document, and fetches nothing. Fetch it, and give its text or its dict.")
    path = Path(source).expanduser()
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UsageError(f"The OpenAPI document {path} cannot be read: {error.strerror or error}. Give the path of a JSON file.") from None
    read = _parse_yaml if path.suffix.lower() in (".yaml", ".yml") else _parse_json
    return read(text, f"The OpenAPI document {path}")


def _parse_json(text: str | bytes, name: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(f"{name} is not valid JSON: {error}.") from None


def _parse_yaml(text: str | bytes, name: str) -> object:
    try:
        yaml: Any = import_module("yaml")
    except ImportError:
        raise UsageError(f"{name} is YAML, which needs PyYAML. Run: pip install pyyaml. Or give the document as JSON.") from None
    try:
        return _as_json(yaml.load(text, Loader=_json_loader(yaml)))
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"{name} is not valid YAML: {str(error)[:300]}") from None


def _json_loader(yaml: Any) -> Any:
    """Return YAML's safe loader without dates, which JSON does not have."""
    kept = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return type("JsonLoader", (yaml.SafeLoader,), {"yaml_implicit_resolvers": kept})


def _as_json(value: object) -> object:
    """Return YAML data with text as keys: it reads the key `200:` of a response as a number."""
    if isinstance(value, dict):
        return {_as_key(key): _as_json(item) for key, item in value.items()}
    return [_as_json(item) for item in value] if isinstance(value, list) else value


def _as_key(key: object) -> str:
    return key if isinstance(key, str) else str(key).lower() if isinstance(key, bool) else str(key)


def describe_kind(value: object) -> str:
    """Return the kind of a value in JSON's words, for errors."""
    if value is None:
        return "missing"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "a list"
    return f"{value!r:.60}"
