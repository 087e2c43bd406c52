"""Mark outcomes that are not on record, and say so in their texts. Pure functions.

A result keeps its content, because its tool has run; a question is refused, because nobody could answer it later. Records nothing.
"""

from __future__ import annotations

from msgspec.structs import replace

from callgate._secret_redaction import Redactor, redacted_text
from callgate.calls import Aborted, Text, ToolResult
from callgate.errors import RecordFailed, RunHeld

__all__ = ["add_record_failure", "mark_new_result", "mark_unrecorded", "unrecorded_abort", "unrecorded_question", "unrecorded_refusal"]

_TELL_OPERATOR = "Tell the operator."


def add_record_failure(result: ToolResult, failure: RecordFailed | RunHeld, redactor: Redactor | None) -> ToolResult:
    """Return a result that says for the host what could not be recorded. It may be on record itself."""
    return replace(result, metadata=replace(result.metadata, record_failure=redacted_text(str(failure), redactor)))


def mark_unrecorded(result: ToolResult, failure: RecordFailed | RunHeld, redactor: Redactor | None) -> ToolResult:
    """Return a result marked as not on record. Its text says so already."""
    marked = add_record_failure(result, failure, redactor)
    return replace(marked, metadata=replace(marked.metadata, recorded=False))


def mark_new_result(result: ToolResult, failure: RecordFailed, redactor: Redactor | None) -> ToolResult:
    """Return a result marked as not on record, which its text says, too. A stored result is on record, only its repetition is not."""
    marked = mark_unrecorded(result, failure, redactor)
    if result.metadata.replayed:
        return marked
    said = None if result.error is None else f"{result.error} (not on record: {failure.told})"
    return replace(marked, content=(*result.content, Text(text=f"This is not on record: {failure.told}")), error=said)


def unrecorded_abort(outcome: Aborted, failure: RecordFailed, redactor: Redactor | None) -> Aborted:
    """Return the outcome of a call that ends its message, marked as not on record."""
    result = None if outcome.kept_result is None else mark_new_result(outcome.kept_result, failure, redactor)
    return replace(outcome, reason=f"{outcome.reason} (not on record: {failure})", recorded=False, kept_result=result)


def unrecorded_question(question: str, failure: RecordFailed) -> RecordFailed:
    """Return the refusal of a call whose question to a human is not on record."""
    text = f"It was not run: a human has to decide first ({question}), and the question could not be recorded"
    return RecordFailed(f"{text}: {failure}", code=failure.code, told=f"{text}: {failure.told} {_TELL_OPERATOR}")


def unrecorded_refusal(failure: RecordFailed) -> RecordFailed:
    """Return the refusal of a call that was not run and whose end is not on record."""
    return RecordFailed(f"It was not run: {failure.told} {_TELL_OPERATOR}", code=failure.code)
