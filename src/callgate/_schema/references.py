"""Resolve the references inside one schema document.

Nothing is fetched. A reference to another document is resolved only if that document is a known metaschema or was
passed in. Otherwise the schema is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from callgate._schema.subschemas import Schema, subschemas

__all__ = ["DRAFTS", "METASCHEMA", "References"]

DRAFTS: Mapping[str, int] = {
    "http://json-schema.org/draft-04/schema": 4,
    "http://json-schema.org/draft-06/schema": 6,
    "http://json-schema.org/draft-07/schema": 7,
    "https://json-schema.org/draft/2019-09/schema": 2019,
    "https://json-schema.org/draft/2020-12/schema": 2020,
}
METASCHEMA: Schema = {}
"""Stands for a metaschema that a reference names.

A metaschema is known to be of ordinary depth and size, so it is not inspected.
"""

_METASCHEMAS = (*DRAFTS, "https://json-schema.org/draft/2019-09/meta/", "https://json-schema.org/draft/2020-12/meta/")


class References:
    """The schemas of a document, by URI."""

    def __init__(self, root: Schema, resources: Mapping[str, Any]) -> None:
        self._by_uri: dict[str, Any] = {}
        self._base: dict[int, str] = {}
        self.dynamic: dict[str, list[Schema]] = {}
        """Schemas by their `$dynamicAnchor`."""
        for uri, document in resources.items():
            self._add(document, urldefrag(uri).url)
        self._add(root, "")

    def _add(self, document: Any, base: str) -> None:
        self._by_uri[base] = document
        stack = [(document, base)] if isinstance(document, dict) else []
        while stack:
            schema, base = stack.pop()
            base = self._register_identifiers(schema, base)
            self._base[id(schema)] = base
            stack += [(inner, base) for _, _, inner in subschemas(schema)]

    def _register_identifiers(self, schema: Schema, base: str) -> str:
        """Register the schema's identifiers; return the base URI of its subschemas."""
        for keyword in ("$id", "id"):
            name = schema.get(keyword)
            if isinstance(name, str) and not (keyword == "id" and "$id" in schema):
                uri = _join(base, name)
                self._by_uri[uri] = schema
                if not name.startswith("#"):
                    base = urldefrag(uri).url
                    self._by_uri[base] = schema
        for keyword in ("$anchor", "$dynamicAnchor"):
            name = schema.get(keyword)
            if isinstance(name, str):
                self._by_uri[f"{base}#{name}"] = schema
                if keyword == "$dynamicAnchor":
                    self.dynamic.setdefault(name, []).append(schema)
        return base

    def resource(self, schema: Schema) -> Any:
        """Return the root of the document that contains `schema`.

        An embedded document counts as a document of its own.
        """
        return self._by_uri.get(self._base.get(id(schema), ""))

    def target(self, reference: str, schema: Schema) -> Any | None:
        """Return the schema or boolean that `reference` means in `schema`, or `METASCHEMA`.

        Return None if it is not in the document.
        """
        uri = _join(self._base.get(id(schema), ""), reference)
        document, fragment = urldefrag(uri)
        if uri in self._by_uri:
            return self._by_uri[uri]
        if document in self._by_uri:
            return self._by_uri[document] if not fragment else self._inside(document, fragment)
        return METASCHEMA if document.startswith(_METASCHEMAS) else None

    def _inside(self, document: str, fragment: str) -> Any | None:
        if not fragment.startswith("/"):
            return None
        found, base = self._by_uri[document], document
        for step in unquote(fragment)[1:].split("/"):
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and step in found:
                found = found[step]
            elif isinstance(found, list) and step.isdigit() and int(step) < len(found):
                found = found[int(step)]
            else:
                return None
            base = self._base.get(id(found), base) if isinstance(found, dict) else base
        if isinstance(found, dict):
            self._base.setdefault(id(found), base)
        return found if isinstance(found, (dict, bool)) else None


def _join(base: str, reference: str) -> str:
    """Join URIs as RFC 3986 specifies. Unlike `urljoin`, this also works for bases such as `urn:`."""
    if reference.startswith("#"):
        return urldefrag(base).url + reference if reference != "#" else urldefrag(base).url
    return urljoin(base, reference)
