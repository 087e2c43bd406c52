"""Decode chat completions, whole or streamed, from OpenAI and from every server that speaks the same format.

The servers differ most in how a delta identifies its call, which `call_matching` resolves, and in how they report finish reasons, usage and
errors.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.calls import Text
from callgate.messages import Reasoning, ToolCall
from callgate.models.model_events import Usage
from callgate.models.wire.base_decoder import Decoder
from callgate.models.wire.finish_reasons import finish_reason
from callgate.models.wire.json_fields import as_arguments, as_object, as_objects, as_text, as_token_count
from callgate.models.wire.openai_chat.call_matching import CallMatcher
from callgate.models.wire.openai_chat.provider_fields import PROVIDER_FIELDS, THINKING_MARKS, ProviderFields
from callgate.models.wire.server_errors import ServerError, error_from_body, find_error
from callgate.models.wire.streaming_call import OpenCall

__all__ = ["OpenAIChatDecoder"]

_REASONING_KEYS = ("reasoning_content", "reasoning", "reasoning_text")
_SIDE_FIELDS = frozenset({*_REASONING_KEYS, *PROVIDER_FIELDS, "refusal", "audio"})
_NO_KINDS = frozenset({"", "text", "refusal", "UNKNOWN"})
"""Types of parts of a content that are not kept. Mistral's SDK wraps a part that it does not know as `UNKNOWN`, and would send it so."""
_FIELDS_BY_PART: Mapping[type, tuple[str, ...]] = {
    Text: ("content", "refusal", "audio"),
    Reasoning: (*_REASONING_KEYS, *PROVIDER_FIELDS),
    ToolCall: ("tool_calls", "function_call"),
}


