"""Read and search results that were too large to show in full.

The engine shows the beginning and the end of such a result, and stores the whole under its hash. These tools take that
hash and read from one blob store. A call for a principal reads only results of that principal's calls. They return at most one page, so
that their own results are not cut.
"""

from __future__ import annotations

from contextlib import ExitStack

from msgspec import MsgspecError

from callgate import _json
from callgate._blob_store import is_digest
from callgate._owned_results import owned_result
from callgate.builtins._text_pages import PAGE_BYTES, cut, decode_text, snippet
from callgate.builtins._text_search import make_finder
from callgate.builtins._tool_failures import CannotDo, Result, failures_as_results
from callgate.protocols import BlobStore
from callgate.tools import Tool, ToolContext, tool

__all__ = ["ResultTools"]

_AROUND = 100
_MOST = 100
_KEYS = 100


class ResultTools:
    """The tools `read_result` and `search_result` for one blob store."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs

    def tools(self) -> list[Tool]:
        return [
            tool(category="safe_chain", effect="none", reads="blob:{digest}")(self.read_result),
            tool(category="safe_chain", effect="none", reads="blob:{digest}")(self.search_result),
        ]

    @failures_as_results
    def read_result(self, context: ToolContext, digest: str, offset: int = 0, limit: int = 8000, pointer: str | None = None) -> Result:
        """Read more of a result that was cut, a page at a time.

        Args:
            digest: The hash that the cut result names.
            offset: How many characters to skip; continue with the `next_offset` of the page before.
            limit: How many characters to return at most. A page also ends at 12,000 bytes.
            pointer: For a JSON result: read only this part of it, as a JSON pointer like `/items/3/name`.
        """
        text = self._text(digest, context.principal)
        result: Result = {"digest": digest}
        if pointer is not None:
            part = _at(_parse(text), pointer)
            result |= {"pointer": pointer} | _shape(part)
            text = _json.canonical(part).decode()
        start = max(0, offset)
        shown = cut(text[start : start + max(1, limit)], PAGE_BYTES)
        after = start + len(shown)
        return result | {"text": shown, "offset": start, "next_offset": after if after < len(text) else None, "total_chars": len(text)}

    @failures_as_results
    def search_result(
        self,
        context: ToolContext,
        digest: str,
        query: str,
        regex: bool = False,
        ignore_case: bool = False,
        max_matches: int = 20,
        context_chars: int = _AROUND,
    ) -> Result:
        """Find text in a result that was cut.

        Each match has its line, the text around it, and its `offset` for read_result.

        Args:
            digest: The hash that the cut result names.
            query: The text to find, or a regular expression if `regex` is set.
            regex: Treat `query` as a Python regular expression. Stopped after 10 seconds of matching.
            ignore_case: Ignore the difference between upper and lower case.
            max_matches: The maximum number of matches to return, up to 100.
            context_chars: How many characters to show before and after each match, up to 1000.
        """
        text = self._text(digest, context.principal)
        if not query:
            raise CannotDo("`query` is empty. Give the text to find, or read the result with read_result.")
        most, around = max(1, min(max_matches, _MOST)), max(0, min(context_chars, 1000))
        with ExitStack() as stack:
            spans = make_finder(query, regex=regex, ignore_case=ignore_case, stack=stack)(text, most + 1)
        matches: list[Result] = []
        size, line, counted = 0, 1, 0
        for start, end in spans[:most]:
            line, counted = line + text.count("\n", counted, start), start
            shown = snippet(text, start, min(end, start + 1000), around)
            size += len(shown.encode("utf-8", "replace"))
            if size > PAGE_BYTES:
                break
            matches.append({"offset": start, "line": line, "text": shown})
        return {"digest": digest, "matches": matches, "truncated": len(matches) < len(spans)}

    def _text(self, digest: str, principal: str) -> str:
        """Return the whole result.

        Raises:
            CannotDo: The principal has no result with this hash.
        """
        name = digest.strip().removeprefix("sha256:").lower()
        data = owned_result(self._blobs, name, principal) if is_digest(name) else None
        if data is None:
            what = "is not a hash (64 hex digits)" if not is_digest(name) else "is not the hash of a stored result"
            raise CannotDo(f"{cut(digest, 80)!r} {what}. Copy it from the cut result's own text, or call the tool again for a new result.")
        return decode_text(data)[0]


def _parse(text: str) -> object:
    try:
        value: object = _json.decode(text)
    except (ValueError, MsgspecError, RecursionError) as error:
        raise CannotDo("This result is not JSON, so it has no pointers. Read it by offset, or use search_result.") from error
    return value


def _at(value: object, pointer: str) -> object:
    """Return the part of `value` that a JSON pointer (RFC 6901) refers to."""
    if pointer and not pointer.startswith("/"):
        raise CannotDo(
            f"{cut(pointer, 80)!r} is not a JSON pointer. Begin with '/', as in '/items/3'; an empty pointer means the whole result."
        )
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isascii() and key.isdecimal() and int(key[:9]) < len(value):
            value = value[int(key[:9])]
        else:
            raise CannotDo(f"The result has nothing at {cut(pointer, 200)!r}: no {cut(key, 80)!r} in {_kind(value)}. {_offer(value)}")
    return value


def _shape(value: object) -> Result:
    if isinstance(value, dict):
        return {"kind": "object", "keys": [cut(str(key), 80) for key in list(value)[:_KEYS]], "length": len(value)}
    if isinstance(value, list):
        return {"kind": "array", "length": len(value)}
    return {"kind": _kind(value)}


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case dict():
            return "an object"
        case _:
            return f"an array of {len(value)}" if isinstance(value, list) else "a value"


def _offer(value: object) -> str:
    if isinstance(value, dict):
        return f"Its keys: {', '.join(cut(str(key), 40) for key in list(value)[:20])}."
    return "Go one step up."
