"""Read chat completions, whole or streamed, from OpenAI and from everybody who says they speak the same.

They differ most in how a delta names its call: by index, by id, by both, by an index that is always 0, by nothing. `_call_of` is the one
place that decides which call a piece belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.models.events import FinishReason, Usage
from callgate.models.wire.decoder import Decoder
from callgate.models.wire.fields import arguments_of, count_of, items_of
from callgate.models.wire.open_call import OpenCall

__all__ = ["OpenAIChatDecoder", "chat_usage", "error_of"]

_REASONS: Mapping[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "end_turn": "stop",
    "tool_calls": "tool_calls",
    "tool_call": "tool_calls",
    "function_call": "tool_calls",
    "tool_use": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "content_filter",
    "error": "error",
}


_RETRYABLE = frozenset(
    {
        *("408", "409", "425", "429", "500", "502", "503", "504", "529"),
        *("server_error", "internal_error", "internal_server_error", "api_error", "timeout", "timeout_error"),
        *("overloaded", "overloaded_error", "engine_overloaded", "service_unavailable", "service_unavailable_error"),
        *("rate_limit", "rate_limit_error", "rate_limit_exceeded"),
    }
)
"""What servers call a failure of theirs that may be gone a moment later."""


class OpenAIChatDecoder(Decoder):
    """One chat completion."""

    api = "openai.chat"

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self._by_index: dict[int, OpenCall] = {}
        self._legacy: OpenCall | None = None

    def read(self, event: str, value: Mapping[str, object]) -> None:
        if value.get("error") or event == "error":
            code, message = error_of(value)
            self.message.fault(code, message, retryable=code.lower() in _RETRYABLE)
            return
        model = value.get("model")
        if model and isinstance(model, str):
            self.message.model = model
        usage = value.get("usage")
        if not usage and "x_groq" in value:
            usage = _inside(value, "x_groq", "usage")
        if usage and isinstance(usage, dict):
            self.message.usage(chat_usage(usage))
        choices = value.get("choices")
        if choices and isinstance(choices, list):
            for choice in choices:
                if isinstance(choice, dict) and not choice.get("index"):
                    self._choice(choice)

    def read_whole(self, value: Mapping[str, object]) -> None:
        self.read("", value)
        if not value.get("choices") and self.message.reason is None:
            self.message.fault("bad_frame", "The answer has no choices.")

    def _choice(self, choice: Mapping[str, object]) -> None:
        delta = choice.get("delta") or choice.get("message")
        if isinstance(delta, dict):
            self._delta(delta)
        if "delta" not in choice:
            self.message.seal_followed()
        said = choice.get("finish_reason")
        if said:
            usage = choice.get("usage")
            if isinstance(usage, dict):
                self.message.usage(chat_usage(usage))
            self._reason(said)

    def _delta(self, delta: Mapping[str, object]) -> None:
        content = delta.get("content")
        if len(delta) == 1 and type(content) is str:  # a piece of text and nothing else: nearly every frame
            self.message.text(content)
            return
        if "reasoning_content" in delta or "reasoning" in delta:
            self._thought(delta)
        if isinstance(content, str):
            self.message.text(content)
        elif content:
            self._parts(content)
        refusal = delta.get("refusal")
        if isinstance(refusal, str):
            self.message.text(refusal)
        calls = delta.get("tool_calls")
        if calls:
            begun = len(self.message.calls)
            for item in items_of(calls):
                self._tool_call(item, begun)
        legacy = delta.get("function_call")
        if isinstance(legacy, dict) and (self._legacy or any(legacy.values())):
            self._legacy_call(legacy)

    def _thought(self, delta: Mapping[str, object]) -> None:
        for key in ("reasoning_content", "reasoning"):
            thought = delta.get(key)
            if isinstance(thought, str) and thought:
                self.message.reasoning(thought, opaque={"key": key})
                break

    def _parts(self, content: object) -> None:
        for part in items_of(content):
            if part.get("type") == "thinking":
                thinking = part.get("thinking")
                text = thinking if isinstance(thinking, str) else "".join(_text(item.get("text")) for item in items_of(thinking))
                self.message.reasoning(text, opaque={"key": "thinking"})
            else:
                self.message.text(_text(part.get("text")))

    def _tool_call(self, item: Mapping[str, object], begun: int) -> None:
        """Take one item of a list of calls; `begun` calls were there before that list."""
        custom = item.get("custom")
        function = custom if isinstance(custom, dict) else item.get("function")
        fields = function if isinstance(function, dict) else item
        name = _text(fields.get("name"))
        arguments = arguments_of(fields.get("input") if isinstance(custom, dict) else fields.get("arguments", fields.get("parameters")))
        call = self._call_of(item, name, arguments, begun)
        if call is None and not (name or arguments or item.get("id")):
            return  # a place that is kept for a call
        if call is not None and name and call.complete and call.arguments == arguments:
            return  # the whole call once more
        if call is None:
            call = self.message.open(_text(item.get("id")), name, custom=isinstance(custom, dict))
        index = item.get("index")
        if isinstance(index, int):
            self._by_index[index] = call
        extra = item.get("extra_content")
        if extra is not None:
            call.opaque["extra_content"] = extra
            if self.message.server:
                call.opaque["server"] = self.message.server
        self.message.arguments(call, arguments)

    def _call_of(self, item: Mapping[str, object], name: str, arguments: str, begun: int) -> OpenCall | None:
        """The call that a piece goes on with; None where it begins one."""
        index, call_id = item.get("index"), _text(item.get("id"))
        calls = self.message.calls
        known = self._by_index.get(index) if isinstance(index, int) else calls[-1] if calls else None
        if known is None:
            return None
        if name and known.position >= begun and not (call_id == known.id and name == known.name):
            return None  # the items of one list are calls of their own
        if call_id and not known.made_id and call_id != known.id:
            same = next((call for call in calls if call.id == call_id), None)
            unnamed = known if isinstance(index, int) and not known.complete else None  # some give every piece a new id
            if not name:
                return same or unnamed
            return next((call for call in (same, unnamed) if call is not None and _goes_on(call, name, arguments)), None)
        if name and arguments and known.complete and not (call_id and call_id == known.id and arguments == known.arguments):
            return None  # a whole call under a number that is already taken
        if name and known.name != name:
            if known.name and known.arguments:
                return None
            self.message.named(known, name)
        if call_id and known.made_id:
            known.id, known.made_id = call_id, False
        return known

    def _legacy_call(self, item: Mapping[str, object]) -> None:
        if self._legacy is None:
            self._legacy = self.message.open("", _text(item.get("name")))
            self._legacy.opaque["function_call"] = True
        self.message.arguments(self._legacy, arguments_of(item.get("arguments")))

    def _reason(self, said: object) -> None:
        if isinstance(said, str):
            reason = _REASONS.get(said.lower(), "other")
            self.message.ends("tool_calls" if reason == "stop" and self.message.calls else reason, said)


def _goes_on(call: OpenCall, name: str, arguments: str) -> bool:
    """Whether a piece that says the name again is more of the call's arguments, since they are not whole and it begins none."""
    open_json = bool(call.arguments) and not call.custom and not call.complete
    return open_json and call.name == name and not arguments.lstrip().startswith("{")


def chat_usage(usage: Mapping[str, object]) -> Usage:
    """Token counts as chat completions write them; what is missing or odd counts as 0."""
    return Usage(
        input_tokens=count_of(usage.get("prompt_tokens")),
        output_tokens=count_of(usage.get("completion_tokens")),
        cached_tokens=count_of(_inside(usage, "prompt_tokens_details", "cached_tokens")),
        reasoning_tokens=count_of(_inside(usage, "completion_tokens_details", "reasoning_tokens")),
    )


def error_of(value: Mapping[str, object]) -> tuple[str, str]:
    """Code and message of an error frame."""
    error = value.get("error", value)
    if not isinstance(error, dict):
        return "error", str(error)
    return _text(error.get("code") or error.get("type") or "error"), _text(error.get("message") or error)


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _inside(value: Mapping[str, object], outer: str, inner: str) -> object:
    found = value.get(outer)
    return found.get(inner) if isinstance(found, dict) else None