class OpenAIChatDecoder(Decoder):
    """Decodes one chat completion; the first of several choices."""

    api = "openai.chat"

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self._calls: CallMatcher | None = None
        self._function_call: OpenCall | None = None
        self._choice_index: object = None
        self._is_streamed = False
        self._provider_fields = ProviderFields()
        self._audio: dict[str, object] = {}
        """The id of a spoken answer, as soon as it is known."""
        self._field = ""
        """The field beside the content that the last text came from; empty if it came from the content."""

    def read_frame(self, event: str, value: Mapping[str, object]) -> None:
        choices = value.get("choices")
        if not choices or event or value.get("error"):
            error = find_error(value, event)
            if error is not None:
                self.report_error(error)
                return
        model = value.get("model")
        if model and isinstance(model, str):
            self.message.model = model
        usage = value.get("usage")
        if not usage and "x_groq" in value:
            usage = as_object(value["x_groq"]).get("usage")
        if usage and isinstance(usage, dict):
            self.message.set_usage(_parse_usage(usage))
        if choices:
            for choice in choices if isinstance(choices, list) else as_objects(choices):
                if isinstance(choice, dict):
                    self._read_choice(choice)

    def read_body(self, value: Mapping[str, object]) -> None:
        self.read_frame("", value)
        if not value.get("choices") and self.message.reason is None:
            self.report_error(error_from_body(value, "The answer has no choices."))

    def join_pieces(self) -> None:
        self._provider_fields.join_pieces()

    def _read_choice(self, choice: Mapping[str, object]) -> None:
        number = choice.get("index") or 0
        if self._choice_index is None:
            self._choice_index = number
        if number != self._choice_index:
            return
        delta, whole = choice.get("delta"), choice.get("message")
        if isinstance(delta, dict):
            self._is_streamed = True
            self._read_delta(delta)
        if isinstance(whole, dict) and (not isinstance(delta, dict) or choice.get("finish_reason")):
            self._read_delta(self._unreported_fields(whole) if self._is_streamed else whole)
        if "delta" not in choice:
            self.message.seal_all_but_last()
        if choice.get("error"):
            self.report_error(find_error(choice) or ServerError("error", ""))
        provider_reason = choice.get("finish_reason")
        if provider_reason:
            usage = choice.get("usage")
            if isinstance(usage, dict):
                self.message.set_usage(_parse_usage(usage))
            self._read_finish_reason(provider_reason)

    def _read_delta(self, delta: Mapping[str, object]) -> None:
        content = delta.get("content")
        if len(delta) == 1 and type(content) is str and not self._field:  # only a piece of text, as in nearly every frame
            self.message.append_text(content)
            return
        for key, value in delta.items():
            if value and key in _SIDE_FIELDS:
                self._read_side_fields(delta)
                break
        if content:
            self._begin_field("")
        if isinstance(content, str):
            self.message.append_text(content)
        elif content:
            self._read_content_parts(content)
        calls = delta.get("tool_calls")
        if calls:
            self._calls = self._calls or CallMatcher(self.message)
            self._calls.add(as_objects(calls))
        legacy = delta.get("function_call") if not calls else None  # the older form of `tool_calls`
        if isinstance(legacy, dict) and (self._function_call or any(legacy.values())):
            self._append_legacy_call(legacy)

    def _unreported_fields(self, whole: Mapping[str, object]) -> Mapping[str, object]:
        """Return the fields of a whole message, sent after its pieces, that none of the pieces contained."""
        reported = {key for kind, keys in _FIELDS_BY_PART.items() if self.message.has_part(kind) for key in keys}
        return {key: value for key, value in whole.items() if key not in reported}

    def _read_side_fields(self, delta: Mapping[str, object]) -> None:
        """Read other fields than the content: reasoning, refusals, audio transcripts."""
        audio = as_object(delta.get("audio"))
        if audio.get("id"):
            self._audio["id"] = audio["id"]
        for field, text in (("refusal", delta.get("refusal")), ("audio", audio.get("transcript"))):
            if isinstance(text, str) and text:
                self._begin_field(field)
                self.message.append_text(text)
        for key in _REASONING_KEYS:
            reasoning = delta.get(key)
            if isinstance(reasoning, str) and reasoning:
                self.message.append_reasoning(reasoning, opaque={"key": key})
                break
        is_first = not self._provider_fields.fields
        if self._provider_fields.add(delta) and is_first:
            self.message.append_reasoning(opaque={"echo": self._provider_fields.fields, "server": self.message.server})

    def _begin_field(self, field: str) -> None:
        """Mark a text with the field that it comes from, unless the text before came from the same. Only this API gets the mark back."""
        if field != self._field:
            self._field = field
            self.message.append_reasoning(opaque={"field": field, "audio": self._audio}, new_part=True)

    def _read_content_parts(self, content: object) -> None:
        for text in content if isinstance(content, list) else ():
            if isinstance(text, str):
                self.message.append_text(text)
        for part in as_objects(content):
            if part.get("type") == "thinking":
                thinking = part.get("thinking")
                text = thinking if isinstance(thinking, str) else "".join(as_text(item.get("text")) for item in as_objects(thinking))
                marks = {key: part[key] for key in THINKING_MARKS if part.get(key)}
                self.message.append_reasoning(text, opaque={"key": "thinking", "server": self.message.server, **marks})
            elif written := as_text(part.get("text") or part.get("refusal")):
                self.message.append_text(written)
            elif (kind := as_text(part.get("type"))) not in _NO_KINDS:
                self.message.add_native(kind, "", part)

    def _append_legacy_call(self, item: Mapping[str, object]) -> None:
        if self._function_call is None:
            self._function_call = self.message.open_call("", as_text(item.get("name")))
            self._function_call.opaque["function_call"] = True
        self.message.append_arguments(self._function_call, as_arguments(item.get("arguments")))

    def _read_finish_reason(self, provider_reason: object) -> None:
        if not isinstance(provider_reason, str) or provider_reason.lower() == "null":
            return
        reason = finish_reason(provider_reason)
        self.message.set_finish_reason(reason, provider_reason)
        if reason == "error":
            self.message.add_fault(
                provider_reason.lower(), f"The server ended its answer with '{self.redact(provider_reason)[:200]}'.", retryable=True
            )


def _parse_usage(usage: Mapping[str, object]) -> Usage:
    """Return token counts; missing and invalid ones are 0.

    Some servers leave reasoning tokens out of the completion, but not out of the total.
    """
    prompt = as_token_count(usage.get("prompt_tokens") or usage.get("input_tokens"))
    completion = as_token_count(usage.get("completion_tokens") or usage.get("output_tokens"))
    uncounted = max(0, as_token_count(usage.get("total_tokens")) - prompt - completion)
    details = as_object(usage.get("completion_tokens_details"))
    cached = as_object(usage.get("prompt_tokens_details")).get("cached_tokens")
    return Usage(
        input_tokens=prompt,
        output_tokens=completion + uncounted,
        cached_tokens=as_token_count(cached or usage.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")),
        reasoning_tokens=as_token_count(details.get("reasoning_tokens") or usage.get("reasoning_tokens")) or uncounted,
    )
