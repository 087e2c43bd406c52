"""Read chat completions, whole or streamed, from OpenAI and from everybody who says they speak the same.

They differ most in how a delta names its call, which `calls` decides, and in what they say beside the message: of its end, its cost and
their failures.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.calls import Text
from callgate.messages import Reasoning, ToolCall
from callgate.models.events import Usage
from callgate.models.wire.decoder import Decoder
from callgate.models.wire.finish_reasons import finish_reason
from callgate.models.wire.json_fields import as_arguments, as_object, as_objects, as_text, as_token_count
from callgate.models.wire.open_call import OpenCall
from callgate.models.wire.openai_chat.call_matching import CallMatcher
from callgate.models.wire.openai_chat.provider_fields import PROVIDER_FIELDS, ProviderFields
from callgate.models.wire.server_errors import error_from_body, find_error

__all__ = ["OpenAIChatDecoder"]

_THOUGHTS = ("reasoning_content", "reasoning", "reasoning_text")
_BESIDE = frozenset({*_THOUGHTS, *PROVIDER_FIELDS, "refusal", "audio"})
_FIELDS: Mapping[type, tuple[str, ...]] = {
    Text: ("content", "refusal", "audio"),
    Reasoning: (*_THOUGHTS, *PROVIDER_FIELDS),
    ToolCall: ("tool_calls", "function_call"),
}


class OpenAIChatDecoder(Decoder):
    """One chat completion; of several choices the first."""

    api = "openai.chat"

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self._calls: CallMatcher | None = None
        self._legacy: OpenCall | None = None
        self._choice_read: object = None
        self._in_pieces = False
        self._echo = ProviderFields()

    def read_frame(self, event: str, value: Mapping[str, object]) -> None:
        choices = value.get("choices")
        if not choices or event or value.get("error"):
            failure = find_error(value, event)
            if failure is not None:
                self.report_error(failure)
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
                    self._take_choice(choice)

    def read_body(self, value: Mapping[str, object]) -> None:
        self.read_frame("", value)
        if not value.get("choices") and self.message.reason is None:
            self.report_error(error_from_body(value, "The answer has no choices."))

    def join_pieces(self) -> None:
        self._echo.put_together()

    def _take_choice(self, choice: Mapping[str, object]) -> None:
        number = choice.get("index") or 0
        if self._choice_read is None:
            self._choice_read = number
        if number != self._choice_read:
            return
        delta, whole = choice.get("delta"), choice.get("message")
        if isinstance(delta, dict):
            self._in_pieces = True
            self._delta(delta)
        if isinstance(whole, dict) and (not isinstance(delta, dict) or choice.get("finish_reason")):
            self._delta(self._untold(whole) if self._in_pieces else whole)
        if "delta" not in choice:
            self.message.seal_followed()
        if choice.get("error"):
            self.report_error(find_error(choice) or ("error", ""))
        said = choice.get("finish_reason")
        if said:
            usage = choice.get("usage")
            if isinstance(usage, dict):
                self.message.set_usage(_parse_usage(usage))
            self._reason(said)

    def _delta(self, delta: Mapping[str, object]) -> None:
        content = delta.get("content")
        if len(delta) == 1 and type(content) is str:  # a piece of text and nothing else: nearly every frame
            self.message.append_text(content)
            return
        for key, value in delta.items():
            if value and key in _BESIDE:
                self._beside(delta)
                break
        if isinstance(content, str):
            self.message.append_text(content)
        elif content:
            self._parts(content)
        calls = delta.get("tool_calls")
        if calls:
            self._calls = self._calls or CallMatcher(self.message)
            self._calls.take(as_objects(calls))
        legacy = delta.get("function_call") if not calls else None  # the older form of the same
        if isinstance(legacy, dict) and (self._legacy or any(legacy.values())):
            self._legacy_call(legacy)

    def _untold(self, whole: Mapping[str, object]) -> Mapping[str, object]:
        """Of the whole message behind its pieces, the fields of which no piece has told."""
        told = {key for kind, keys in _FIELDS.items() if self.message.has_part(kind) for key in keys}
        return {key: value for key, value in whole.items() if key not in told}

    def _beside(self, delta: Mapping[str, object]) -> None:
        """Take what stands in other fields than the content: thoughts, and text of another kind."""
        for said in (delta.get("refusal"), as_object(delta.get("audio")).get("transcript")):
            if isinstance(said, str):
                self.message.append_text(said)
        for key in _THOUGHTS:
            thought = delta.get(key)
            if isinstance(thought, str) and thought:
                self.message.append_reasoning(thought, opaque={"key": key})
                break
        fresh = not self._echo.fields
        if self._echo.grow(delta) and fresh:
            self.message.append_reasoning(opaque={"echo": self._echo.fields, "server": self.message.server})

    def _parts(self, content: object) -> None:
        for text in content if isinstance(content, list) else ():
            if isinstance(text, str):
                self.message.append_text(text)
        for part in as_objects(content):
            if part.get("type") == "thinking":
                thinking = part.get("thinking")
                text = thinking if isinstance(thinking, str) else "".join(as_text(item.get("text")) for item in as_objects(thinking))
                self.message.append_reasoning(text, opaque={"key": "thinking"})
            else:
                self.message.append_text(as_text(part.get("text") or part.get("refusal")))

    def _legacy_call(self, item: Mapping[str, object]) -> None:
        if self._legacy is None:
            self._legacy = self.message.open_call("", as_text(item.get("name")))
            self._legacy.opaque["function_call"] = True
        self.message.append_arguments(self._legacy, as_arguments(item.get("arguments")))

    # The end

    def _reason(self, said: object) -> None:
        if not isinstance(said, str) or said.lower() == "null":
            return
        reason = finish_reason(said)
        self.message.set_finish_reason(reason, said)
        if reason == "error":
            self.message.add_fault(said.lower(), f"The server ended its answer with '{self.redact(said)[:200]}'.", retryable=True)


def _parse_usage(usage: Mapping[str, object]) -> Usage:
    """Token counts; what is missing or odd counts as 0.

    Some servers leave what was thought out of the completion, but not out of the total.
    """
    sent = as_token_count(usage.get("prompt_tokens") or usage.get("input_tokens"))
    written = as_token_count(usage.get("completion_tokens") or usage.get("output_tokens"))
    unnamed = max(0, as_token_count(usage.get("total_tokens")) - sent - written)
    details = as_object(usage.get("completion_tokens_details"))
    cached = as_object(usage.get("prompt_tokens_details")).get("cached_tokens")
    return Usage(
        input_tokens=sent,
        output_tokens=written + unnamed,
        cached_tokens=as_token_count(cached or usage.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")),
        reasoning_tokens=as_token_count(details.get("reasoning_tokens") or usage.get("reasoning_tokens")) or unnamed,
    )
