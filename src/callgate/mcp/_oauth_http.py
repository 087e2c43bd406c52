"""The HTTP requests to authorization servers: metadata, registration and tokens.

Small JSON documents, each fetched once, without redirects and within bounds. The host's name is looked up once, and the connection goes to
the address that was checked. httpx2's transport is used without its client, which would log addresses. An error names the address and
never what was sent.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

from callgate.mcp._oauth_addresses import AllowedAddresses, Unreachable, Untrusted, checked_address
from callgate.models._connection_closing import close_without_waiting
from callgate.models._credential_redaction import SecretRedactor, redact_url
from callgate.models._http_clients import create_client, import_httpx2, tls_context

__all__ = ["AuthorizationRefused", "OAuthHttp"]

_TIMEOUT_S = 20.0
_MAX_BYTES = 1_000_000
_MOST_ERROR_CHARS = 300
_OAUTH_ERRORS = (400, 401, 403)
_PASSING = (408, 425, 429)
_PASSING_ERRORS = ("temporarily_unavailable", "server_error")
_SECRET_FIELDS = ("code", "code_verifier", "refresh_token", "client_secret")


class AuthorizationRefused(Untrusted):
    """The authorization server has refused a request, with an error of OAuth."""


class OAuthHttp:
    """Sends the requests of one authorization. `async with` opens and closes it.

    Args:
        allowed: The addresses that may be asked.
    """

    def __init__(self, allowed: AllowedAddresses) -> None:
        self.allowed = allowed

    async def __aenter__(self) -> Self:
        httpx2 = import_httpx2()
        self._client: Any = create_client(lambda: httpx2.AsyncClient(verify=tls_context()))
        close_without_waiting(self._client)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._client.aclose()

    async def first_document(self, addresses: list[str]) -> dict[str, Any]:
        """Return the first JSON object among these places.

        Raises:
            Untrusted: There is none, or a place may not be asked.
            Unreachable: A place cannot be asked now.
        """
        for address in addresses:
            status, found = await self._send("GET", checked_address(address, "address of metadata"))
            if status == 200 and found:
                return found
            _check_available(address, status)
        raise Untrusted(f"there are no metadata at {' or '.join(map(redact_url, addresses))}")

    async def post_form(self, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> dict[str, Any]:
        """Return the JSON object with which a form is answered.

        Raises:
            AuthorizationRefused: The form is refused.
            Unreachable: The authorization server cannot be asked now.
            Untrusted: The answer is not one of OAuth, or the address may not be asked.
        """
        kind = {"content-type": "application/x-www-form-urlencoded"}
        status, found = await self._send("POST", url, {**kind, **headers}, urlencode(form).encode())
        secret = SecretRedactor.from_headers(headers, [form[name] for name in _SECRET_FIELDS if name in form])
        return _check_answer(url, status, found, secret)

    async def post_json(self, url: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the JSON object with which another is answered; see `post_form`."""
        status, found = await self._send("POST", url, {"content-type": "application/json"}, json.dumps(body).encode())
        return _check_answer(url, status, found, SecretRedactor())

    async def _send(self, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> tuple[int, dict[str, Any]]:
        """Return the status and the JSON object of a response; the object is empty if there is none."""
        httpx2 = import_httpx2()
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                status, answer = await self._exchange(method, url, headers or {}, body)
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, RuntimeError) as error:  # OSError: TimeoutError as well
            raise Unreachable(f"{redact_url(url)} cannot be asked ({type(error).__name__})") from error
        try:
            found = json.loads(answer)
        except (ValueError, RecursionError):
            found = None
        return status, found if isinstance(found, dict) else {}

    async def _exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        httpx2 = import_httpx2()
        address = httpx2.URL(url)
        transport = self._client._transport_for_url(address)
        options: dict[str, Any] = {"headers": {"accept": "application/json", "accept-encoding": "identity", **headers}, "content": body}
        if transport is not self._client._transport:  # a proxy looks up the name
            self.allowed.check(url)
            return await _read(transport, httpx2.Request(method, address, **options), url)
        places = await self.allowed.addresses(url)
        if not places:
            return await _read(transport, httpx2.Request(method, address, **options), url)
        options["headers"]["host"] = address.netloc.decode("ascii")
        options["extensions"] = {"sni_hostname": address.host}
        for place in places[:-1]:
            try:
                return await _read(transport, httpx2.Request(method, address.copy_with(host=place), **options), url)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                continue
        return await _read(transport, httpx2.Request(method, address.copy_with(host=places[-1]), **options), url)


async def _read(transport: Any, request: Any, url: str) -> tuple[int, bytes]:
    """Send a request and return the status and the body of its response.

    Raises:
        Untrusted: The body is too large or compressed.
    """
    response = await transport.handle_async_request(request)
    try:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise Untrusted(f"{redact_url(url)} answered in an encoding that was not asked for")
        body = bytearray()
        async for chunk in response.stream:
            body += chunk
            if len(body) > _MAX_BYTES:
                raise Untrusted(f"{redact_url(url)} answered more than {_MAX_BYTES} bytes")
        return int(response.status_code), bytes(body)
    finally:
        await response.aclose()


def _check_available(url: str, status: int) -> None:
    if status >= 500 or status in _PASSING:
        raise Unreachable(f"{redact_url(url)} answered {status}. Ask again later")


def _check_answer(url: str, status: int, found: dict[str, Any], secret: SecretRedactor) -> dict[str, Any]:
    if status in (200, 201) and found:
        return found
    _check_available(url, 503 if found.get("error") in _PASSING_ERRORS else status)
    said = secret.redact(": ".join(str(found[name]) for name in ("error", "error_description") if name in found))[:_MOST_ERROR_CHARS]
    refused = status in _OAUTH_ERRORS and isinstance(found.get("error"), str)
    raise (AuthorizationRefused if refused else Untrusted)(f"{redact_url(url)} answered {status}{f' and says {said!a}' if said else ''}")
