"""Decode a response, whole or streamed: output items that are added, extended and done.

A server may leave any of these events out, and the last event may repeat all items: the end of an item adds only what
was not reported before. Items other than messages, reasoning, function calls and custom calls are actions that the
provider performed itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from callgate.models.model_events import FinishReason, Usage
from callgate.models.wire.base_decoder import Decoder
from callgate.models.wire.json_fields import as_arguments, as_object, as_objects, as_text, as_token_count
from callgate.models.wire.openai_responses.output_items import CALL_GROUP, CALL_KINDS, OutputItem, OutputItems, ReportedText
from callgate.models.wire.server_errors import error_from_body, find_error, parse_error
from callgate.models.wire.streaming_call import OpenCall

__all__ = ["OpenAIResponsesDecoder"]

_FINISH_REASONS: Mapping[str, FinishReason] = {"max_output_tokens": "length", "max_tokens": "length", "content_filter": "content_filter"}
_END_EVENTS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done"})
_PART_FIELDS = {"output_text": ("type", "text", "annotations"), "refusal": ("type", "refusal")}
"""The fields that are sent back of each part of a message's content, by its type."""
_CUT_STATUSES = frozenset({"incomplete", "failed"})
"""Statuses of an incomplete item. `in_progress` is not one: some servers never change it, and the response's status decides."""
_UNFINISHED_STATUSES = frozenset({"queued", "in_progress"})
"""Statuses of a response that goes on elsewhere, although its stream has ended."""
_ERROR_EVENTS = frozenset({"error", "response.error"})


