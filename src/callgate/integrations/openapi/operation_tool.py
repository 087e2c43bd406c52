"""A tool that sends the request of one operation.

The engine's deadline and kill signal cancel the request and close its connection. Without a client of the host's own, each request has a
new connection, so that none fails because a server has closed an idle one. Credentials are added when a request is sent, and removed from
what the server answers; the arguments, the journal and errors never contain them.
"""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from callgate._json import type_name
from callgate._run_in_thread import in_thread
from callgate.calls import Effect
from callgate.errors import CallgateError, NotDone, Retryable, UsageError
from callgate.integrations.openapi.operations import Operation
from callgate.integrations.openapi.request import Request, find_unsendable, make_request
from callgate.integrations.openapi.response import MAX_BODY_BYTES, BodyFault, RequestFailed, Response, make_result
from callgate.models._connection_closing import close_without_waiting
from callgate.models._credential_redaction import SecretRedactor
from callgate.models._http_clients import create_client, describe_cause, tls_context
from callgate.protocols import Execution
from callgate.tools import Tool, ToolContext, ValidationResult
from callgate.tools.attribute_options import set_options
from callgate.tools.effect_evidence import evidence_of

if TYPE_CHECKING:
    import httpx2

__all__ = [
    "Headers",
    "OperationTool",
    "Server",
    "check_header_name",
    "check_headers",
    "check_texts",
    "import_httpx2",
    "refuse_second_authorization",
]

HeadersFunction = Callable[[ToolContext], Mapping[str, str] | Awaitable[Mapping[str, str]]]
Headers = Mapping[str, str] | HeadersFunction
"""Headers for every request, or a function of the running call that returns them."""

_CONNECT_S = 10.0
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Server(Struct, frozen=True, kw_only=True):
    """Where the requests of a document's tools go, and what the host adds to them."""

    base_url: str
    headers: Headers
    query: str
    """Escaped pairs that are added to each query."""
    secrets: tuple[str, ...]
    """Values that no result may contain, besides those of headers."""
    client: httpx2.AsyncClient | None
    idempotency_header: str | None


class OperationTool(Tool):
    """The tool of one operation."""

    wraps_result: ClassVar[bool] = True
    requires_actor = False
    runner = "inline"

    def __init__(self, operation: Operation, server: Server, name: str, effect: Effect, options: Mapping[str, Any]) -> None:
        self.operation = operation
        self.name, self.description = name, operation.description
        self.parameters = operation.schema
        self.category = "safe_chain"
        self.effect = effect
        self._server = server
        set_options(self, options)

    def validate_parameters(self, params: dict[str, Any]) -> ValidationResult:
        found = super().validate_parameters(params)
        errors = find_unsendable(self.operation, found.cleaned_params) if found.valid else []
        return ValidationResult(valid=False, errors=errors) if errors else found

    def invoke(self, context: ToolContext, arguments: dict[str, Any]) -> object:
        return self._send(context, make_request(self.operation, arguments))

    async def execute(self, actor: str, **params: Any) -> dict[str, Any]:
        raise UsageError(f"{self.name} is called by an engine, which gives it the context of the call.")

    def where(self) -> str:
        return f"{self.operation.label} of the OpenAPI document"

    def not_done_advice(self, exception: str) -> str:
        if self.effect != "once":
            return "The server may have acted on any of the requests."
        return f"If the same request may be sent twice, declare that: effects={{'{self.operation.label}': 'idempotent'}}."

    async def _send(self, context: ToolContext, request: Request) -> object:
        try:
            headers = await self._headers(context)
        except NotDone:
            raise
        except Exception as error:
            return self._headers_failure(error)
        hidden = self._redactor_for(headers)
        try:
            response = await self._answer(request, headers)
        except Exception as error:
            return self._failure(error, hidden)
        return make_result(self.operation.label, request.path, response, self.effect or "once", time.time())

    def _redactor_for(self, headers: Mapping[str, str]) -> SecretRedactor:
        """Return the redactor of what the host sends with these headers."""
        client = self._server.client
        return SecretRedactor.from_headers(
            {**({} if client is None else {**client.params, **client.headers}), **headers}, self._server.secrets
        )

    async def _headers(self, context: ToolContext) -> dict[str, str]:
        given = self._server.headers
        headers = dict(await self._call_headers_function(given, context) if callable(given) else given)
        refuse_second_authorization(headers, self._server.base_url)
        name = self._server.idempotency_header
        if name is not None and self.effect != "none":
            headers[name] = context.idempotency_key
        return headers

    async def _call_headers_function(self, function: HeadersFunction, context: ToolContext) -> Mapping[str, str]:
        found = function(context) if _is_async(function) else await in_thread(lambda: function(context))
        headers = await found if inspect.isawaitable(found) else found
        check_headers(headers, f"The function headers of tool '{self.name}'")
        return headers

    def _headers_failure(self, error: Exception) -> Execution:
        """Return the execution of a call whose headers the host's function did not return."""
        why = str(error).rstrip(".") if isinstance(error, CallgateError) else f"{type_name(error)}: {error}"
        passing = evidence_of(error) in ("not_sent", "reply_lost")
        return replace(
            _not_sent(f"{self.operation.label}: the host's function headers failed ({why}). The request was not sent", retryable=passing),
            not_started=passing,
            retry_after_s=error.retry_after_s if isinstance(error, Retryable) else None,
        )

    async def _answer(self, request: Request, headers: Mapping[str, str]) -> Response:
        server = self._server
        query = "&".join(filter(None, (request.query, server.query)))
        url = f"{self.operation.base_url}{request.path}{'?' + query if query else ''}"
        async with _open(server.client) as client:
            named = {"Accept": "application/json, text/*;q=0.9, */*;q=0.8"} | request.headers
            sent = client.build_request(request.method, url, headers=_merge(named, headers), content=request.content)
            response = await client.send(sent, stream=True, follow_redirects=False)
            try:
                body, fault = await _read(response)
            finally:
                await response.aclose()
        # The client may have made this header itself, from a user and a password.
        hidden = self._redactor_for({**headers, "Authorization": response.request.headers.get("Authorization", "")})
        text_headers = {name.lower(): hidden.redact(value) for name, value in response.headers.items()}
        return Response(status=response.status_code, headers=text_headers, body=_redact(body, hidden), fault=fault, redact=hidden.redact)

    def _failure(self, error: Exception, hidden: SecretRedactor) -> Execution:
        """Return the execution of a call whose request got no response. It says whether the request may have been sent.

        Its text is not that of a client's error, which may contain a header.
        """
        label, why = self.operation.label, hidden.redact(describe_cause(error))
        if evidence_of(error) == "not_sent":
            return _not_sent(f"{label}: no connection to the server ({why}). The request was not sent", retryable=True)
        if type_name(error) in ("LocalProtocolError", "InvalidURL", "UnsupportedProtocol"):
            text = f"{label}: the request cannot be written in HTTP ({type_name(error)}). The request was not sent"
            return _not_sent(text, retryable=False)
        return Execution(
            status="raised",
            error_type=RequestFailed.__name__,
            error=f"{label}: the connection broke, or the server did not answer ({type_name(error)}: {why})",
            evidence="reply_lost",
            retryable=True,
        )


