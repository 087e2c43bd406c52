"""The HTTP requests to authorization servers: metadata, registration and tokens.

Small JSON documents, each fetched once, without redirects and within bounds. An error names the address and never what was sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from callgate.mcp._oauth_metadata import Untrusted, checked_address, is_on_this_machine
from callgate.models._credential_redaction import redact_url
from callgate.models._http_clients import create_client, import_httpx2, tls_context

__all__ = ["OAuthHttp"]

_TIMEOUT_S = 20.0
_MAX_BYTES = 1_000_000
_MOST_ERROR_CHARS = 300


class OAuthHttp:
    """Sends the requests of one authorization. `async with` opens and closes it.

    Args:
        local: Whether addresses of this machine may be asked. A server elsewhere must not lead the client to them.
    """

    def __init__(self, *, local: bool) -> None:
        self._local = local

    async def __aenter__(self) -> Self:
        httpx2 = import_httpx2()
        self._client: Any = create_client(lambda: httpx2.AsyncClient(verify=tls_context(), timeout=_TIMEOUT_S, follow_redirects=False))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._client.aclose()

    async def first_document(self, addresses: list[str]) -> dict[str, Any]:
        """Return the first JSON object among these places.

        Raises:
            Untrusted: There is none, or a place may not be asked.
        """
        for address in addresses:
            status, found = await self._send("GET", checked_address(address, "address of metadata"))
            if status == 200 and found:
                return found
        raise Untrusted(f"there are no metadata at {' or '.join(map(redact_url, addresses))}")

    async def post_form(self, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> dict[str, Any]:
        """Return the JSON object with which a form is answered.

        Raises:
            Untrusted: The form is refused.
        """
        return self._accepted(url, *await self._send("POST", url, data=dict(form), headers=dict(headers)))

    async def post_json(self, url: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the JSON object with which another is answered; see `post_form`."""
        return self._accepted(url, *await self._send("POST", url, json=dict(body)))

    def _accepted(self, url: str, status: int, found: dict[str, Any]) -> dict[str, Any]:
        if status not in (200, 201) or not found:
            said = ": ".join(str(found[name]) for name in ("error", "error_description") if name in found)[:_MOST_ERROR_CHARS]
            raise Untrusted(f"{redact_url(url)} answered {status}{f' and says {said!r}' if said else ''}")
        return found

    async def _send(self, method: str, url: str, **options: Any) -> tuple[int, dict[str, Any]]:
        """Return the status and the JSON object of a response; the object is empty if there is none."""
        httpx2 = import_httpx2()
        if is_on_this_machine(url) and not self._local:
            raise Untrusted(f"it leads to {redact_url(url)}, which is on this machine")
        headers = {"accept": "application/json", **options.pop("headers", {})}
        try:
            async with self._client.stream(method, url, headers=headers, **options) as response:
                body = bytearray()
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > _MAX_BYTES:
                        raise Untrusted(f"{redact_url(url)} answered more than {_MAX_BYTES} bytes")
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise Untrusted(f"{redact_url(url)} cannot be asked ({type(error).__name__})") from error
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        return response.status_code, found if isinstance(found, dict) else {}
