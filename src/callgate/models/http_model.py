"""A model over HTTP: its API's codec writes the request, the transport sends it, and the answer is decoded event by event.

Holds no conversation, so that any number of conversations may share one model. An error that the provider reports becomes `Fault` and
`Finished`; a missing answer is raised. Knows no provider by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec

from callgate._run_in_thread import in_thread
from callgate.models._credential_redaction import SecretRedactor
from callgate.models._deadlines import RequestDeadlines, RequestInterrupted
from callgate.models._error_messages import describe_error_response, is_html, is_miswritten_call, unexpected_body_message
from callgate.models.http_transport import HttpStatusError, OutgoingRequest, ResponseBody, Transport
from callgate.models.model_events import Fault, Finished, ModelEvent
from callgate.models.model_protocol import StreamingContext
from callgate.models.wire import codec
from callgate.models.wire.base_decoder import Decoder
from callgate.models.wire.request import ModelRequest
from callgate.models.wire.tool_names import WireNames

__all__ = ["HttpModel", "Signer"]

_THREAD_BYTES: Final = 262_144
"""Chunks from this size on are decoded in a thread."""
_EVENTS_PER_YIELD: Final = 64
"""Events that are yielded before the event loop gets a turn."""


class Signer(Protocol):
    """Authenticates each attempt of a request."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that must not appear in errors."""
        ...

    def __call__(self, request: OutgoingRequest) -> Mapping[str, str]:
        """Return the headers to add to this attempt."""
        ...


class HttpModel:
    """A provider's model, reached over HTTP.

    Make one with `model("openai:...")`. Use it on one event loop, in any number of conversations, and close it.

    Args:
        provider: The provider's name.
        name: The provider's name for the model.
        api: The API's name, which selects the codec.
        base_url: The URL that the codec's path is appended to.
        transport: Sends the requests.
        headers: Added to every request, credentials included; never shown.
        quirks: The differences of this server from the API, for the codec.
        native_tools: Whether tools and calls are sent in the API's own fields.
        key_name: The environment variable of the key, for errors.
        signer: Returns the authentication headers of each attempt, for services without a fixed header.
    """

    def __init__(
        self,
        provider: str,
        name: str,
        *,
        api: str,
        base_url: str,
        transport: Transport,
        headers: Mapping[str, str] = {},
        quirks: Mapping[str, object] = {},
        native_tools: bool = True,
        key_name: str = "",
        signer: Signer | None = None,
    ) -> None:
        self.provider = provider
        self.name = name
        self.native_tools = native_tools
        self._codec = codec(api)
        self._base_url = base_url.rstrip("/")
        self._transport = transport
        self._headers = {"user-agent": "callgate", "content-type": "application/json"}
        self._headers |= {name.lower(): value for name, value in headers.items()}
        self._server = _server(self._base_url)
        self._quirks = {**quirks, "server": self._server}
        self._key_name = key_name
        self._signer = signer
        self._redactor = SecretRedactor.from_headers(headers, signer.secrets if signer is not None else ())

    def __repr__(self) -> str:
        return f"<HttpModel {self.provider}:{self.name}>"

    async def stream(self, request: ModelRequest, context: StreamingContext) -> AsyncIterator[ModelEvent]:
        """Answer once. Ends with `Finished`; its reason is `cut` if the connection broke or the pass was aborted before the message's end.

        Raises:
            ModelTimeout: A deadline passed.
            ModelUnreachable: There was no answer, even after all retries.
            UsageError: The request cannot be sent as it is.
        """
        names = self._codec.wire_names(tool.name for tool in request.tools)
        outgoing = self._encode_request(request, names)
        with RequestDeadlines(self._transport.timeouts.for_stream(context.silence_s), context.abort_signal) as deadlines:
            try:
                body = await self._transport.open(outgoing, deadlines, context.beat)
            except HttpStatusError as status_error:
                for event in self._status_error_events(status_error):
                    yield event
                return
            except RequestInterrupted as interrupted:
                for event in self._interrupted_events(interrupted, outgoing, self._codec.decoder()):
                    yield event
                return
            decoder = self._codec.decoder(
                content_type=body.content_type,
                streamed=request.stream,
                names=names,
                calls_per_message=request.calls_per_message,
                redact=self._redactor.redact,
                server=self._server,
            )
            answer = _DecodedBody(body, decoder, partial(self._end_of_body_events, decoder, body, outgoing))
            try:
                while not answer.has_ended:
                    for number, event in enumerate(await answer.next_events(context.beat), 1):
                        yield event if type(event) is not Fault else self._redact_fault(event)
                        if number % _EVENTS_PER_YIELD == 0:
                            await asyncio.sleep(0)
            except RequestInterrupted as interrupted:
                for event in self._interrupted_events(interrupted, outgoing, decoder):
                    yield event
            finally:
                await body.close(drain=decoder.done)

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._transport.close()

    def _encode_request(self, request: ModelRequest, names: WireNames) -> OutgoingRequest:
        if not request.model:
            request = msgspec.structs.replace(request, model=self.name)
        encoded = self._codec.encode(request, names, self._quirks)
        return OutgoingRequest(
            url=self._base_url + encoded.path,
            body=encoded.body,
            headers={**encoded.headers, **self._headers},
            method=encoded.method,
            redactor=self._redactor,
            sign=self._signer,
        )

    def _status_error_events(self, status_error: HttpStatusError) -> list[ModelEvent]:
        error = describe_error_response(
            self.provider,
            status_error.status,
            status_error.body,
            key_name=self._key_name,
            location=status_error.headers.get("location", ""),
            redactor=self._redactor,
        )
        decoder = self._codec.decoder()
        decoder.message.add_fault(error.code, error.message, retryable=status_error.retryable or is_miswritten_call(error.code))
        return decoder.close()

    def _end_of_body_events(self, decoder: Decoder, body: ResponseBody, outgoing: OutgoingRequest) -> list[ModelEvent]:
        """Return the events that the end of the body completes."""
        broken = body.broken
        if body.error:
            error_text = self._redactor.redact_and_truncate(body.error, 500)
            decoder.message.add_fault("bad_frame", f"{self.provider}: the rest of the answer cannot be read ({error_text}).")
        elif is_html(body.first) or not (body.broken or decoder.done or not decoder.message.is_empty):
            address = outgoing.origin + urlsplit(self._base_url).path
            text = unexpected_body_message(
                self.provider, address, self._codec.api, body.status, body.content_type, body.first, self._redactor
            )
            if text:
                decoder.message.add_fault("no_answer", text)
                broken = True
        return [self._redact_fault(event) for event in decoder.close(broken=broken)]

    def _interrupted_events(self, interrupted: RequestInterrupted, outgoing: OutgoingRequest, decoder: Decoder) -> list[ModelEvent]:
        """Return the last events of an aborted pass; raise `ModelTimeout` if a deadline passed instead."""
        if interrupted.deadline is not None:
            raise self._transport.timeout_error(interrupted.deadline, interrupted.limit_s, outgoing) from None
        return [self._redact_fault(event) for event in decoder.close(broken=True)]

    def _redact_fault(self, event: ModelEvent) -> ModelEvent:
        """Remove secrets from a fault: a provider may repeat what it received."""
        if isinstance(event, Fault):
            return msgspec.structs.replace(event, code=self._redactor.redact(event.code), message=self._redactor.redact(event.message))
        if isinstance(event, Finished) and event.fault is not None:
            return msgspec.structs.replace(event, fault=self._redact_fault(event.fault))
        return event