def _is_async(function: HeadersFunction) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _not_sent(text: str, *, retryable: bool) -> Execution:
    """Return the execution of an attempt without a request. It proves nothing of earlier attempts, unlike `NotDone`."""
    return Execution(status="raised", error_type="NotSent", error=text, evidence="not_sent", retryable=retryable)


def _merge(ours: Mapping[str, str], hosts: Mapping[str, str]) -> dict[str, str]:
    """Return all headers; those of the host replace others of the same name."""
    given = {name.lower() for name in hosts}
    return {**{name: value for name, value in ours.items() if name.lower() not in given}, **hosts}


@asynccontextmanager
async def _open(client: httpx2.AsyncClient | None) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield the host's client, or a new one for one request, which the engine's deadline ends."""
    if client is not None:
        yield client
        return
    httpx = import_httpx2()
    timeout = httpx.Timeout(None, connect=_CONNECT_S)
    made: Any = create_client(lambda: httpx.AsyncClient(verify=tls_context(), timeout=timeout, follow_redirects=False))
    close_without_waiting(made)
    async with made:
        yield made


async def _read(response: httpx2.Response) -> tuple[bytes, BodyFault]:
    """Return the body, and what is wrong with it."""
    body = bytearray()
    try:
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > MAX_BODY_BYTES:
                return bytes(body[:MAX_BODY_BYTES]), "cut"
    except import_httpx2().DecodingError:  # the server has answered, so this is not a broken connection
        return b"", "undecodable"
    return bytes(body), ""


def _redact(body: bytes, hidden: SecretRedactor) -> bytes:
    """Return the body without the host's credentials, which a server may echo. Latin-1 keeps every byte."""
    return hidden.redact(body.decode("latin-1")).encode("latin-1")


def check_headers(headers: object, owner: str) -> None:
    """Raise if headers cannot be sent. The error names the header, never its value.

    Raises:
        UsageError: They are not what `check_texts` demands, or a name is not made of the characters that HTTP allows.
    """
    for name, value in check_texts(headers, owner).items():
        check_header_name(name, owner)
        if value != value.strip():
            raise UsageError(
                f"{owner}: the value of header {name!r:.80} begins or ends with a blank, which HTTP drops. Is a token missing in it?"
            )


def refuse_second_authorization(headers: Mapping[str, str], base_url: str) -> None:
    """Raise if both the URL and the headers have credentials, because the client would send only those of the URL.

    Raises:
        UsageError: The URL has a user, and a header is `Authorization`.
    """
    if urlsplit(base_url).username is not None and any(name.lower() == "authorization" for name in headers):
        raise UsageError(
            "The server's URL has a user, whose credentials would replace the header Authorization. Leave the user out of the URL, or the"
            " header."
        )


def check_texts(texts: object, owner: str) -> Mapping[str, str]:
    """Return the host's own headers or query parameters, if their values can be sent. An error names the header, never its value.

    Raises:
        UsageError: They are not a mapping of texts, or a value is not one line of printable ASCII.
    """
    if not isinstance(texts, Mapping):
        raise UsageError(f"{owner} must be a mapping of names to texts, or a function that returns one; got {type_name(texts)}.")
    for name, value in texts.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise UsageError(f"{owner}: header {name!r:.80} and its value must be text.")
        if not (value.isascii() and value.isprintable()):
            raise UsageError(f"{owner}: the value of header {name!r:.80} must be one line of printable ASCII.")
    return texts


def check_header_name(name: object, owner: str) -> None:
    """Raise if this cannot be the name of a header.

    Raises:
        UsageError: It is not made of the characters that HTTP allows.
    """
    if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
        raise UsageError(f"{owner}: {name!r:.80} cannot be the name of a header. Take letters, digits and '-', as in 'X-Api-Key'.")


def import_httpx2() -> Any:
    """Import httpx2, so that it is loaded with the first request only.

    Raises:
        UsageError: It is not installed.
    """
    try:
        import httpx2
    except ImportError as error:
        raise UsageError(
            "Tools of an OpenAPI document need httpx2, which is not installed. Run: pip install 'callgate[models]'."
        ) from error
    return httpx2
