"""Decode answers of Cohere's chat API, versions 2 and 1.

A model writes a plan before it calls tools; the plan is reasoning. Version 1 has calls as objects without ids; its streams preview a call
in pieces and then send all calls whole.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.models.model_events import FinishReason, Usage
from callgate.models.wire.base_decoder import Decoder
from callgate.models.wire.finish_reasons import finish_reason
from callgate.models.wire.json_fields import as_arguments, as_object, as_objects, as_text, as_token_count
from callgate.models.wire.server_errors import error_from_body, parse_error
from callgate.models.wire.stream_framing import FrameParser, JsonLines
from callgate.models.wire.streaming_call import OpenCall, canonical_form

__all__ = ["CohereChatDecoder"]

_FINISH_REASONS: Mapping[str, FinishReason] = {
    "COMPLETE": "stop",
    "STOP_SEQUENCE": "stop",
    "TOOL_CALL": "tool_calls",
    "MAX_TOKENS": "length",
    "ERROR_LIMIT": "length",
    "ERROR_TOXIC": "content_filter",
    "ERROR": "error",
    "TIMEOUT": "error",
    "USER_CANCEL": "error",
}


class CohereChatDecoder(Decoder):
    """Decodes one answer of Cohere."""

    api = "cohere.chat"

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self._by_index: dict[object, OpenCall] = {}
        self._citations: list[object] = []
        """The sources of parts of the text or plan."""
        self._reasoning_kind = ""
        """Of the last reasoning: `thinking` or `tool_plan`. They are fields of their own in a request."""

    def framing(self, content_type: str, *, streamed: bool) -> FrameParser:
        return JsonLines() if "stream+json" in content_type else super().framing(content_type, streamed=streamed)

    def read_frame(self, event: str, value: Mapping[str, object]) -> None:
        message = as_object(as_object(value.get("delta")).get("message"))
        match value.get("type") or value.get("event_type") or event:
            case "content-start" | "content-delta":
                for part in as_objects(message.get("content")):
                    self._read_content(part)
            case "tool-plan-delta":
                self._append_plan(message.get("tool_plan"))
            case "tool-call-start":
                for item in as_objects(message.get("tool_calls")):
                    self._by_index[value.get("index")] = self._open_call(item)
            case "tool-call-delta":
                for item in as_objects(message.get("tool_calls")):
                    self._append_piece(value.get("index"), item)
            case "tool-call-end":
                if call := self._call_at(value.get("index")):
                    self.message.seal(call)
            case "citation-start":
                self._citations += _as_list(message.get("citations"))
            case "message-end":
                self._read_end(as_object(value.get("delta")))
            case "" if "message" in value:
                self.read_body(value)
            case str(kind):
                self._read_version_1_event(kind, value)
            case _:
                pass

    def read_body(self, value: Mapping[str, object]) -> None:
        message = value.get("message")
        if isinstance(message, dict):
            self._read_message(message)
            self._read_end(value)
        elif "text" in value or "tool_calls" in value or "generations" in value:
            self._read_version_1_body(value)
        elif "type" in value or "event_type" in value:
            self.read_frame("", value)
        else:
            self.report_error(error_from_body(value, "The answer has no message."))

    # Version 2

    def _read_message(self, message: Mapping[str, object]) -> None:
        self._append_plan(message.get("tool_plan"))
        content = message.get("content")
        for part in as_objects(content):
            self._read_content(part)
        if isinstance(content, str):
            self.message.append_text(content)
        for item in as_objects(message.get("tool_calls")):
            self._open_call(item)
        self._citations += _as_list(message.get("citations"))
        self.message.seal_all_but_last()

    def _read_content(self, part: Mapping[str, object]) -> None:
        if thinking := as_text(part.get("thinking")):
            self._append_reasoning(thinking, "thinking")
        self.message.append_text(as_text(part.get("text")))

    def _append_plan(self, text: object) -> None:
        if isinstance(text, str) and text:
            self._append_reasoning(text, "tool_plan")

    def _append_reasoning(self, text: str, kind: str) -> None:
        self.message.append_reasoning(text, opaque={"kind": kind}, new_part=kind != self._reasoning_kind)
        self._reasoning_kind = kind

    def _open_call(self, item: Mapping[str, object]) -> OpenCall:
        function = as_object(item.get("function")) or item
        call = self.message.open_call(as_text(item.get("id")), as_text(function.get("name")))
        self.message.append_arguments(call, as_arguments(function.get("arguments", function.get("parameters"))))
        return call

    def _append_piece(self, index: object, item: Mapping[str, object]) -> None:
        call = self._call_at(index)
        if call is None:
            raise ValueError("arguments of a call that was not started")
        self.message.append_arguments(call, as_arguments(as_object(item.get("function")).get("arguments")))

    def _call_at(self, index: object) -> OpenCall | None:
        """Return the call with this index; the last call if there is no index."""
        return self._by_index.get(index) or (self.message.calls[-1] if index is None and self.message.calls else None)

    def _read_end(self, end: Mapping[str, object]) -> None:
        if self._citations:
            self.message.append_reasoning(opaque={"kind": "citations", "citations": self._citations}, new_part=True)
            self._citations = []
        usage = as_object(end.get("usage") or end.get("meta"))
        if usage:
            tokens = as_object(usage.get("tokens")) or as_object(usage.get("billed_units"))
            self.message.set_usage(
                Usage(
                    input_tokens=as_token_count(tokens.get("input_tokens")),
                    output_tokens=as_token_count(tokens.get("output_tokens")),
                    cached_tokens=as_token_count(usage.get("cached_tokens")),
                )
            )
        self._read_finish_reason(as_text(end.get("finish_reason")), as_text(end.get("error")))

    def _read_finish_reason(self, provider_reason: str, error: str = "") -> None:
        reason = finish_reason(provider_reason.upper(), _FINISH_REASONS) if provider_reason else None
        if error or reason == "error":
            self.message.add_fault(
                provider_reason.lower(),
                error or f"The answer ended with {provider_reason}.",
                retryable=provider_reason.upper() == "TIMEOUT",
            )
        elif reason is not None:
            if reason == "length" and self.message.calls and self.message.calls[-1].arguments.is_placeholder:
                self.message.cut(self.message.calls[-1])  # as in a body, where an empty object proves nothing
            self.message.set_finish_reason(reason, provider_reason)

    # Version 1

    def _read_version_1_event(self, kind: str, value: Mapping[str, object]) -> None:
        match kind:
            case "text-generation":
                self.message.append_text(as_text(value.get("text")))
            case "tool-calls-chunk":
                self._preview_call(as_object(value.get("tool_call_delta")), as_text(value.get("text")))
            case "tool-calls-generation":
                self._replace_previews(value)
            case "stream-end":
                response = as_object(value.get("response"))
                self._replace_previews(response)
                self._read_end({**response, "finish_reason": value.get("finish_reason") or response.get("finish_reason")})
            case "error" | "stream-error":
                self.report_error(parse_error(value.get("error") or value, ("code",)))
            case _:
                pass  # searches, citations and unknown events

    def _preview_call(self, piece: Mapping[str, object], plan: str) -> None:
        self._append_plan(plan)
        if not piece:
            return
        call = self._by_index.get(piece.get("index"))
        if call is None or (piece.get("name") and call.arguments.size):
            call = self._by_index[piece.get("index")] = self.message.open_call("", as_text(piece.get("name")))
        self.message.append_arguments(call, as_arguments(piece.get("parameters")))

    def _replace_previews(self, value: Mapping[str, object]) -> None:
        """Read the calls that arrive whole; previewed calls are the same ones."""
        for index, item in enumerate(as_objects(value.get("tool_calls"))):
            if index >= len(self.message.calls):
                self._open_call(item)
                continue
            call = self.message.calls[index]
            call.name = as_text(item.get("name")) or call.name
            self._set_arguments(call, as_arguments(item.get("parameters")))

    def _set_arguments(self, call: OpenCall, arguments: str) -> None:
        """Set a call's arguments, unless they differ from the preview in white space only."""
        if call.arguments.canonical != canonical_form(arguments):
            self.message.set_arguments(call, arguments)
        self.message.seal(call)

    def _read_version_1_body(self, value: Mapping[str, object]) -> None:
        calls = as_objects(value.get("tool_calls"))
        text = as_text(value.get("text"))
        if calls:
            self._append_plan(text)
        else:
            self.message.append_text(text or "".join(as_text(item.get("text")) for item in as_objects(value.get("generations"))))
        for item in calls:
            self._open_call(item)
        self.message.seal_all_but_last()
        self._read_end({**value, "finish_reason": value.get("finish_reason") or "COMPLETE"})


def _as_list(citations: object) -> list[Mapping[str, object]]:
    """Return the citations of a message, or the one of a stream's event, as a list."""
    return [citations] if isinstance(citations, dict) else list(as_objects(citations))
