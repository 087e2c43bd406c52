"""Decode answers of Ollama's `/api/chat`: JSON lines or one JSON body; the content type may be wrong. Also decodes the text of
`/api/generate`.

Ollama parses the model's calls itself, so a call arrives in one piece, with its arguments as an object. Older servers give it no id.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.models.model_events import FinishReason, Usage
from callgate.models.wire.base_decoder import Decoder
from callgate.models.wire.finish_reasons import finish_reason
from callgate.models.wire.json_fields import as_arguments, as_object, as_objects, as_text, as_token_count
from callgate.models.wire.server_errors import error_from_body, find_error, parse_error
from callgate.models.wire.stream_framing import FrameParser, JsonLines, WholeBody

__all__ = ["OllamaChatDecoder"]

_FINISH_REASONS: Mapping[str, FinishReason] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "length": "length",
    "load": "stop",
    "unload": "stop",
}


class OllamaChatDecoder(Decoder):
    """Decodes one answer of Ollama."""

    api = "ollama.chat"

    def framing(self, content_type: str, *, streamed: bool) -> FrameParser:
        return JsonLines() if streamed or "ndjson" in content_type else WholeBody()

    def read_frame(self, event: str, value: Mapping[str, object]) -> None:
        error = find_error(value) or (parse_error(value) if isinstance(value.get("message"), str) else None)
        if error is not None:
            self.report_error(error)
            return
        model = value.get("model")
        if isinstance(model, str) and model:
            self.message.model = model
        message = as_object(value.get("message"))
        if thinking := as_text(message.get("thinking")):
            self.message.append_reasoning(thinking)
        self.message.append_text(as_text(message.get("content") or value.get("response")))
        for item in as_objects(message.get("tool_calls")):
            self._read_call(item)
        if value.get("done"):
            self._read_end(value)

    def read_body(self, value: Mapping[str, object]) -> None:
        self.read_frame("", value)
        if self.message.reason is None and not {"message", "response"} & value.keys():
            self.report_error(error_from_body(value, "The answer has no message."))

    def _read_call(self, item: Mapping[str, object]) -> None:
        function = as_object(item.get("function")) or item
        call_id, name = as_text(item.get("id")), as_text(function.get("name"))
        arguments = as_arguments(function.get("arguments", function.get("parameters")))
        if not self.message.has_call(call_id, name, arguments):
            call = self.message.open_call(call_id, name)
            self.message.append_arguments(call, arguments)
            self.message.seal(call)

    def _read_end(self, value: Mapping[str, object]) -> None:
        if "prompt_eval_count" in value or "eval_count" in value:
            self.message.set_usage(
                Usage(input_tokens=as_token_count(value.get("prompt_eval_count")), output_tokens=as_token_count(value.get("eval_count")))
            )
        provider_reason = as_text(value.get("done_reason")) or "stop"
        reason = finish_reason(provider_reason, _FINISH_REASONS)
        self.message.set_finish_reason(reason, provider_reason)
        self.end_stream()
