"""Read an interaction, whole or streamed: steps that are started, grown by deltas and stopped.

An older revision says the same of `outputs` and content blocks. There a call comes whole in one delta; now its arguments come in pieces of
text, after a start that shows them empty.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.models.events import FinishReason, Usage
from callgate.models.wire.decoder import Decoder
from callgate.models.wire.failures import failure_in, passes
from callgate.models.wire.fields import arguments_of, count_of, items_of, object_of, text_of
from callgate.models.wire.open_call import OpenCall

__all__ = ["GeminiInteractionsDecoder"]

_REASONS: Mapping[str, FinishReason] = {
    "completed": "stop",
    "requires_action": "tool_calls",
    "incomplete": "length",
    "cancelled": "other",
}
_NOT_KEPT = frozenset({"user_input", "function_result", "function_call"})
"""What we sent ourselves, and a call of which the older revision's first delta is the first to tell."""


class _Step:
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
        self._steps: dict[object, _Step] = {}

    def read(self, event: str, value: Mapping[str, object]) -> None:
        kind = text_of(value.get("event_type")) or event
        interaction = object_of(value.get("interaction"))
        match kind.removeprefix("interaction.").replace("content.", "step."):
            case "start" | "created":
                self._note(interaction)
            case "step.start":
                self._start(value.get("index"), object_of(value.get("step") or value.get("content")))
            case "step.delta":
                self._delta(self._steps.setdefault(value.get("index"), _Step()), object_of(value.get("delta")))
            case "step.stop":
                self._stop(value.get("index"))
            case "status_update":
                self._reason(value)
            case "complete" | "completed":
                self._complete(interaction)
                self.ended()
            case _ if kind == "error" or value.get("error"):
                self._failed(value.get("error") or value)
            case _:
                pass

    def read_whole(self, value: Mapping[str, object]) -> None:
        if value.get("error"):
            self._failed(value["error"])
        elif "event_type" in value:
            self.read("", value)
        elif "status" in value or "steps" in value or "outputs" in value:
            self._complete(value)
        else:
            self.failed(failure_in(value, "The answer is no interaction."))

    def _complete(self, interaction: Mapping[str, object]) -> None:
        """The interaction has ended; its steps are read from here only if none were streamed."""
        self._note(interaction)
        steps = items_of(interaction.get("steps") or interaction.get("outputs"))
        if not self._steps:
            for index, step in enumerate(steps):
                self._start(index, step, whole=True, cut=interaction.get("status") == "incomplete" and step is steps[-1])
            self.message.seal_followed()
        self._reason(interaction)

    # Steps

    def _start(self, index: object, step: Mapping[str, object], *, whole: bool = False, cut: bool = False) -> None:
        started = self._steps[index] = _Step()
        match text_of(step.get("type")):
            case "function_call" if whole or step.get("name"):
                started.call = self._call(step)
                started.call.cut = cut
                if whole or step.get("arguments"):
                    started.shown = True
                    self.message.arguments(started.call, arguments_of(step.get("arguments", {})) or "{}")
            case "thought":
                signature = text_of(step.get("signature"))
                self.message.reasoning(_words(step.get("summary")), opaque={"signature": signature} if signature else None, fresh=True)
            case "model_output":
                for part in items_of(step.get("content")):
                    self._content(part)
            case kind if kind not in _NOT_KEPT:
                started.native = self._content(step)

    def _content(self, part: Mapping[str, object]) -> dict[str, object] | None:
        """Take a part of the answer; one that is no text is kept as it is, and returned to be grown."""
        if part.get("type") in ("text", None):
            self.message.text(text_of(part.get("text")))
            return None
        item = dict(part)
        self.message.native(text_of(part["type"]), text_of(part.get("id") or part.get("call_id")), item)
        return item

    def _call(self, step: Mapping[str, object]) -> OpenCall:
        call = self.message.open(text_of(step.get("id")), text_of(step.get("name")))
        if step.get("signature"):
            call.opaque["signature"] = step["signature"]
        return call

    def _delta(self, step: _Step, delta: Mapping[str, object]) -> None:
        match delta.get("type"):
            case "text":
                self.message.text(text_of(delta.get("text")))
            case "arguments_delta":
                self._arguments(step, arguments_of(delta.get("arguments", delta.get("partial_arguments"))))
            case "function_call":
                step.call = step.call or self._call(delta)
                self.message.whole_arguments(step.call, arguments_of(delta.get("arguments", {})) or "{}")
            case "thought_summary" | "thought":
                self.message.reasoning(_words(delta.get("content")) or text_of(delta.get("text")))
            case "thought_signature":
                self._signature(step, delta.get("signature"))
            case "text_annotation" | "text_annotation_delta":
                pass
            case kind if step.native is None or step.native["type"] != kind or not text_of(kind).endswith(("_call", "_result")):
                step.native = self._content(delta)
            case _:
                step.native.update({key: value for key, value in delta.items() if value is not None and key != "type"})

    def _arguments(self, step: _Step, text: str) -> None:
        if step.call is None:
            raise ValueError("arguments of a call that was never started")
        if step.shown:
            step.shown = False
            self.message.whole_arguments(step.call, "")
        self.message.arguments(step.call, text)

    def _signature(self, step: _Step, signature: object) -> None:
        if step.call is not None:
            step.call.opaque["signature"] = signature
        else:
            self.message.reasoning(opaque={"signature": signature})

    def _stop(self, index: object) -> None:
        step = self._steps.get(index)
        if step is not None and step.call is not None:
            self.message.seal(step.call)

    # Bookkeeping

    def _note(self, interaction: Mapping[str, object]) -> None:
        self.message.model = text_of(interaction.get("model")) or self.message.model
        usage = object_of(interaction.get("usage"))
        if usage:
            thought = count_of(usage.get("total_thought_tokens"))
            self.message.usage(
                Usage(
                    input_tokens=count_of(usage.get("total_input_tokens")) + count_of(usage.get("total_tool_use_tokens")),
                    output_tokens=count_of(usage.get("total_output_tokens")) + thought,
                    cached_tokens=count_of(usage.get("total_cached_tokens")),
                    reasoning_tokens=thought,
                )
            )

    def _reason(self, interaction: Mapping[str, object]) -> None:
        said = text_of(interaction.get("status"))
        if said == "failed":
            if self.message.reason != "error":
                self._failed(interaction.get("error") or interaction.get("errors") or said)
        elif said not in ("", "in_progress"):
            reason = _REASONS.get(said, "other")
            self.message.ends(reason, said)

    def _failed(self, error: object) -> None:
        fields = next(iter(items_of(error)), {})
        code = text_of(fields.get("status") or fields.get("code") or "failed")
        passing = passes(code) or passes(text_of(fields.get("code")))
        self.message.fault(code, text_of(fields.get("message") or error), retryable=passing)


def _words(summary: object) -> str:
    return "".join(text_of(item.get("text")) for item in items_of(summary))
