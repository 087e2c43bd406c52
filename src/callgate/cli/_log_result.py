"""`callgate log result`: print the whole result of one call, from the journal or its blob store. Only reads."""

from __future__ import annotations

from callgate._call_summary import CallSummary, summarise
from callgate._media_types import media_type
from callgate.cli import _exit_codes as _exits
from callgate.cli._call_arguments import refuse_odd_text
from callgate.cli._command_options import LogOptions
from callgate.cli._console import say, write_text
from callgate.cli._journal_location import journal_option, stored_blobs
from callgate.cli._journal_reading import end_orphans, reading
from callgate.cli._show_log import events_of
from callgate.errors import UsageError

__all__ = ["show_result"]


def show_result(identity: str, options: LogOptions) -> int:
    """Print the whole result of one call; return the exit code."""
    refuse_odd_text(id=identity)
    with reading(options) as reader:
        call = _one_call(summarise(events_of(reader, identity, options.journal)), identity, options.journal)
        end_orphans([call], options.journal)
        blobs = stored_blobs(reader, options.journal) if call.blob else None
        whole = blobs.get(call.blob) if blobs is not None else None
    if not call.result:
        why, place = f" ({call.error})" if call.error else "", journal_option(options.journal)
        say(f"{call.uid} has no result: its status is '{call.status}'{why}. `callgate log show {call.uid}{place}` shows its events.", "red")
        return _exits.FAILED
    if call.blob and whole is None:
        say(
            f"The whole result of {call.uid} is no longer stored ({call.bytes:,} bytes). This is the part that the model was shown.",
            "yellow",
        )
    text = _content(call) if whole is None or _is_binary(whole) else whole.decode("utf-8", "replace")
    write_text(text if text.endswith("\n") else f"{text}\n")
    return _exits.FAILED if call.blob and whole is None else _exits.OK


def _one_call(calls: list[CallSummary], identity: str, journal: str) -> CallSummary:
    if len(calls) == 1:
        return calls[0]
    some = ", ".join(call.uid for call in calls[-3:]) or f"see `callgate log list{journal_option(journal)}`"
    raise UsageError(f"'{identity[:80]}' names {len(calls)} calls. Give the id of one: {some}.")


def _content(call: CallSummary) -> str:
    """Return the parts of the result that the model was shown, as text: an image as `[image/png]`."""
    parts = call.result.get("content")
    shown = [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return "\n".join(text if isinstance(text := part.get("text"), str) else f"[{part.get('mimeType', part.get('type'))}]" for part in shown)


def _is_binary(whole: bytes) -> bool:
    """Return whether a stored value is an image or another file that is not text."""
    return not media_type(whole).startswith("text/")
