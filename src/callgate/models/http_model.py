"""A model behind HTTP: a request written by its API's codec, sent by the transport, its answer read event by event.

Holds no conversation, so that any number of them may use one. What the provider reports is a `Fault` and `Finished`; that there was no
answer at all is raised. Knows no provider by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec

from callgate._in_thread import in_thread
from callgate.models._deadlines import RequestDeadlines, RequestInterrupted
from callgate.models._error_messages import describe_error_response, is_html, is_miswritten_call, unexpected_body_message
from callgate.models._secrets import SecretRedactor
from callgate.models.events import Fault, Finished, ModelEvent
from callgate.models.http import HttpStatusError, OutgoingRequest, ResponseBody, Transport
from callgate.models.model import StreamingContext
from callgate.models.wire import codec
from callgate.models.wire.decoder import Decoder
from callgate.models.wire.request import ModelRequest
from callgate.models.wire.tool_names import WireNames

__all__ = ["HttpModel", "Signer"]

_LARGE_BYTES: Final = 262_144
"""From this size on, what has come is decoded in a thread."""
_TOGETHER: Final = 64
"""Events that are handed on before the event loop comes round."""


class Signer(Protocol):
    """Proves who asks, attempt by attempt."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be shown."""
        ...

    def __call__(self, request: OutgoingRequest) -> Mapping[str, str]: ...


class HttpModel:
    """A provider's model. Make one with `model("openai:...")`; use it from one event loop, in any number of conversations; close it.

    Args:
        provider: Who serves it.
        name: The provider's name for it.
        api: Which codec reads and writes.
        base_url: What the codec's path is appended to.
        transport: Sends.
        headers: Of every request, credentials included; they are never shown.
        quirks: What this server wants differently, for the codec.
        native_tools: Whether calls travel in the API's own form.
        key_name: The environment variable of the key, for errors.
        signer: Makes the headers that prove who asks, where no fixed one does.
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
        self._hidden = SecretRedactor.of_headers(headers, signer.secrets if signer is not None else ())

    def __repr__(self) -> str:
        return f"<HttpModel {self.provider}:{self.name}>"

    async def stream(self, request: ModelRequest, context: StreamingContext) -> AsyncIterator[ModelEvent]:
        """Answer once. Ends with `Finished`, of reason `cut` where the connection broke, or the pass was aborted, before the message's end.

        Raises:
            ModelTimeout: A deadline has passed.
            ModelUnreachable: There was no answer, now and after all retries.
            UsageError: The request cannot be sent as it is.
        """
        names = self._codec.names(tool.name for tool in request.tools)
        outgoing = self._written(request, names)
        with RequestDeadlines(self._transport.timeouts.for_stream(context.silence_s), context.abort_signal) as watch:
            try:
                answer = await self._transport.open(outgoing, watch, context.beat)
            except HttpStatusError as refused:
                for event in self._refused(refused):
                    yield event
                return
            except RequestInterrupted as ended:
                for event in self._given_up(ended, outgoing, self._decoder()):
                    yield event
                return
            decoder = self._codec.decoder(
                content_type=answer.content_type,
                streamed=request.stream,
                names=names,
                calls_per_message=request.calls_per_message,
                redact=self._hidden.redact,
            )
            decoder.message.server = self._server
            size_bytes = 0
            try:
                while data := await answer.read():
                    context.beat()
                    size_bytes += len(data)
                    if is_html(answer.first):
                        break
                    told = await _decoded(decoder.waiting_bytes + len(data), partial(decoder.feed, data))
                    for number, event in enumerate(told, 1):
                        yield event if type(event) is not Fault else self._clean(event)
                        if number % _TOGETHER == 0:
                            await asyncio.sleep(0)
                    if decoder.done:
                        break
                told = await _decoded(size_bytes, partial(self._end, decoder, answer, outgoing))
                for number, event in enumerate(told, 1):
                    yield event
                    if number % _TOGETHER == 0:
                        await asyncio.sleep(0)
            except RequestInterrupted as ended:
                for event in self._given_up(ended, outgoing, decoder):
                    yield event
            finally:
                await answer.close(whole=decoder.done)

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._transport.close()

    # Inside

    def _written(self, request: ModelRequest, names: WireNames) -> OutgoingRequest:
        if not request.model:
            request = msgspec.structs.replace(request, model=self.name)
        written = self._codec.encode(request, names, self._quirks)
        return OutgoingRequest(
            url=self._base_url + written.path,
            body=written.body,
            headers={**written.headers, **self._headers},
            method=written.method,
            hidden=self._hidden,
            sign=self._signer,
        )

    def _decoder(self) -> Decoder:
        """For an answer of which nothing has come."""
        return self._codec.decoder()

    def _refused(self, refused: HttpStatusError) -> list[ModelEvent]:
        code, text = describe_error_response(
            self.provider,
            refused.status,
            refused.body,
            key_name=self._key_name,
            location=refused.headers.get("location", ""),
            hidden=self._hidden,
        )
        decoder = self._decoder()
        decoder.message.add_fault(code, text, retryable=refused.passing or is_miswritten_call(code))
        return decoder.close()

    def _end(self, decoder: Decoder, answer: ResponseBody, outgoing: OutgoingRequest) -> list[ModelEvent]:
        """What the end of the body tells."""
        broken = answer.broken
        if answer.unreadable:
            why = self._hidden.cut(answer.unreadable, 500)
            decoder.message.add_fault("bad_frame", f"{self.provider}: the answer cannot be read any further ({why}).")
        elif is_html(answer.first) or not (answer.broken or decoder.done or not decoder.message.is_empty):
            address = outgoing.shown + urlsplit(self._base_url).path
            text = unexpected_body_message(
                self.provider, address, self._codec.api, answer.status, answer.content_type, answer.first, self._hidden
            )
            if text:
                decoder.message.add_fault("no_answer", text)
                broken = True
        return [self._clean(event) for event in decoder.close(broken=broken)]

    def _given_up(self, ended: RequestInterrupted, outgoing: OutgoingRequest, decoder: Decoder) -> list[ModelEvent]:
        """The end of a pass that somebody aborted; raises where it was a deadline."""
        if ended.deadline is not None:
            raise self._transport.late(ended.deadline, ended.limit_s, outgoing) from None
        return [self._clean(event) for event in decoder.close(broken=True)]

    def _clean(self, event: ModelEvent) -> ModelEvent:
        """A provider may repeat what it was sent."""
        if isinstance(event, Fault):
            return msgspec.structs.replace(event, code=self._hidden.redact(event.code), message=self._hidden.redact(event.message))
        if isinstance(event, Finished) and event.fault is not None:
            return msgspec.structs.replace(event, fault=self._clean(event.fault))
        return event


async def _decoded(size_bytes: int, work: Callable[[], list[ModelEvent]]) -> list[ModelEvent]:
    """What a decoder's `work` on so many bytes returns, off the event loop where it may be long: a frame may have 64 MiB."""
    return await in_thread(work) if size_bytes >= _LARGE_BYTES else work()


def _server(base_url: str) -> str:
    """Whose server it is: a domain, over all its regions; a machine without one, with its port."""
    at = urlsplit(base_url)
    labels = (at.hostname or "").split(".")
    return ".".join(labels[-2:]) if len(labels) > 1 and not labels[-1].isdigit() else at.netloc.rpartition("@")[2]
