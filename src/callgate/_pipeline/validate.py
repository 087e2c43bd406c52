"""Check a call's arguments against its tool, and correct what the schema alone can correct.

Runs after `resolve` and before any policy, so that policies see the arguments that the tool will get. All errors are
reported at once, and each conversion or dropped argument is noted. The tool's own validator runs last; arguments that
it changes are checked against the schema again, and if it fails, the call fails. Defaults of a function are added, so
that a policy judges the arguments that the function really gets. `redacted_quotes` removes secrets from the errors
and notes. Must not start the tool.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import is_own_failure
from callgate._engine_limits import Limits
from callgate._json import canonical, decode, plain_bytes, strict_object
from callgate._pipeline.redacted_quotes import redact_notes_on, redact_problem
from callgate._run_state.event_bodies import MOST_CHARS
from callgate._schema import ValidationProblem, without_new_number
from callgate._secret_redaction import Redactor
from callgate.calls import Note, Scope
from callgate.errors import ArgumentsInvalid, CallDenied, CallFailed, ToolRaised
from callgate.stage_types import ResolvedCall, ValidatedCall
from callgate.tools.argument_cleaning import fitted, without
from callgate.tools.registry import BoundTool
from callgate.tools.tool_declaration import TypedFindings, ValidationResult

__all__ = ["ModifiedCall", "Redacting", "convert_arguments", "modify_call", "revalidate", "validate"]

_CODES = {"backtracking": "regex_budget", "budget": "regex_budget"}
_MAX_MESSAGE = 3_000
_LIMITS = Limits()


Arguments = dict[str, object]
Notes = tuple[Note, ...]
Details = dict[str, object] | None


class Redacting(Protocol):
    """Removes secrets from texts for the model."""

    @property
    def redactor(self) -> Redactor | None: ...

    def cut(self, text: object, chars: int = ...) -> str:
        """Return the first characters of a text. It is redacted before it is cut."""
        ...


def validate(call: ResolvedCall, scope: Scope, *, coerce: bool) -> ValidatedCall:
    """Return the call with arguments that its tool accepts.

    Args:
        call: The call. Its parsed arguments belong to this call alone; they become the validated ones, or are copied if
            anything changes.
        scope: The scope of the call.
        coerce: The engine's setting; a tool's own setting takes precedence.

    Raises:
        ArgumentsInvalid: The arguments are not accepted. `details["errors"]` has `path`, `expected`, `got` and `passes`
            of each error.
        ToolRaised: The tool's own validator failed.
    """
    tool, parsed, notes = call.tool, call.parsed, call.notes
    arguments = parsed.arguments
    names = tool.keywords.names
    unknown = not arguments.keys() <= names if names is not None else not tool.keywords.fit(arguments)
    unknown = unknown or (tool.takes is not None and not arguments.keys() <= tool.takes)
    if unknown or parsed.whole_floats or tool.exacting or not tool.schema.is_valid(arguments):
        arguments, more = _check_arguments(tool, arguments, coerce if tool.coerce is None else tool.coerce, parsed.raw.arguments)
        notes += more
    return ValidatedCall(uid=parsed.uid, raw=parsed.raw, tool=tool, scope=scope, arguments=arguments, notes=notes)


def revalidate(call: ValidatedCall, arguments: Arguments, *, coerce: bool = False, limits: Limits = _LIMITS) -> ValidatedCall:
    """Return the call with other arguments, which the model did not write. They must meet the same rules.

    Args:
        arguments: The new arguments. They are copied.
        coerce: Whether they are converted as the model's are; those of a program are not.

    Raises:
        ArgumentsMalformed: They are not a JSON object.
        ArgumentsInvalid: The tool does not accept them.
        ToolRaised: The tool's own validator failed.
    """
    checked, notes = _check_arguments(call.tool, strict_object(arguments, limits), coerce)
    return ValidatedCall(
        uid=call.uid, raw=call.raw, tool=call.tool, scope=call.scope, arguments=checked, notes=call.notes + notes if notes else call.notes
    )


def convert_arguments(tool: BoundTool, arguments: Arguments, *, coerce: bool) -> tuple[Arguments, Notes]:
    """Return the arguments that a human gives for a call of this tool, converted as the model's are, and the notes about them.

    They are checked in full; defaults are not added. Raises the same errors as `revalidate`.
    """
    notes = _check_arguments(tool, strict_object(arguments, _LIMITS), coerce)[1]
    return fitted(tool.schema, tool.takes, strict_object(arguments, _LIMITS), coerce=coerce)[0], notes


class ModifiedCall(Struct, frozen=True, kw_only=True):
    """A call whose arguments a policy, a hook or a human has changed, with the source of the change and the reason."""

    call: ValidatedCall
    reason: str
    rule: str = ""
    hook: str = ""
    approval: str = ""
    """The question to a human who changed the arguments with the answer; empty if there is none."""


def modify_call(
    call: ValidatedCall, arguments: Arguments, reason: str, redacting: Redacting, details: Details = None, *, coerce: bool = False
) -> ValidatedCall:
    """Return the call with the arguments of a hook, policy or human, validated again, and with a note for the model.

    Args:
        details: The details of the denial if the tool does not accept these arguments.
        coerce: Whether they are converted as the model's are.

    Raises:
        CallDenied: The tool does not accept these arguments.
    """
    try:
        fresh = revalidate(call, arguments, coerce=coerce)
    except CallFailed as error:
        why = redact_problem(arguments, str(error), partial(_refusal, call, type(error), coerce=coerce), redacting.redactor)
        raise CallDenied(
            f"{call.name} was denied: {redacting.cut(reason, MOST_CHARS)}, and the new arguments are not valid: {why}",
            code="modification_invalid",
            details=details,
        ) from error
    again = partial(revalidate, call, coerce=coerce)
    fresh = replace(fresh, notes=redact_notes_on(arguments, fresh.notes, lambda copy: again(copy).notes, redacting.redactor))
    before, after = ({name: canonical(value) for name, value in one.arguments.items()} for one in (call, fresh))
    changed = ", ".join(sorted(name for name in {*before, *after} if before.get(name) != after.get(name)))
    note = Note(kind="modified", text=f"The arguments were changed ({redacting.cut(changed, 500)}): {redacting.cut(reason, MOST_CHARS)}.")
    return replace(fresh, notes=(*fresh.notes, note))


def _refusal(call: ValidatedCall, kind: type[CallFailed], arguments: Arguments, *, coerce: bool) -> str:
    """Return the text of the `kind` error that these arguments raise; an empty string if they raise none."""
    try:
        revalidate(call, arguments, coerce=coerce)
    except kind as error:
        return str(error)
    return ""


def _check_arguments(tool: BoundTool, arguments: Arguments, coerce: bool, source: object = None) -> tuple[Arguments, Notes]:
    arguments, notes, problems = fitted(tool.schema, tool.takes, arguments, coerce=coerce, source=source)
    if problems:
        raise _invalid(tool, problems, notes)
    if tool.own_validator:
        arguments, more = _run_own_validator(tool, arguments)
        notes += more
    if not tool.keywords.fit(arguments):
        arguments, more = without(arguments, tool.keywords.unexpected(arguments), tool.keywords.names or ())
        notes += more
    if tool.defaults and not tool.defaults.keys() <= arguments.keys():
        arguments = arguments | {name: value for name, value in decode(plain_bytes(tool.defaults)).items() if name not in arguments}
    return arguments, notes


def _invalid(tool: BoundTool, problems: list[ValidationProblem], notes: Notes) -> ArgumentsInvalid:
    if tool.effect != "none":
        problems = list(map(without_new_number, problems))
    errors = [{"path": item.path, "expected": item.expected, "got": item.got, "passes": item.passes} for item in problems]
    code = next((_CODES[item.keyword] for item in problems if item.keyword in _CODES), None)
    dropped = [note.text for note in notes if note.kind == "dropped"]  # one may be the name that was meant
    return _arguments_invalid(tool, [item.message for item in problems] + dropped, errors, code)


def _arguments_invalid(tool: BoundTool, sentences: list[str], errors: list[dict[str, object]], code: str | None = None) -> ArgumentsInvalid:
    shown = "\n".join(f"- {sentence[:600]}" for sentence in sentences)
    shown = shown if len(shown) <= _MAX_MESSAGE else shown[:_MAX_MESSAGE] + "…"
    return ArgumentsInvalid(
        f"{tool.name} was not run: its arguments are not accepted. Correct these and call it again:\n{shown}",
        code=code,
        details={"errors": errors},
        faults=shown,
    )


def _run_own_validator(tool: BoundTool, arguments: Arguments) -> tuple[Arguments, Notes]:
    """Call the tool's own validator with a copy of the arguments."""
    try:
        found: Any = tool.tool.own_validation(strict_object(arguments, _LIMITS))
    except BaseException as error:
        if not is_own_failure(error):
            raise
        raise _broken_validator(tool, "its own validator failed") from error
    if not isinstance(found, ValidationResult):
        raise _broken_validator(tool, f"its own validator returned {type(found).__name__} instead of ValidationResult")
    if isinstance(found, TypedFindings):
        raise _invalid(tool, found.problems[:20], ())
    if not found.valid or found.errors:
        sentences = [str(item) for item in found.errors[:20]] or ["the tool does not accept them, and does not say why"]
        raise _arguments_invalid(tool, sentences, [{"path": "", "expected": text[:600], "got": "", "passes": None} for text in sentences])
    notes = tuple(Note(kind="warning", text=str(item)[:600]) for item in found.warnings[:20])
    return (_clean(tool, found.cleaned_params), notes) if found.cleaned_params else (arguments, notes)


def _clean(tool: BoundTool, params: dict[str, Any]) -> Arguments:
    try:
        cleaned = strict_object(params, _LIMITS)
    except Exception as error:
        raise _broken_validator(tool, "its own validator returned arguments that are no JSON data") from error
    if not tool.schema.is_valid(cleaned):
        first = tool.schema.problems(cleaned)[0].message
        raise _broken_validator(tool, f"its own validator returned arguments that break the tool's schema ({first[:300]})")
    return cleaned


def _broken_validator(tool: BoundTool, fact: str) -> ToolRaised:
    return ToolRaised(f"{tool.name} was not run: {fact}. Do not repeat the call; its author has to look.", code="validator_failed")
