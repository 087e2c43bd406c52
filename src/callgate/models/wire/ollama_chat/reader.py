"""Read what Ollama answers at `/api/chat`: one JSON value a line, or one alone; its content type may say either. The text of
`/api/generate` is read too.

Ollama parses the model's calls itself, so that a call comes in one piece, with its arguments as an object. Older servers give it no id.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.models.events import FinishReason, Usage
from callgate.models.wire.decoder import Decoder
from callgate.models.wire.failures import failure_in, failure_of, told
from callgate.models.wire.fields import arguments_of, count_of, items_of, object_of, text_of
from callgate.models.wire.frames import Frames, JsonLines, WholeBody
from callgate.models.wire.reasons import reason_of

__all__ = ["OllamaChatDecoder"]

_REASONS: Mapping[str, FinishReason] = {"stop": "stop", "tool_calls": "tool_calls", "length": "length", "load": "stop", "unload": "stop"}


class OllamaChatDecoder(Decoder):
    """One answer of Ollama."""

    api = "ollama.chat"

    def framing(self, content_type: str, *, streamed: bool) -> Frames:
        return JsonLines() if streamed or "ndjson" in content_type else WholeBody()

    def read(self, event: str, value: Mapping[str, object]) -> None:
        failure = failure_of(value) or (told(value) if isinstance(value.get("message"), str) else None)
        if failure is not None:
            self.failed(failure)
            return
        model = value.get("model")
        if isinstance(model, str) and model:
            self.message.model = model
        message = object_of(value.get("message"))
        if thought := text_of(message.get("thinking")):
            self.message.reasoning(thought)
        self.message.text(text_of(message.get("content") or value.get("response")))
        for item in items_of(message.get("tool_calls")):
            self._call(item)
        if value.get("done"):
            self._done(value)

    def read_whole(self, value: Mapping[str, object]) -> None:
        self.read("", value)
        if self.message.reason is None and not {"message", "response"} & value.keys():
            self.failed(failure_in(value, "The answer has no message."))

    def _call(self, item: Mapping[str, object]) -> None:
        function = object_of(item.get("function")) or item
        call_id, name = text_of(item.get("id")), text_of(function.get("name"))
        arguments = arguments_of(function.get("arguments", function.get("parameters")))
        if not self.message.has(call_id, name, arguments):
            call = self.message.open(call_id, name)
            self.message.arguments(call, arguments)
            self.message.seal(call)

    def _done(self, value: Mapping[str, object]) -> None:
        if "prompt_eval_count" in value or "eval_count" in value:
            self.message.usage(
                Usage(input_tokens=count_of(value.get("prompt_eval_count")), output_tokens=count_of(value.get("eval_count")))
            )
        said = text_of(value.get("done_reason")) or "stop"
        reason = reason_of(said, _REASONS)
        self.message.ends(reason, said)
        self.ended()
