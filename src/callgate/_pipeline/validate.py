"""Check a call's arguments against its tool, and put right what the schema alone can put right.

After `resolve`, before any policy, so that a policy sees the arguments the tool will get. Everything that is wrong is said at once. What
was coerced or dropped is noted. A tool's own validator has the last word before the schema's: what it cleans is checked again, and if it
fails, the call fails. A function's own defaults are written in, so that a policy judges what the function will really get. Must not start
the tool.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import is_own_failure
from callgate._json import canonical, decode, strict_object
from callgate._limits import Limits
from callgate._pipeline.quoting import notes_on_value, quoted_value
from callgate._pipeline.record import MOST_CHARS
from callgate._redact import Redactor
from callgate._schema import ValidationProblem
from callgate.calls import Note, Scope
from callgate.errors import ArgumentsInvalid, CallDenied, CallFailed, ToolRaised
from callgate.route import ResolvedCall, ValidatedCall
from callgate.tools.argument_cleaning import fitted, without
from callgate.tools.base import ValidationResult
from callgate.tools.registry import BoundTool

__all__ = ["Modified", "modified", "revalidate", "validate"]

_CODES = {"backtracking": "regex_budget", "budget": "regex_budget"}
_MAX_MESSAGE = 3_000
_LIMITS = Limits()


Arguments = dict[str, object]
Notes = tuple[Note, ...]
Details = dict[str, object] | None


class Redacting(Protocol):
    """What keeps secrets out of what is told."""

    @property
    def redactor(self) -> Redactor | None: ...

    def cut(self, text: object, chars: int = ...) -> str:
        """The first characters of a text, redacted before it is cut."""
        ...


def validate(call: ResolvedCall, scope: Scope, *, coerce: bool) -> ValidatedCall:
    """The call with arguments that its tool accepts.

    Args:
        call: Its parsed arguments belong to this call alone; they become the validated ones, or are copied where anything changes.
        scope: Goes with the call from here on.
        coerce: The engine's setting; a tool's own overrides it.

    Raises:
        ArgumentsInvalid: `details["errors"]` has `path`, `expected`, `got` and `passes` of everything that is wrong.
        ToolRaised: The tool's own validator failed.
    """
    tool, parsed, notes = call.tool, call.parsed, call.notes
    arguments = parsed.arguments
    unknown = not tool.keywords.fit(arguments) or (tool.takes is not None and not arguments.keys() <= tool.takes)
    if unknown or parsed.whole_floats or tool.exacting or not tool.schema.is_valid(arguments):
        arguments, more = _checked(tool, arguments, coerce if tool.coerce is None else tool.coerce, parsed.raw.arguments)
        notes += more
    return ValidatedCall(uid=parsed.uid, raw=parsed.raw, tool=tool, scope=scope, arguments=arguments, notes=notes)


def revalidate(call: ValidatedCall, arguments: Arguments, *, limits: Limits = _LIMITS) -> ValidatedCall:
    """The call with other arguments, which somebody other than the model wrote: held to the same rules, never coerced.

    Args:
        arguments: Copied.

    Raises:
        ArgumentsMalformed: They are no JSON object.
        ArgumentsInvalid: The tool does not accept them.
        ToolRaised: The tool's own validator failed.
    """
    checked, notes = _checked(call.tool, strict_object(arguments, limits), False)
    return ValidatedCall(
        uid=call.uid, raw=call.raw, tool=call.tool, scope=call.scope, arguments=checked, notes=call.notes + notes if notes else call.notes
    )


class Modified(Struct, frozen=True, kw_only=True):
    """A call whose arguments a policy or a hook has changed, and who changed them why."""

    call: ValidatedCall
    reason: str
    rule: str = ""
    hook: str = ""


def modified(call: ValidatedCall, arguments: Arguments, reason: str, told: Redacting, details: Details = None) -> ValidatedCall:
    """The call as a hook or policy wants it, validated again, with a note that the model will see.

    Args:
        details: Of the denial, where the tool does not accept these arguments.

    Raises:
        CallDenied: The tool does not accept these arguments.
    """
    try:
        fresh = revalidate(call, arguments)
    except CallFailed as error:
        why = quoted_value(arguments, str(error), partial(_refusal, call, type(error)), told.redactor)
        raise CallDenied(
            f"{call.name} was denied: {told.cut(reason, MOST_CHARS)}, and the new arguments are not valid: {why}",
            code="modification_invalid",
            details=details,
        ) from error
    fresh = replace(fresh, notes=notes_on_value(arguments, fresh.notes, lambda copy: revalidate(call, copy).notes, told.redactor))
    before, after = ({name: canonical(value) for name, value in one.arguments.items()} for one in (call, fresh))
    changed = ", ".join(sorted(name for name in {*before, *after} if before.get(name) != after.get(name)))
    note = Note(
        kind="modified", text=f"The arguments were changed before the call ran ({told.cut(changed, 500)}): {told.cut(reason, MOST_CHARS)}."
    )
    return replace(fresh, notes=(*fresh.notes, note))


def _refusal(call: ValidatedCall, kind: type[CallFailed], arguments: Arguments) -> str:
    """What refuses these arguments; empty where nothing of that kind does."""
    try:
        revalidate(call, arguments)
    except kind as error:
        return str(error)
    return ""


def _checked(tool: BoundTool, arguments: Arguments, coerce: bool, source: object = None) -> tuple[Arguments, Notes]:
    arguments, notes, problems = fitted(tool.schema, tool.takes, arguments, coerce=coerce, source=source)
    if problems:
        raise _invalid(tool, problems, notes)
    if tool.own_validator:
        arguments, more = _by_the_tool(tool, arguments)
        notes += more
    if not tool.keywords.fit(arguments):
        arguments, more = without(arguments, tool.keywords.unexpected(arguments), tool.keywords.names or ())
        notes += more
    if tool.defaults and not tool.defaults.keys() <= arguments.keys():
        arguments = {**decode(canonical(tool.defaults)), **arguments}
    return arguments, notes


def _invalid(tool: BoundTool, problems: list[ValidationProblem], notes: Notes) -> ArgumentsInvalid:
    errors = [{"path": item.path, "expected": item.expected, "got": item.got, "passes": item.passes} for item in problems]
    code = next((_CODES[item.keyword] for item in problems if item.keyword in _CODES), None)
    dropped = [note.text for note in notes if note.kind == "dropped"]  # one may be the name that was meant
    return _refused(tool, [item.message for item in problems] + dropped, errors, code)


def _refused(tool: BoundTool, sentences: list[str], errors: list[dict[str, object]], code: str | None = None) -> ArgumentsInvalid:
    shown = "\n".join(f"- {sentence[:600]}" for sentence in sentences)
    shown = shown if len(shown) <= _MAX_MESSAGE else shown[:_MAX_MESSAGE] + "…"
    return ArgumentsInvalid(
        f"{tool.name} was not run: its arguments are not accepted. Correct these and call it again:\n{shown}",
        code=code,
        details={"errors": errors},
    )


def _by_the_tool(tool: BoundTool, arguments: Arguments) -> tuple[Arguments, Notes]:
    """Ask the tool's own validator, which gets a copy."""
    try:
        found: Any = tool.tool.own_validation(strict_object(arguments, _LIMITS))
    except BaseException as error:
        if not is_own_failure(error):
            raise
        raise _broken(tool, f"its own validator failed with {type(error).__name__}") from error
    if not isinstance(found, ValidationResult):
        raise _broken(tool, f"its own validator returned {type(found).__name__} instead of ValidationResult")
    if not found.valid or found.errors:
        sentences = [str(item) for item in found.errors[:20]] or ["the tool does not accept them, and does not say why"]
        raise _refused(tool, sentences, [{"path": "", "expected": text[:600], "got": "", "passes": None} for text in sentences])
    notes = tuple(Note(kind="warning", text=str(item)[:600]) for item in found.warnings[:20])
    return (_cleaned(tool, found.cleaned_params), notes) if found.cleaned_params else (arguments, notes)


def _cleaned(tool: BoundTool, params: dict[str, Any]) -> Arguments:
    try:
        cleaned = strict_object(params, _LIMITS)
    except Exception as error:
        raise _broken(tool, "its own validator returned arguments that are no JSON data") from error
    if not tool.schema.is_valid(cleaned):
        first = tool.schema.problems(cleaned)[0].message
        raise _broken(tool, f"its own validator returned arguments that break the tool's schema ({first[:300]})")
    return cleaned


def _broken(tool: BoundTool, fact: str) -> ToolRaised:
    return ToolRaised(f"{tool.name} was not run: {fact}. Do not repeat the call; its author has to look.", code="validator_failed")
