"""Guess the media type of a text file from its name. Uses its own table, because the system's differs between machines. Pure."""

from __future__ import annotations

__all__ = ["mime_of"]

_KINDS = {
    "application/json": "json",
    "application/jsonl": "jsonl ndjson",
    "application/sql": "sql",
    "application/toml": "toml",
    "application/xml": "xml xsd xsl xslt",
    "application/yaml": "yaml yml",
    "image/svg+xml": "svg",
    "text/css": "css",
    "text/csv": "csv",
    "text/html": "html htm xhtml",
    "text/javascript": "js mjs cjs jsx",
    "text/markdown": "md markdown",
    "text/tab-separated-values": "tsv",
    "text/typescript": "ts tsx mts cts",
    "text/x-c": "c h",
    "text/x-c++": "cc cpp cxx hh hpp hxx",
    "text/x-csharp": "cs",
    "text/x-diff": "diff patch",
    "text/x-go": "go",
    "text/x-java": "java",
    "text/x-kotlin": "kt kts",
    "text/x-php": "php",
    "text/x-python": "py pyi pyw",
    "text/x-ruby": "rb",
    "text/x-rust": "rs",
    "text/x-scala": "scala",
    "text/x-sh": "sh bash zsh",
    "text/x-swift": "swift",
}
_BY_ENDING = {ending: mime for mime, endings in _KINDS.items() for ending in endings.split()}


def mime_of(path: str) -> str:
    """Return the media type of a text file; `text/plain` if the extension is unknown."""
    name = path.rpartition("/")[2]
    return _BY_ENDING.get(name.rpartition(".")[2].lower(), "text/plain") if "." in name else "text/plain"
