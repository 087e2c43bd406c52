"""Read a response, whole or streamed: output items that are added, grow and are done.

Any of the three may be missing, and the last event may repeat all of them: what an item's end says counts as what had not been told before.
What is no message, reasoning, function call or custom call is something that the provider did itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.models.events import FinishReason, Usage
from callgate.models.wire.decoder import Decoder
from callgate.models.wire.json_fields import as_arguments, as_object, as_objects, as_text, as_token_count
from callgate.models.wire.open_call import OpenCall
from callgate.models.wire.openai_responses.output_items import CALL_GROUP, OutputItem, OutputItems, ReportedText
from callgate.models.wire.server_errors import error_from_body, find_error, parse_error

__all__ = ["OpenAIResponsesDecoder"]

_INCOMPLETE: Mapping[str, FinishReason] = {"max_output_tokens": "length", "max_tokens": "length", "content_filter": "content_filter"}
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done"})
_UNFINISHED = frozenset({"incomplete", "failed"})
"""An item that is still `in_progress` when it is done is one of a server that forgets to say otherwise: the response tells."""
_ERRORS = frozenset({"error", "response.error"})


class OpenAIResponsesDecoder(Decoder):
    """One response."""

    api = "openai.responses"

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self._items = OutputItems()
        self._lost = False
        """Arguments came for a call that had not begun; its end may still tell all."""

    def read_frame(self, event: str, value: Mapping[str, object]) -> None:
        kind = as_text(value.get("type")) or event
        match kind.removeprefix("response."):
            case "output_item.added":
                self._begun(as_object(value.get("item")), value.get("output_index"))
            case "output_item.done":
                self._done(as_object(value.get("item")), value.get("output_index"))
            case "output_text.delta" | "refusal.delta":
                self._said(value, "message", as_text(value.get("delta")))
            case "output_text.done":
                self._said(value, "message", as_text(value.get("text")), whole=True)
            case "refusal.done":
                self._said(value, "message", as_text(value.get("refusal")), whole=True)
            case "reasoning_summary_text.delta" | "reasoning_text.delta":
                self._said(value, "reasoning", as_text(value.get("delta")))
            case "reasoning_summary_text.done" | "reasoning_text.done":
                self._said(value, "reasoning", as_text(value.get("text")), whole=True)
            case "function_call_arguments.delta" | "custom_tool_call_input.delta":
                self._piece(value, as_arguments(value.get("delta")))
            case "function_call_arguments.done" | "custom_tool_call_input.done":
                self._piece(value, as_arguments(value.get("arguments") or value.get("input")), whole=True)
            case "created":
                self._items = OutputItems()  # perhaps the second of its turn: some gateways let them follow each other in one body
                self._model(as_object(value.get("response")))
            case _ if kind in _ENDS:
                self._end(kind, as_object(value.get("response")))
            case "content_part.done" | "reasoning_summary_part.done":
                self._part(value, as_object(value.get("part")))
            case "" if value.get("object") == "response":
                self._end("", value)
            case _ if kind in _ERRORS:
                self.report_error(parse_error(value.get("error") or value))
            case _ if not kind.startswith("response.") and (failure := find_error(value)):
                self.report_error(failure)
            case _:
                self._model(as_object(value.get("response")))

    def read_body(self, value: Mapping[str, object]) -> None:
        if value.get("object") != "response" and "output" not in value:
            self.report_error(error_from_body(value, "The answer has no output."))
        else:
            self._end("", value)

    # Items

    def _begun(self, item: Mapping[str, object], index: object) -> None:
        if not self._items.has_had(item, index, done=False):
            self._added(item, index)

    def _added(self, item: Mapping[str, object], index: object) -> OutputItem:
        begun = self._items.begin(item, index)
        if begun.group == CALL_GROUP:
            begun.call = self.message.open_call(begun.call_id or begun.id, begun.name, custom=begun.kind == "custom_tool_call")
            begun.call.opaque |= _echoed(item)
        elif begun.kind == "reasoning":
            self.message.append_reasoning(opaque={"item": begun.thought}, fresh=True)
        elif begun.kind == "message":
            self._mark(item)
        return begun

    def _mark(self, item: Mapping[str, object]) -> None:
        """A message's own id and phase stand before its text, as something that only this API wants back."""
        mark = {key: item[key] for key in ("id", "phase") if item.get(key)}
        if mark:
            self.message.append_reasoning(opaque={"message": mark}, fresh=True)

    def _done(self, item: Mapping[str, object], index: object) -> None:
        if not self._items.has_had(item, index, done=True):
            self._finish(item, self._items.of_item(item, index) or self._added(item, index))

    def _finish(self, item: Mapping[str, object], begun: OutputItem) -> None:
        self._items.finished(begun)
        if begun.call is not None:
            self._finish_call(item, begun.call, begun.given)
        elif begun.kind == "message":
            text = "".join(as_text(part.get("text") or part.get("refusal")) for part in as_objects(item.get("content")))
            if text.startswith(begun.told):
                self.message.append_text(text[len(begun.told) :])
        elif begun.kind == "reasoning":
            begun.thought |= item
            for key in () if begun.said else ("summary", "content"):
                for place, part in enumerate(as_objects(item.get(key))):
                    self._tell(begun, (key, place), as_text(part.get("text")))
        else:
            self.message.add_native(begun.kind, as_text(item.get("id") or item.get("call_id")), dict(item))

    def _finish_call(self, item: Mapping[str, object], call: OpenCall, given: object) -> None:
        call.opaque |= _echoed(item)
        call.name = call.name or as_text(item.get("name"))
        status = item.get("status")
        if status in _UNFINISHED and not call.sealed:
            call.cut = True
        whole = as_arguments(item.get("input") if call.custom else item.get("arguments"))
        if whole or not call.size:
            self.message.set_arguments(call, whole or as_arguments(given))
        if status != "in_progress" and (not call.custom or status == "completed"):
            self.message.seal(call)

    def _piece(self, value: Mapping[str, object], text: str, *, whole: bool = False) -> None:
        found = self._items.of_event(value, CALL_GROUP)
        if found is None or found.call is None:
            self._lost = True
        elif not whole:
            self.message.append_arguments(found.call, text)
        elif text:
            self.message.set_arguments(found.call, text)

    # Text

    def _said(self, value: Mapping[str, object], kind: str, text: str, *, whole: bool = False) -> None:
        found = self._items.of_event(value, kind) or self._added({"type": kind, "id": value.get("item_id")}, value.get("output_index"))
        self._tell(found, _place(value, kind), text, whole=whole)

    def _part(self, value: Mapping[str, object], part: Mapping[str, object]) -> None:
        """A part is done: what it says is told by now, but for servers that say it here alone."""
        kind = "reasoning" if "summary_index" in value or part.get("type") == "reasoning_text" else "message"
        found = self._items.of_event(value, kind)
        if found is not None:
            self._tell(found, _place(value, kind), as_text(part.get("text") or part.get("refusal")), whole=True)

    def _tell(self, item: OutputItem, place: object, text: str, *, whole: bool = False) -> None:
        """Tell of a piece of text, or of as much of the whole text as was not told before."""
        new = bool(item.said) and place not in item.said
        parse_error = item.said.setdefault(place, ReportedText())
        if whole:
            text = parse_error.rest_of(text)
        if not text:
            return
        parse_error.add(text)
        if item.kind == "reasoning":
            self.message.append_reasoning(f"\n\n{text}" if new else text)
        else:
            self.message.append_text(text)

    # The response

    def _model(self, response: Mapping[str, object]) -> None:
        self.message.model = as_text(response.get("model")) or self.message.model

    def _end(self, kind: str, response: Mapping[str, object]) -> None:
        self._model(response)
        for item, begun in self._items.unseen(as_objects(response.get("output"))):
            self._finish(item, begun or self._added(item, None))
        usage = response.get("usage")
        if isinstance(usage, dict):
            self.message.set_usage(_usage(usage))
        self._status(kind, response)

    def _status(self, kind: str, response: Mapping[str, object]) -> None:
        status = as_text(response.get("status")) or kind.removeprefix("response.")
        well = status in ("completed", "done", "") and not response.get("error")
        self._end_items(well=well)
        if well:
            self.message.set_finish_reason("stop", status or "completed")
        elif response.get("error") or status == "failed":
            self.report_error(parse_error(response.get("error") or "The response failed."))
        else:
            said = as_text(as_object(response.get("incomplete_details")).get("reason")) or status
            self.message.set_finish_reason(_INCOMPLETE.get(said, "other"), said)

    def _end_items(self, *, well: bool) -> None:
        """Items that were begun and never done: what they began with is all there was, if the response is whole."""
        for item in self._items.begun_since():
            if item.call is not None:
                self._finish_call({"status": "" if well else "incomplete"}, item.call, item.given)
            elif well and item.kind != "reasoning":
                self._finish(item.begun, item)
        if self._lost and not self.message.calls:
            self.message.add_fault("bad_frame", "Arguments came that belong to no call.")


def _place(value: Mapping[str, object], kind: str) -> object:
    """Which of an item's texts an event means."""
    place = value.get("content_index") or 0
    if kind != "reasoning":
        return place
    return ("summary", value.get("summary_index") or 0) if "summary_index" in value else ("content", place)


def _echoed(item: Mapping[str, object]) -> dict[str, object]:
    """What the API wants back with a call."""
    caller = as_object(item.get("caller"))
    echoed = {key: item[key] for key in ("id", "namespace") if item.get(key)}
    return echoed if caller.get("type", "direct") == "direct" else echoed | {"caller": caller}


def _usage(usage: Mapping[str, object]) -> Usage:
    return Usage(
        input_tokens=as_token_count(usage.get("input_tokens")),
        output_tokens=as_token_count(usage.get("output_tokens")),
        cached_tokens=as_token_count(as_object(usage.get("input_tokens_details")).get("cached_tokens")),
        reasoning_tokens=as_token_count(as_object(usage.get("output_tokens_details")).get("reasoning_tokens")),
    )
