"""Decode an interaction, whole or streamed: steps that are started, extended by deltas and stopped.

An older revision of the API has `outputs` and content blocks instead. In that revision, a call arrives whole in one
delta. In the present one, a call starts with empty arguments, and these then arrive as pieces of text.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.models.model_events import FinishReason, Usage
from callgate.models.wire.base_decoder import Decoder
from callgate.models.wire.json_fields import as_arguments, as_object, as_objects, as_text, as_token_count
from callgate.models.wire.server_errors import error_from_body, is_retryable_code
from callgate.models.wire.streaming_call import OpenCall

__all__ = ["GeminiInteractionsDecoder"]

_FINISH_REASONS: Mapping[str, FinishReason] = {
    "completed": "stop",
    "requires_action": "tool_calls",
    "incomplete": "length",
    "budget_exceeded": "length",
    "requires_continuation": "length",
    "cancelled": "other",
}
_UNFINISHED_STATUSES = frozenset({"queued", "in_progress"})
"""Statuses of a whole interaction that goes on elsewhere."""
_IGNORED_STEPS = frozenset({"user_input", "function_result", "function_call"})
"""Steps that the request contained, and calls that an older revision announces without a name. The first delta of
such a call opens it.
"""


class _InteractionStep:
    """One step while it is written."""

    __slots__ = ("call", "has_initial_arguments", "native")

    def __init__(self) -> None:
        self.call: OpenCall | None = None
        self.native: dict[str, object] | None = None
        self.has_initial_arguments = False
        """Whether the call's arguments were in the step's start; pieces that follow replace them."""


class GeminiInteractionsDecoder(Decoder):
    """Decodes one interaction."""

    api = "gemini.interactions"

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self._steps: dict[object, _InteractionStep] = {}

    def read_frame(self, event: str, value: Mapping[str, object]) -> None:
        kind = as_text(value.get("event_type")) or event
        interaction = as_object(value.get("interaction"))
        match kind.removeprefix("interaction.").replace("content.", "step."):
            case "start" | "created":
                self._read_usage(interaction)
            case "step.start":
                self._start_step(value.get("index"), as_object(value.get("step") or value.get("content")))
            case "step.delta":
                self._read_delta(self._steps.setdefault(value.get("index"), _InteractionStep()), as_object(value.get("delta")))
            case "step.stop":
                self._stop_step(value.get("index"))
            case "status_update":
                self._read_status(value)
            case "complete" | "completed":
                self._read_interaction(interaction)
                self.end_stream()
            case _ if kind == "error" or value.get("error"):
                self._report_failure(value.get("error") or value)
            case _:
                pass

    def read_body(self, value: Mapping[str, object]) -> None:
        if value.get("error"):
            self._report_failure(value["error"])
        elif "event_type" in value:
            self.read_frame("", value)
        elif "status" in value or "steps" in value or "outputs" in value:
            self._read_interaction(value)
        else:
            self.report_error(error_from_body(value, "The answer is not an interaction."))

    def _read_interaction(self, interaction: Mapping[str, object]) -> None:
        """Read a whole interaction. Its steps are used only if no steps were streamed."""
        self._read_usage(interaction)
        steps, status = as_objects(interaction.get("steps") or interaction.get("outputs")), as_text(interaction.get("status"))
        hit_limit = _FINISH_REASONS.get(status) == "length"
        if self._steps:
            last = next(reversed(self._steps.values()))
            if hit_limit and last.call is not None:
                self.message.cut(last.call)
        else:
            for index, step in enumerate(steps):
                self._start_step(index, step, whole=True, cut=hit_limit and step is steps[-1])
            self.message.seal_all_but_last()
        if status in _UNFINISHED_STATUSES:
            self.message.set_finish_reason("cut", status)
        else:
            self._read_status(interaction)

    def _start_step(self, index: object, step: Mapping[str, object], *, whole: bool = False, cut: bool = False) -> None:
        started = self._steps[index] = _InteractionStep()
        match as_text(step.get("type")):
            case "function_call" if whole or step.get("name"):
                started.call = self._open_call(step)
                started.call.cut = cut
                if whole or step.get("arguments"):
                    started.has_initial_arguments = True
                    self.message.append_arguments(started.call, as_arguments(step.get("arguments", {})) or "{}")
            case "thought":
                signature = as_text(step.get("signature"))
                self.message.append_reasoning(
                    _summary_text(step.get("summary")), opaque={"signature": signature} if signature else None, new_part=True
                )
            case "model_output":
                for part in as_objects(step.get("content")):
                    self._add_content(part)
            case kind if kind not in _IGNORED_STEPS:
                started.native = self._add_content(step)

    def _add_content(self, part: Mapping[str, object]) -> dict[str, object] | None:
        """Add a part of the answer; return a part that is not text, so that deltas can extend it."""
        if part.get("type") in ("text", None):
            self.message.append_text(as_text(part.get("text")))
            return None
        item = dict(part)
        self.message.add_native(as_text(part["type"]), as_text(part.get("id") or part.get("call_id")), item)
        return item

    def _open_call(self, step: Mapping[str, object]) -> OpenCall:
        call = self.message.open_call(as_text(step.get("id")), as_text(step.get("name")))
        if step.get("signature"):
            call.opaque["signature"] = step["signature"]
        return call

    def _read_delta(self, step: _InteractionStep, delta: Mapping[str, object]) -> None:
        match delta.get("type"):
            case "text":
                self.message.append_text(as_text(delta.get("text")))
            case "arguments_delta":
                self._append_arguments(step, as_arguments(delta.get("arguments", delta.get("partial_arguments"))))
            case "function_call":
                step.call = step.call or self._open_call(delta)
                self.message.set_arguments(step.call, as_arguments(delta.get("arguments", {})) or "{}")
            case "thought_summary" | "thought":
                self.message.append_reasoning(_summary_text(delta.get("content")) or as_text(delta.get("text")))
            case "thought_signature":
                self._set_signature(step, delta.get("signature"))
            case "text_annotation" | "text_annotation_delta":
                pass
            case kind if step.native is None or step.native["type"] != kind or not as_text(kind).endswith(("_call", "_result")):
                step.native = self._add_content(delta)
            case _:
                step.native.update({key: value for key, value in delta.items() if value is not None and key != "type"})

    def _append_arguments(self, step: _InteractionStep, text: str) -> None:
        if step.call is None:
            raise ValueError("arguments of a call that was not started")
        if step.has_initial_arguments:
            step.has_initial_arguments = False
            self.message.set_arguments(step.call, "")
        self.message.append_arguments(step.call, text)

    def _set_signature(self, step: _InteractionStep, signature: object) -> None:
        if step.call is not None:
            step.call.opaque["signature"] = signature
        else:
            self.message.append_reasoning(opaque={"signature": signature})

    def _stop_step(self, index: object) -> None:
        step = self._steps.get(index)
        if step is not None and step.call is not None:
            self.message.seal(step.call)

    def _read_usage(self, interaction: Mapping[str, object]) -> None:
        self.message.model = as_text(interaction.get("model")) or self.message.model
        usage = as_object(interaction.get("usage"))
        if usage:
            thought_tokens = as_token_count(usage.get("total_thought_tokens"))
            self.message.set_usage(
                Usage(
                    input_tokens=as_token_count(usage.get("total_input_tokens")) + as_token_count(usage.get("total_tool_use_tokens")),
                    output_tokens=as_token_count(usage.get("total_output_tokens")) + thought_tokens,
                    cached_tokens=as_token_count(usage.get("total_cached_tokens")),
                    reasoning_tokens=thought_tokens,
                )
            )

    def _read_status(self, interaction: Mapping[str, object]) -> None:
        provider_reason = as_text(interaction.get("status"))
        if provider_reason == "failed":
            if self.message.reason != "error":
                self._report_failure(interaction.get("error") or interaction.get("errors") or provider_reason)
        elif provider_reason not in ("", "in_progress"):
            reason = _FINISH_REASONS.get(provider_reason, "other")
            self.message.set_finish_reason(reason, provider_reason)

    def _report_failure(self, error: object) -> None:
        fields = next(iter(as_objects(error)), {})
        code = as_text(fields.get("status") or fields.get("code") or "failed")
        retryable = is_retryable_code(code) or is_retryable_code(as_text(fields.get("code")))
        self.message.add_fault(code, as_text(fields.get("message") or error), retryable=retryable)


def _summary_text(summary: object) -> str:
    return "".join(as_text(item.get("text")) for item in as_objects(summary))
