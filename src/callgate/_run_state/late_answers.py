"""Describe what a tool answered after its call had ended, for the record and for the operator who has to settle the call.

The recorder removes secrets from values; from errors, they are removed here, before an error is cut. Runs on the event loop, so it runs no
code of the tool's author: a value that only such code could read is described by its type.
"""

from __future__ import annotations

from callgate._json import exceeds, plain_bytes, small_jsonable, type_name
from callgate._run_state.event_bodies import clean
from callgate._secret_redaction import Redactor
from callgate.content_parts import part_text
from callgate.protocols import Execution

__all__ = ["late_answer_of"]

_MOST_BYTES = 65_536
"""The largest value that is recorded, as JSON."""
_ERROR_CHARS = 4_000


def late_answer_of(execution: Execution, redactor: Redactor | None) -> dict[str, object]:
    """Return what is recorded of a late answer: `value`, `error`, or `not_recorded` with the reason."""
    if execution.status != "returned" or execution.error or execution.failure is not None:
        return {"error": clean(_error_text(execution), redactor, _ERROR_CHARS)}
    if execution.content:
        return _value("\n".join(map(part_text, execution.content)))
    if execution.read:
        return _value(execution.value)
    found = small_jsonable(execution.value, _MOST_BYTES * 2)
    return _value(found[0]) if found is not None else {"not_recorded": f"a value of the type {type_name(execution.value)}"}


def _value(value: object) -> dict[str, object]:
    if exceeds(value, _MOST_BYTES) or len(plain_bytes(value)) > _MOST_BYTES:
        return {"not_recorded": f"a value of more than {_MOST_BYTES:,} bytes"}
    return {"value": value}


def _error_text(execution: Execution) -> str:
    if text := execution.failure or execution.error:
        return f"{execution.error_type}: {text}" if execution.error_type else text
    return type_name(execution.value) if isinstance(execution.value, BaseException) else execution.status