class _DecodedBody:
    """Reads the body of a response and decodes it.

    Args:
        end_of_body: Returns the events that the end of the body completes.
    """

    def __init__(self, body: ResponseBody, decoder: Decoder, end_of_body: Callable[[], list[ModelEvent]]) -> None:
        self._body = body
        self._decoder = decoder
        self._end_of_body = end_of_body
        self._size_bytes = 0
        self.has_ended = False
        """Whether all events were returned."""

    async def next_events(self, beat: Callable[[], None]) -> list[ModelEvent]:
        """Return the events of the next bytes. At the end of the body, or of the message in it, return the last ones.

        Args:
            beat: Called when bytes have arrived.

        Raises:
            RequestInterrupted: A deadline has passed, or the request was aborted.
        """
        data = b"" if self._decoder.done else await self._body.read()
        if data:
            beat()
            self._size_bytes += len(data)
            if not is_html(self._body.first):
                return await _run_decoder(self._decoder.waiting_bytes + len(data), partial(self._decoder.feed, data))
        self.has_ended = True
        return await _run_decoder(self._size_bytes, self._end_of_body)


async def _run_decoder(size_bytes: int, work: Callable[[], list[ModelEvent]]) -> list[ModelEvent]:
    """Run `work`, which decodes `size_bytes` bytes. Use a thread if that may take long: a frame may have 64 MiB."""
    return await in_thread(work) if size_bytes >= _THREAD_BYTES else work()


def _server(base_url: str) -> str:
    """Return the name of the server behind a URL: its domain without subdomains, or host and port where there is no domain."""
    at = urlsplit(base_url)
    labels = (at.hostname or "").split(".")
    return ".".join(labels[-2:]) if len(labels) > 1 and not labels[-1].isdigit() else at.netloc.rpartition("@")[2]
