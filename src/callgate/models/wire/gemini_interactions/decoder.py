"""Read an interaction, whole or streamed: steps that are started, grown by deltas and stopped.

An older revision says the same of `outputs` and content blocks. There a call comes whole in one delta; now its arguments come in pieces of
text, after a start that shows them empty.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.models.events import FinishReason, Usage
from callgate.models.wire.decoder import Decoder
from callgate.models.wire.json_fields import as_arguments, as_object, as_objects, as_text, as_token_count
from callgate.models.wire.open_call import OpenCall
from callgate.models.wire.server_errors import error_from_body, is_retryable_code

__all__ = ["GeminiInteractionsDecoder"]

_REASONS: Mapping[str, FinishReason] = {
    "completed": "stop",
    "requires_action": "tool_calls",
    "incomplete": "length",
    "cancelled": "other",
}
_NOT_KEPT = frozenset({"user_input", "function_result", "function_call"})
"""What we sent ourselves, and a call of which the older revision's first delta is the first to tell."""


class _InteractionStep:
    """One step while it is written."""

    __slots__ = ("call", "native", "shown")

    def __init__(self) -> None:
        self.call: OpenCall | None = None
        self.native: dict[str, object] | None = None
        self.shown = False
        """The call's arguments stood in the step's start; pieces that follow are instead of them."""


class GeminiInteractionsDecoder(Decoder):
    """One interaction."""

    api = "gemini.interactions"

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self._steps: dict[object, _InteractionStep] = {}

    def read_frame(self, event: str, value: Mapping[str, object]) -> None:
        kind = as_text(value.get("event_type")) or event
        interaction = as_object(value.get("interaction"))
        match kind.removeprefix("interaction.").replace("content.", "step."):
            case "start" | "created":
                self._note(interaction)
            case "step.start":
                self._start(value.get("index"), as_object(value.get("step") or value.get("content")))
            case "step.delta":
                self._delta(self._steps.setdefault(value.get("index"), _InteractionStep()), as_object(value.get("delta")))
            case "step.stop":
                self._stop(value.get("index"))
            case "status_update":
                self._reason(value)
            case "complete" | "completed":
                self._complete(interaction)
                self.end_stream()
            case _ if kind == "error" or value.get("error"):
                self._failed(value.get("error") or value)
            case _:
                pass

    def read_body(self, value: Mapping[str, object]) -> None:
        if value.get("error"):
            self._failed(value["error"])
        elif "event_type" in value:
            self.read_frame("", value)
        elif "status" in value or "steps" in value or "outputs" in value:
            self._complete(value)
        else:
            self.report_error(error_from_body(value, "The answer is no interaction."))

    def _complete(self, interaction: Mapping[str, object]) -> None:
        """The interaction has ended; its steps are read from here only if none were streamed."""
        self._note(interaction)
        steps = as_objects(interaction.get("steps") or interaction.get("outputs"))
        if not self._steps:
            for index, step in enumerate(steps):
                self._start(index, step, whole=True, cut=interaction.get("status") == "incomplete" and step is steps[-1])
            self.message.seal_followed()
        self._reason(interaction)

    # Steps

    def _start(self, index: object, step: Mapping[str, object], *, whole: bool = False, cut: bool = False) -> None:
        started = self._steps[index] = _InteractionStep()
        match as_text(step.get("type")):
            case "function_call" if whole or step.get("name"):
                started.call = self._call(step)
                started.call.cut = cut
                if whole or step.get("arguments"):
                    started.shown = True
                    self.message.append_arguments(started.call, as_arguments(step.get("arguments", {})) or "{}")
            case "thought":
                signature = as_text(step.get("signature"))
                self.message.append_reasoning(
                    _words(step.get("summary")), opaque={"signature": signature} if signature else None, fresh=True
                )
            case "model_output":
                for part in as_objects(step.get("content")):
                    self._content(part)
            case kind if kind not in _NOT_KEPT:
                started.native = self._content(step)

    def _content(self, part: Mapping[str, object]) -> dict[str, object] | None:
        """Take a part of the answer; one that is no text is kept as it is, and returned to be grown."""
        if part.get("type") in ("text", None):
            self.message.append_text(as_text(part.get("text")))
            return None
        item = dict(part)
        self.message.add_native(as_text(part["type"]), as_text(part.get("id") or part.get("call_id")), item)
        return item

    def _call(self, step: Mapping[str, object]) -> OpenCall:
        call = self.message.open_call(as_text(step.get("id")), as_text(step.get("name")))
        if step.get("signature"):
            call.opaque["signature"] = step["signature"]
        return call

    def _delta(self, step: _InteractionStep, delta: Mapping[str, object]) -> None:
        match delta.get("type"):
            case "text":
                self.message.append_text(as_text(delta.get("text")))
            case "arguments_delta":
                self._arguments(step, as_arguments(delta.get("arguments", delta.get("partial_arguments"))))
            case "function_call":
                step.call = step.call or self._call(delta)
                self.message.set_arguments(step.call, as_arguments(delta.get("arguments", {})) or "{}")
            case "thought_summary" | "thought":
                self.message.append_reasoning(_words(delta.get("content")) or as_text(delta.get("text")))
            case "thought_signature":
                self._signature(step, delta.get("signature"))
            case "text_annotation" | "text_annotation_delta":
                pass
            case kind if step.native is None or step.native["type"] != kind or not as_text(kind).endswith(("_call", "_result")):
                step.native = self._content(delta)
            case _:
                step.native.update({key: value for key, value in delta.items() if value is not None and key != "type"})

    def _arguments(self, step: _InteractionStep, text: str) -> None:
        if step.call is None:
            raise ValueError("arguments of a call that was never started")
        if step.shown:
            step.shown = False
            self.message.set_arguments(step.call, "")
        self.message.append_arguments(step.call, text)

    def _signature(self, step: _InteractionStep, signature: object) -> None:
        if step.call is not None:
            step.call.opaque["signature"] = signature
        else:
            self.message.append_reasoning(opaque={"signature": signature})

    def _stop(self, index: object) -> None:
        step = self._steps.get(index)
        if step is not None and step.call is not None:
            self.message.seal(step.call)

    # Bookkeeping

    def _note(self, interaction: Mapping[str, object]) -> None:
        self.message.model = as_text(interaction.get("model")) or self.message.model
        usage = as_object(interaction.get("usage"))
        if usage:
            thought = as_token_count(usage.get("total_thought_tokens"))
            self.message.set_usage(
                Usage(
                    input_tokens=as_token_count(usage.get("total_input_tokens")) + as_token_count(usage.get("total_tool_use_tokens")),
                    output_tokens=as_token_count(usage.get("total_output_tokens")) + thought,
                    cached_tokens=as_token_count(usage.get("total_cached_tokens")),
                    reasoning_tokens=thought,
                )
            )

    def _reason(self, interaction: Mapping[str, object]) -> None:
        said = as_text(interaction.get("status"))
        if said == "failed":
            if self.message.reason != "error":
                self._failed(interaction.get("error") or interaction.get("errors") or said)
        elif said not in ("", "in_progress"):
            reason = _REASONS.get(said, "other")
            self.message.set_finish_reason(reason, said)

    def _failed(self, error: object) -> None:
        fields = next(iter(as_objects(error)), {})
        code = as_text(fields.get("status") or fields.get("code") or "failed")
        passing = is_retryable_code(code) or is_retryable_code(as_text(fields.get("code")))
        self.message.add_fault(code, as_text(fields.get("message") or error), retryable=passing)


def _words(summary: object) -> str:
    return "".join(as_text(item.get("text")) for item in as_objects(summary))
