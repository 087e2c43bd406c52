"""Read a response, whole or streamed: output items that are added, grow and are done.

Any of the three may be missing, and the last event may repeat all of them: what an item's end says counts as what had not been told before.
What is no message, reasoning, function call or custom call is something that the provider did itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.models.events import FinishReason, Usage
from callgate.models.wire.decoder import Decoder
from callgate.models.wire.failures import failure_in, failure_of, told
from callgate.models.wire.fields import arguments_of, count_of, items_of, object_of, text_of
from callgate.models.wire.open_call import OpenCall
from callgate.models.wire.openai_responses.items import CALL, Items, OutputItem, Told

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
        self._items = Items()
        self._lost = False
        """Arguments came for a call that had not begun; its end may still tell all."""

    def read(self, event: str, value: Mapping[str, object]) -> None:
        kind = text_of(value.get("type")) or event
        match kind.removeprefix("response."):
            case "output_item.added":
                self._begun(object_of(value.get("item")), value.get("output_index"))
            case "output_item.done":
                self._done(object_of(value.get("item")), value.get("output_index"))
            case "output_text.delta" | "refusal.delta":
                self._said(value, "message", text_of(value.get("delta")))
            case "output_text.done":
                self._said(value, "message", text_of(value.get("text")), whole=True)
            case "refusal.done":
                self._said(value, "message", text_of(value.get("refusal")), whole=True)
            case "reasoning_summary_text.delta" | "reasoning_text.delta":
                self._said(value, "reasoning", text_of(value.get("delta")))
            case "reasoning_summary_text.done" | "reasoning_text.done":
                self._said(value, "reasoning", text_of(value.get("text")), whole=True)
            case "function_call_arguments.delta" | "custom_tool_call_input.delta":
                self._piece(value, arguments_of(value.get("delta")))
            case "function_call_arguments.done" | "custom_tool_call_input.done":
                self._piece(value, arguments_of(value.get("arguments") or value.get("input")), whole=True)
            case "created":
                self._items = Items()  # perhaps the second of its turn: some gateways let them follow each other in one body
                self._model(object_of(value.get("response")))
            case _ if kind in _ENDS:
                self._end(kind, object_of(value.get("response")))
            case "content_part.done" | "reasoning_summary_part.done":
                self._part(value, object_of(value.get("part")))
            case "" if value.get("object") == "response":
                self._end("", value)
            case _ if kind in _ERRORS:
                self.failed(told(value.get("error") or value))
            case _ if not kind.startswith("response.") and (failure := failure_of(value)):
                self.failed(failure)
            case _:
                self._model(object_of(value.get("response")))

    def read_whole(self, value: Mapping[str, object]) -> None:
        if value.get("object") != "response" and "output" not in value:
            self.failed(failure_in(value, "The answer has no output."))
        else:
            self._end("", value)

    # Items

    def _begun(self, item: Mapping[str, object], index: object) -> None:
        if not self._items.has_had(item, index, done=False):
            self._added(item, index)

    def _added(self, item: Mapping[str, object], index: object) -> OutputItem:
        begun = self._items.begin(item, index)
        if begun.group == CALL:
            begun.call = self.message.open(begun.call_id or begun.id, begun.name, custom=begun.kind == "custom_tool_call")
            begun.call.opaque |= _echoed(item)
        elif begun.kind == "reasoning":
            self.message.reasoning(opaque={"item": begun.thought}, fresh=True)
        elif begun.kind == "message":
            self._mark(item)
        return begun

    def _mark(self, item: Mapping[str, object]) -> None:
        """A message's own id and phase stand before its text, as something that only this API wants back."""
        mark = {key: item[key] for key in ("id", "phase") if item.get(key)}
        if mark:
            self.message.reasoning(opaque={"message": mark}, fresh=True)

    def _done(self, item: Mapping[str, object], index: object) -> None:
        if not self._items.has_had(item, index, done=True):
            self._finish(item, self._items.of_item(item, index) or self._added(item, index))

    def _finish(self, item: Mapping[str, object], begun: OutputItem) -> None:
        self._items.finished(begun)
        if begun.call is not None:
            self._finish_call(item, begun.call, begun.given)
        elif begun.kind == "message":
            text = "".join(text_of(part.get("text") or part.get("refusal")) for part in items_of(item.get("content")))
            if text.startswith(begun.told):
                self.message.text(text[len(begun.told) :])
        elif begun.kind == "reasoning":
            begun.thought |= item
            for key in () if begun.said else ("summary", "content"):
                for place, part in enumerate(items_of(item.get(key))):
                    self._tell(begun, (key, place), text_of(part.get("text")))
        else:
            self.message.native(begun.kind, text_of(item.get("id") or item.get("call_id")), dict(item))

    def _finish_call(self, item: Mapping[str, object], call: OpenCall, given: object) -> None:
        call.opaque |= _echoed(item)
        call.name = call.name or text_of(item.get("name"))
        status = item.get("status")
        if status in _UNFINISHED and not call.sealed:
            call.cut = True
        whole = arguments_of(item.get("input") if call.custom else item.get("arguments"))
        if whole or not call.size:
            self.message.whole_arguments(call, whole or arguments_of(given))
        if status != "in_progress" and (not call.custom or status == "completed"):
            self.message.seal(call)

    def _piece(self, value: Mapping[str, object], text: str, *, whole: bool = False) -> None:
        found = self._items.of_event(value, CALL)
        if found is None or found.call is None:
            self._lost = True
        elif not whole:
            self.message.arguments(found.call, text)
        elif text:
            self.message.whole_arguments(found.call, text)

    # Text

    def _said(self, value: Mapping[str, object], kind: str, text: str, *, whole: bool = False) -> None:
        found = self._items.of_event(value, kind) or self._added({"type": kind, "id": value.get("item_id")}, value.get("output_index"))
        self._tell(found, _place(value, kind), text, whole=whole)

    def _part(self, value: Mapping[str, object], part: Mapping[str, object]) -> None:
        """A part is done: what it says is told by now, but for servers that say it here alone."""
        kind = "reasoning" if "summary_index" in value or part.get("type") == "reasoning_text" else "message"
        found = self._items.of_event(value, kind)
        if found is not None:
            self._tell(found, _place(value, kind), text_of(part.get("text") or part.get("refusal")), whole=True)

    def _tell(self, item: OutputItem, place: object, text: str, *, whole: bool = False) -> None:
        """Tell of a piece of text, or of as much of the whole text as was not told before."""
        new = bool(item.said) and place not in item.said
        told = item.said.setdefault(place, Told())
        if whole:
            text = told.rest_of(text)
        if not text:
            return
        told.add(text)
        if item.kind == "reasoning":
            self.message.reasoning(f"\n\n{text}" if new else text)
        else:
            self.message.text(text)

    # The response

    def _model(self, response: Mapping[str, object]) -> None:
        self.message.model = text_of(response.get("model")) or self.message.model

    def _end(self, kind: str, response: Mapping[str, object]) -> None:
        self._model(response)
        for item, begun in self._items.unseen(items_of(response.get("output"))):
            self._finish(item, begun or self._added(item, None))
        usage = response.get("usage")
        if isinstance(usage, dict):
            self.message.usage(_usage(usage))
        self._status(kind, response)

    def _status(self, kind: str, response: Mapping[str, object]) -> None:
        status = text_of(response.get("status")) or kind.removeprefix("response.")
        well = status in ("completed", "done", "") and not response.get("error")
        self._end_items(well=well)
        if well:
            self.message.ends("stop", status or "completed")
        elif response.get("error") or status == "failed":
            self.failed(told(response.get("error") or "The response failed."))
        else:
            said = text_of(object_of(response.get("incomplete_details")).get("reason")) or status
            self.message.ends(_INCOMPLETE.get(said, "other"), said)

    def _end_items(self, *, well: bool) -> None:
        """Items that were begun and never done: what they began with is all there was, if the response is whole."""
        for item in self._items.begun_since():
            if item.call is not None:
                self._finish_call({"status": "" if well else "incomplete"}, item.call, item.given)
            elif well and item.kind != "reasoning":
                self._finish(item.begun, item)
        if self._lost and not self.message.calls:
            self.message.fault("bad_frame", "Arguments came that belong to no call.")


def _place(value: Mapping[str, object], kind: str) -> object:
    """Which of an item's texts an event means."""
    place = value.get("content_index") or 0
    if kind != "reasoning":
        return place
    return ("summary", value.get("summary_index") or 0) if "summary_index" in value else ("content", place)


def _echoed(item: Mapping[str, object]) -> dict[str, object]:
    """What the API wants back with a call."""
    caller = object_of(item.get("caller"))
    echoed = {key: item[key] for key in ("id", "namespace") if item.get(key)}
    return echoed if caller.get("type", "direct") == "direct" else echoed | {"caller": caller}


def _usage(usage: Mapping[str, object]) -> Usage:
    return Usage(
        input_tokens=count_of(usage.get("input_tokens")),
        output_tokens=count_of(usage.get("output_tokens")),
        cached_tokens=count_of(object_of(usage.get("input_tokens_details")).get("cached_tokens")),
        reasoning_tokens=count_of(object_of(usage.get("output_tokens_details")).get("reasoning_tokens")),
    )
