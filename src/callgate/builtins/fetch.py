"""`fetch_url`: fetch a page from a public address only.

The URL of each redirect is parsed strictly, its host name is resolved once, every address is checked, and the
connection is made to a checked address. So a name cannot resolve to a public address for the check and to a private one
for the connection. Nothing is rendered. The response is untrusted data.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from email.message import Message

from callgate.builtins._http_get import Connect, HttpResponse, connect_tcp, get
from callgate.builtins._text_pages import decode_text, is_binary
from callgate.builtins._tool_failures import CannotDo, Result, failure_result
from callgate.builtins._urls import AllowedHosts, FetchTarget, follow_redirect, parse
from callgate.errors import Retryable
from callgate.tools import Tool, ToolContext, tool

__all__ = ["Fetcher", "Resolve", "resolve_system"]

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""`(name, port) -> addresses`, best first."""

_MAX_BYTES = 16_777_216
_MAX_REDIRECTS = 10
_MAX_ADDRESSES = 32
_TRIED = 3
_DEADLINE_S = 30.0
_TEXT = ("text/", "application/json", "application/xml", "application/javascript", "application/x-ndjson", "application/yaml")
_CHARSETS = ("utf", "iso8859", "cp125", "cp437", "cp850", "ascii", "latin", "shift_jis", "euc_", "gb", "big5", "koi8", "iso2022")


async def resolve_system(name: str, port: int) -> Sequence[str]:
    """Return the addresses from the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(item[4][0]) for item in found))


class Fetcher:
    """Fetches pages.

    Args:
        allow: Addresses allowed in addition to public ones; see `AllowedHosts`.
        resolve: Resolves names.
        connect: Connects to an address.
        deadline_s: Limit of one fetch with all its redirects.
    """

    def __init__(
        self,
        *,
        allow: Iterable[str] = (),
        resolve: Resolve = resolve_system,
        connect: Connect = connect_tcp,
        deadline_s: float = _DEADLINE_S,
    ) -> None:
        self._allowed = AllowedHosts(allow)
        self._resolve = resolve
        self._connect = connect
        self._deadline_s = deadline_s

    def tool(self) -> Tool:
        return tool(category="async_required", effect="none", reads="url:{url}", content_key="text")(self.fetch_url)

    async def fetch_url(self, context: ToolContext, url: str, max_bytes: int = 1_000_000) -> Result:
        """Get a page or file from the web by its http or https URL.

        Follows redirects; only public addresses can be reached.

        A response with any status is a result. Text is returned as the server sent it (HTML is not rendered); of other
        content, only the size is returned.

        Args:
            url: The whole URL, without user name or password.
            max_bytes: Stop reading the body after this many bytes, at most 16 MiB.
        """
        try:
            async with asyncio.timeout(self._deadline_s):
                return await self._fetch(context, url, max(1, min(max_bytes, _MAX_BYTES)))
        except TimeoutError:
            return failure_result(CannotDo(f"The page did not arrive within {self._deadline_s:g} s. Try another source, or later."))
        except CannotDo as error:
            return failure_result(error)

    async def _fetch(self, context: ToolContext, url: str, max_bytes: int) -> Result:
        target = parse(url)
        for hops in range(_MAX_REDIRECTS + 1):
            response = await self._ask(target, max_bytes)
            location = response.headers.get("Location")
            if response.status not in (301, 302, 303, 307, 308) or not location:
                return _result(target, response, hops)
            target = follow_redirect(target, location)
            why = await context.refusal(url=target.url)
            if why:
                raise CannotDo(f"The page redirects to {target.url[:200]!a}, which is not fetched: {why}")
        raise CannotDo(f"The URL redirects more than {_MAX_REDIRECTS} times. Use the page's final URL.")

    async def _ask(self, target: FetchTarget, max_bytes: int) -> HttpResponse:
        addresses = await self._addresses(target)
        for last, address in enumerate(addresses[:_TRIED], start=1):
            try:
                return await get(target, address, connect=self._connect, max_bytes=max_bytes)
            except Retryable as error:
                if not error.not_started or last == min(len(addresses), _TRIED):
                    raise
        raise CannotDo(f"{target.host} has no address.")

    async def _addresses(self, target: FetchTarget) -> list[str]:
        """Return the host's addresses. Raise `CannotDo` if any of them is not allowed."""
        if target.address is not None:
            found: Sequence[str] = [str(target.address)]
        else:
            try:
                found = await self._resolve(target.host, target.port)
            except (OSError, UnicodeError) as error:
                raise CannotDo(f"{target.host} has no address: the name does not exist or cannot be resolved. Check the URL.") from error
        if not 0 < len(found) <= _MAX_ADDRESSES:
            raise CannotDo(f"{target.host} has {len(found)} addresses; from 1 to {_MAX_ADDRESSES} can be used. Use another source.")
        if not all(_may_reach(self._allowed, target, address) for address in found):
            raise CannotDo(
                f"{target.host} is not on the public internet, so it is not fetched. Use a public URL, or ask for access to be set up."
            )
        return list(found)


def _may_reach(allowed: AllowedHosts, target: FetchTarget, text: str) -> bool:
    try:
        return allowed.reaches(target, ipaddress.ip_address(text))
    except ValueError:
        return False


def _result(target: FetchTarget, response: HttpResponse, hops: int) -> Result:
    headers = response.headers
    result: Result = {"url": target.url, "status": response.status, "content_type": headers.get("Content-Type") or ""}
    result |= {"bytes": len(response.body), "truncated": response.truncated, "redirects": hops}
    if _is_text(headers, response.body):
        result |= {"text": _decode(headers, response.body), "mime": headers.get_content_type(), "note": _note(result)}
    else:
        result["note"] = "The content is not text, so it is not shown."
    return result


def _note(result: Result) -> str:
    """Return a note with the source, the status and whether the text is complete."""
    kind, cut = (
        result["content_type"] or "no content type",
        " Only its beginning is here: ask for more with max_bytes." if result["truncated"] else "",
    )
    return f"[{result['url']} answered with status {result['status']}, {kind}, {result['bytes']:,} bytes.{cut}]"


def _is_text(headers: Message, body: bytes) -> bool:
    kind = headers.get_content_type() if headers.get("Content-Type") else "text/plain"
    named = kind.startswith(_TEXT) or kind.endswith(("+json", "+xml"))
    return (named and "utf-16" in str(headers.get_content_charset() or "")) or (named and not is_binary(body))


def _decode(headers: Message, body: bytes) -> str:
    charset = str(headers.get_content_charset() or "utf-8").replace("-", "_").lower()
    known = charset.replace("iso_8859", "iso8859").replace("windows_", "cp")
    if known not in ("utf_8", "utf8") and known.startswith(_CHARSETS) and known != "utf_7":
        try:
            return body.decode(known, "replace")
        except LookupError:
            pass
    return decode_text(body)[0].removeprefix("\ufeff")