class OpenAIResponsesDecoder(Decoder):
    """Decodes one response."""

    api = "openai.responses"

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self._items = OutputItems()
        self._has_orphan_arguments = False
        """Whether arguments arrived for a call that had not begun. The event that ends the call may still contain
        all of them.
        """

    def read_frame(self, event: str, value: Mapping[str, object]) -> None:
        kind = as_text(value.get("type")) or event
        match kind.removeprefix("response."):
            case "output_item.added":
                self._on_item_added(as_object(value.get("item")), value.get("output_index"))
            case "output_item.done":
                self._on_item_done(as_object(value.get("item")), value.get("output_index"))
            case "output_text.delta" | "refusal.delta":
                self._append_text(value, "message", as_text(value.get("delta")))
            case "output_text.done":
                self._append_text(value, "message", as_text(value.get("text")), whole=True)
            case "refusal.done":
                self._append_text(value, "message", as_text(value.get("refusal")), whole=True)
            case "reasoning_summary_text.delta" | "reasoning_text.delta":
                self._append_text(value, "reasoning", as_text(value.get("delta")))
            case "reasoning_summary_text.done" | "reasoning_text.done":
                self._append_text(value, "reasoning", as_text(value.get("text")), whole=True)
            case "function_call_arguments.delta" | "custom_tool_call_input.delta":
                self._append_arguments(value, as_arguments(value.get("delta")))
            case "function_call_arguments.done" | "custom_tool_call_input.done":
                self._append_arguments(value, as_arguments(value.get("arguments") or value.get("input")), whole=True)
            case "created":
                self._items = OutputItems()  # some gateways send several responses of one turn in one body
                self._read_model(as_object(value.get("response")))
            case _ if kind in _END_EVENTS:
                self._read_response(kind, as_object(value.get("response")))
            case "content_part.done" | "reasoning_summary_part.done":
                self._finish_part(value, as_object(value.get("part")))
            case "" if value.get("object") == "response":
                self._read_response("", value)
            case _ if kind in _ERROR_EVENTS:
                self.report_error(parse_error(value.get("error") or value))
            case _ if not kind.startswith("response.") and (error := find_error(value)):
                self.report_error(error)
            case _:
                self._read_model(as_object(value.get("response")))

    def read_body(self, value: Mapping[str, object]) -> None:
        if value.get("object") != "response" and "output" not in value:
            self.report_error(error_from_body(value, "The answer has no output."))
        else:
            self._read_response("", value)

    def _on_item_added(self, item: Mapping[str, object], index: object) -> None:
        if not self._items.is_repeated(item, index, done=False):
            self._begin_item(item, index)

    def _begin_item(self, item: Mapping[str, object], index: object) -> OutputItem:
        open_item = self._items.begin(item, index)
        if open_item.group == CALL_GROUP:
            open_item.call = self.message.open_call(
                open_item.call_id or open_item.id, open_item.name, custom=open_item.kind == "custom_tool_call"
            )
            open_item.call.opaque |= _provider_fields(item)
        elif open_item.kind == "reasoning":
            self.message.append_reasoning(opaque={"item": open_item.kept}, new_part=True)
        elif open_item.kind == "message":
            self._add_message_mark(item, open_item)
        return open_item

    def _add_message_mark(self, item: Mapping[str, object], open_item: OutputItem) -> None:
        """Keep a message's own id and phase as a part before its text. Only this API gets that part back."""
        open_item.kept |= {key: item[key] for key in ("id", "phase") if item.get(key)}
        if open_item.kept:
            self.message.append_reasoning(opaque={"message": open_item.kept}, new_part=True)

    def _on_item_done(self, item: Mapping[str, object], index: object) -> None:
        if not self._items.is_repeated(item, index, done=True):
            self._finish_item(item, self._items.find_by_item(item, index) or self._begin_item(item, index))

    def _finish_item(self, item: Mapping[str, object], open_item: OutputItem) -> None:
        self._items.finish(open_item)
        if open_item.call is not None:
            self._finish_call(item, open_item.call, open_item.initial_arguments)
        elif open_item.kind == "message":
            text = "".join(as_text(part.get("text") or part.get("refusal")) for part in as_objects(item.get("content")))
            if text.startswith(open_item.reported_text):
                self.message.append_text(text[len(open_item.reported_text) :])
            if parts := _parts_to_keep(as_objects(item.get("content"))):
                open_item.kept["content"] = parts
        elif open_item.kind == "reasoning":
            open_item.kept |= item
            for key in () if open_item.reported else ("summary", "content"):
                for position, part in enumerate(as_objects(item.get(key))):
                    self._report_text(open_item, (key, position), as_text(part.get("text")))
        elif item.get("type"):
            self.message.add_native(open_item.kind, as_text(item.get("id") or item.get("call_id")), dict(item))

    def _finish_call(self, item: Mapping[str, object], call: OpenCall, initial_arguments: object) -> None:
        call.opaque |= _provider_fields(item)
        call.name = call.name or as_text(item.get("name"))
        status, call_id = item.get("status"), as_text(item.get("call_id"))
        if call_id and call_id != call.id:
            self.message.reopen(call)
            self.message.set_call_id(call, call_id)
        if status in _CUT_STATUSES:
            self.message.cut(call)
        whole = as_arguments(item.get("input") if call.custom else item.get("arguments"))
        if whole or not call.arguments.size:
            self.message.set_arguments(call, whole or as_arguments(initial_arguments))
        if status != "in_progress" and (not call.custom or status == "completed"):
            self.message.seal(call)

    def _append_arguments(self, value: Mapping[str, object], text: str, *, whole: bool = False) -> None:
        found = self._items.find_by_event(value, CALL_GROUP)
        if found is None or found.call is None:
            self._has_orphan_arguments = True
        elif not whole:
            self.message.append_arguments(found.call, text)
        elif text:
            self.message.set_arguments(found.call, text)

    def _append_text(self, value: Mapping[str, object], kind: str, text: str, *, whole: bool = False) -> None:
        found = self._items.find_by_event(value, kind) or self._begin_item(
            {"type": kind, "id": value.get("item_id")}, value.get("output_index")
        )
        self._report_text(found, _text_key(value, kind), text, whole=whole)

    def _finish_part(self, value: Mapping[str, object], part: Mapping[str, object]) -> None:
        """Report the text of a finished part. Some servers send the text only there."""
        kind = "reasoning" if "summary_index" in value or part.get("type") == "reasoning_text" else "message"
        found = self._items.find_by_event(value, kind)
        if found is not None:
            self._report_text(found, _text_key(value, kind), as_text(part.get("text") or part.get("refusal")), whole=True)

    def _report_text(self, item: OutputItem, text_key: object, text: str, *, whole: bool = False) -> None:
        """Report a piece of text, or the part of a whole text that was not reported before."""
        is_new_text = bool(item.reported) and text_key not in item.reported
        reported = item.reported.setdefault(text_key, ReportedText())
        if whole:
            text = reported.unreported_part(text)
        if not text:
            return
        reported.add(text)
        if item.kind == "reasoning":
            self.message.append_reasoning(f"\n\n{text}" if is_new_text else text)
        else:
            self.message.append_text(text)

    def _read_model(self, response: Mapping[str, object]) -> None:
        self.message.model = as_text(response.get("model")) or self.message.model

    def _read_response(self, kind: str, response: Mapping[str, object]) -> None:
        self._read_model(response)
        status = as_text(response.get("status")) or kind.removeprefix("response.")
        complete = status in ("completed", "done", "") and not response.get("error")
        if isinstance(response.get("output"), list):
            self._read_output(as_objects(response.get("output")), complete=complete)
        usage = response.get("usage")
        if isinstance(usage, dict):
            self.message.set_usage(_parse_usage(usage))
        self._finish_open_items(complete=complete)
        self._read_status(status, response, complete=complete)

    def _read_output(self, output: Sequence[Mapping[str, object]], *, complete: bool) -> None:
        """Read the items of a whole response. What it says of a call takes precedence over what was streamed."""
        pairs = self._items.match_output(output)
        if not complete or any(item.get("type") in CALL_KINDS for item in output):  # some servers repeat no calls here
            for call in self._items.new_calls_except(begun for _, begun in pairs):
                self.message.cut(call)
        for item, begun in pairs:
            item = _with_final_status(item, complete=complete)
            if begun is None or not begun.done:
                self._finish_item(item, begun or self._begin_item(item, None))
            elif begun.call is not None:
                begun.call.cut = self.message.reason == "error"
                self._finish_call(item, begun.call, begun.initial_arguments)

    def _read_status(self, status: str, response: Mapping[str, object], *, complete: bool) -> None:
        if complete:
            self.message.set_finish_reason("stop", status or "completed")
        elif response.get("error") or status == "failed":
            self.report_error(parse_error(response.get("error") or "The response failed."))
        elif status in _UNFINISHED_STATUSES:
            self.message.set_finish_reason("cut", status)
        else:
            reason = as_text(as_object(response.get("incomplete_details")).get("reason")) or status
            self.message.set_finish_reason(_FINISH_REASONS.get(reason, "other"), reason)

    def _finish_open_items(self, *, complete: bool) -> None:
        """Finish the items that began and did not end.

        If the response is complete, the content that such an item began with is all of its content.
        """
        for item in self._items.take_unfinished():
            if item.call is not None:
                if complete or not item.call.sealed:
                    self._finish_call({"status": "" if complete else "incomplete"}, item.call, item.initial_arguments)
            elif complete and item.kind != "reasoning":
                self._finish_item(item.initial, item)
        if self._has_orphan_arguments and not self.message.calls:
            self.message.add_fault("bad_frame", "Arguments arrived that belong to no call.")


def _text_key(value: Mapping[str, object], kind: str) -> object:
    """Return the key of the text, among the texts of its item, that an event belongs to."""
    index = value.get("content_index") or 0
    if kind != "reasoning":
        return index
    return ("summary", value.get("summary_index") or 0) if "summary_index" in value else ("content", index)


def _with_final_status(item: Mapping[str, object], *, complete: bool) -> Mapping[str, object]:
    """Return an item of a response that has ended. If the response is incomplete, so is an item that was still in progress."""
    return item if complete or item.get("status") != "in_progress" else {**item, "status": "incomplete"}


def _provider_fields(item: Mapping[str, object]) -> dict[str, object]:
    """Return the fields that the API requires back with a call."""
    caller = as_object(item.get("caller"))
    fields = {key: item[key] for key in ("id", "namespace") if item.get(key)}
    return fields if caller.get("type", "direct") == "direct" else fields | {"caller": caller}


def _parts_to_keep(parts: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """Return the parts of a message's content as the API takes them back; empty if they are known from the text of the message."""
    if len(parts) < 2 and not any(part.get("annotations") or part.get("type") == "refusal" for part in parts):
        return []
    if any(part.get("type") not in _PART_FIELDS for part in parts):
        return []
    return [{key: part[key] for key in _PART_FIELDS[as_text(part["type"])] if key in part} for part in parts]


def _parse_usage(usage: Mapping[str, object]) -> Usage:
    return Usage(
        input_tokens=as_token_count(usage.get("input_tokens")),
        output_tokens=as_token_count(usage.get("output_tokens")),
        cached_tokens=as_token_count(as_object(usage.get("input_tokens_details")).get("cached_tokens")),
        reasoning_tokens=as_token_count(as_object(usage.get("output_tokens_details")).get("reasoning_tokens")),
    )
