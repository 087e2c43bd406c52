"""`Tool`: the declaration of a tool.

Subclass it for tools with state; `@tool` makes one from a function. The registry computes everything that does not change per call once, at
registration. Knows nothing of the route.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from msgspec import Struct, field

from callgate._option_checks import ByNameMeta, NamedStruct
from callgate._schema import CompiledSchema, TextFormats, ValidationProblem, compile_schema
from callgate.calls import Category, Effect
from callgate.errors import UsageError
from callgate.tools.argument_cleaning import Keywords, fitted, without
from callgate.tools.effect_key import KeyFromCall
from callgate.tools.required_approval import RequiresApproval
from callgate.tools.resource_conflicts import Declared
from callgate.tools.retry_policy import RetryPolicy
from callgate.tools.tool_context import ToolContext

__all__ = ["CacheScope", "RunnerName", "Tool", "TypedFindings", "ValidationResult", "Verified"]

CacheScope = Literal["tick", "session", "persistent"]
"""How long a cached result is used: during the tick (`Scope.tick`, a time step of the host), as long as the process (`session`), or as long
as the cache's database exists (`persistent`)."""

RunnerName = str
"""`inline`, `thread`, `process`, or the name of one of the engine's own runners."""


class ValidationResult(Struct, kw_only=True, metaclass=ByNameMeta):
    """The result of a tool's own validator."""

    valid: bool
    errors: list[str] = field(default_factory=list)
    """The errors. Each names the argument, the expected value, the given value, and, if there is one, a value that
    would pass.
    """
    warnings: list[str] = field(default_factory=list)
    cleaned_params: dict[str, Any] = field(default_factory=dict)
    """The arguments to run with; if empty, they are unchanged."""


class TypedFindings(ValidationResult, kw_only=True):
    """The errors that a function's annotations find in its arguments, each with its place in them."""

    problems: list[ValidationProblem] = field(default_factory=list)


class Verified(NamedStruct, frozen=True, kw_only=True):
    """The result of a tool's `verify` for a call with a lost outcome."""

    happened: bool | None
    """True: the effect happened. False: it did not happen and can no longer happen. None: unknown."""
    result: object = None
    """The result to return if the effect happened."""


class Tool:
    """A tool, as a class.

    Set `name`, `description`, `parameters` and `category`, and write `execute`. All other attributes have defaults that do not assume
    that anything is safe.
    """

    name: str = ""
    """The name, unique within its layer: letters, digits, `_`, `-`, `.`, `/`; at most 128 characters."""
    description: str = ""
    parameters: Mapping[str, Any] | None = None
    """JSON Schema (draft 4 to 2020-12) of an object; used unchanged."""
    category: Category | None = None
    effect: Effect | None = None
    """The effect of a call, which determines what is safe to repeat; None for the category's default."""
    requires_approval: RequiresApproval = False
    """Whether a human has to allow each call before it runs, whatever the policies allow; or a function that decides, by True, False or a
    question. It gets the final arguments, and the scope if it has a second parameter. It may be async. Only False lets the call run without
    a human.
    """
    reads: Declared | None = None
    """The keys of the resources that the call reads. If they are declared, other calls may run in parallel."""
    writes: Declared | None = None
    """Resource keys that the call changes; cached reads of them are dropped. None: it may change anything, unless the effect is `none`."""
    effect_key: KeyFromCall | None = None
    """The key of the effect: a text such as `refund:{order}`, or a function of the final arguments and the scope. Of
    all calls of this tool with the same key, only one runs, and the others get its result, in whatever run, agent or
    process on the journal they are made.
    """
    timeout_s: float | None = None
    """Seconds for the whole call from its first start, with retries and waits; None for the engine's timeout."""
    attempt_timeout_s: float | None = None
    """Seconds for one attempt, so that a hanging attempt can be retried; None for the remaining time of the call."""
    retry: RetryPolicy | None = None
    """The retry policy; None for the default, if the effect allows repeats."""
    not_done: tuple[type[BaseException], ...] = ()
    """Exceptions that prove that nothing happened, like `NotDone`. After any other exception, the effect may have happened."""
    retryable: bool | None = None
    """False for no second attempt; None if the effect decides."""
    cacheable: bool = False
    cache_scope: CacheScope = "tick"
    cache_ttl: float | None = None
    """Seconds; None for as long as the scope lasts."""
    requires_actor: bool = True
    aliases: tuple[str, ...] = ()
    """Other names of this tool."""
    triggers: tuple[str, ...] = ()
    """Phrases by which deliberate mode exposes the tool: a literal phrase, `stem*`, `/regex/`, or `^`, which always
    exposes it.
    """
    output_schema: Mapping[str, Any] | None = None
    content_key: str | None = None
    """For a dict result: the key whose text is the content, instead of the dict as JSON. The keys `mime`, `bytes` and `truncated` describe
    that content, and `note` is shown after it."""
    runner: RunnerName | None = None
    """The runner; None for `inline` with async code and `thread` with sync code. Use `process` for tools that must be stoppable."""
    parallel: int | None = None
    """How many calls of this tool may run at the same time; None for no limit of its own."""
    coerce: bool | None = None
    """Whether to convert arguments of a wrong type if this loses nothing; None for the engine's setting."""
    strict: bool = False
    """Whether a call with an argument that the schema does not mention is refused, and the schema says so to the model. Otherwise a
    function tool drops it, with a note."""
    wraps_result: ClassVar[bool] = False
    """Whether any return value is allowed. `Tool.execute` must return a dict; a function tool may return anything."""
    declares_beside: ClassVar[bool] = False
    """Whether the tool reports beside its value that it has failed, as with `isError` of MCP, so that the key `success` is data."""
    drops_unknown: ClassVar[bool] = False
    """Whether to drop (and note) unknown arguments that the schema does not mention."""

    async def execute(self, actor: str, **params: Any) -> dict[str, Any]:
        """Do the work. If it is a plain `def`, it runs in a thread.

        Args:
            actor: The identity for which the call acts; empty if none is required and none was given.
            params: The validated arguments.

        Returns:
            `{"success": bool, "error": str, "data": ..., "message": str, "end_turn": bool, "image_metadata": ...}`, all optional. An empty
            search result is a success.
        """
        raise NotImplementedError(f"{type(self).__name__} has no execute method")

    def validate_parameters(self, params: dict[str, Any]) -> ValidationResult:
        """Check arguments against the tool's schema, and convert what can be converted without loss.

        `cleaned_params` are the arguments that `execute` would get, with a warning for each change; `params` is not changed.
        Override it for checks that a schema cannot express; the engine calls it after the schema has passed.
        """
        schema = self.compiled_schema()
        takes, keywords = self.only(schema), self.keywords()
        cleaned, notes, problems = fitted(schema, takes, dict(params), coerce=self.coerce is not False)
        if problems:
            return ValidationResult(valid=False, errors=[problem.message for problem in problems])
        cleaned, more = without(cleaned, keywords.unexpected(cleaned), keywords.names or ())
        return ValidationResult(valid=True, warnings=[note.text for note in notes + more], cleaned_params=cleaned)

    def own_validation(self, params: dict[str, Any]) -> ValidationResult:
        """Return the result of the tool's own check. The engine calls this after the schema has passed."""
        return self.validate_parameters(params)

    def compiled_schema(self) -> CompiledSchema:
        """Return the schema of the arguments as models see it; for a strict tool, it allows no others.

        Raises:
            UsageError: The schema is invalid, or mentions arguments outside of its `properties`, so that it cannot be closed.
        """
        where, formats = f"tool '{self.name}' ({self.where()})", self.checked_formats()
        schema = compile_schema(self.parameters or {}, where, formats=formats)
        if not (self.strict and schema.silent):
            return schema
        elsewhere = sorted(schema.properties - schema.source.get("properties", {}).keys())
        if elsewhere:
            raise UsageError(
                f"T{where[1:]} is strict, but its schema mentions {', '.join(elsewhere)[:120]} outside of its properties. Name all"
                " arguments there, or say 'unevaluatedProperties': false in the schema instead of strict."
            )
        return compile_schema({**schema.source, "additionalProperties": False}, where, formats=formats)

    def only(self, schema: CompiledSchema) -> frozenset[str] | None:
        """Return the accepted arguments if all others are dropped; None if only the schema decides."""
        return schema.properties if self.drops_unknown and schema.silent else None

    def keywords(self) -> Keywords:
        """The keywords of the tool's code. Computed once, at registration."""
        return Keywords.of(self.execute, has_actor=True) if type(self).invoke is Tool.invoke else Keywords()

    def defaults(self) -> Mapping[str, Any]:
        """The defaults of omitted arguments, as JSON data. Computed once, at registration."""
        return {}

    def check_complete(self) -> None:
        """Raise a `UsageError` if this tool lacks something that it needs to run. Called at registration."""

    def checked_formats(self) -> TextFormats | None:
        """The formats of text that the schema asserts; None if its formats are only comments. Computed once, at registration."""
        return None

    def result_schema(self) -> Mapping[str, Any] | None:
        """The schema that results must match; None if they are not checked. Computed once, at registration."""
        return self.output_schema

    def has_validator(self) -> bool:
        """Whether `validate_parameters` can find errors. Computed once, at registration."""
        return type(self).validate_parameters is not Tool.validate_parameters

    async def verify(self, params: dict[str, Any], idempotency_key: str) -> Verified:
        """Find out whether a call with a lost outcome took effect. The default implementation returns unknown.

        Called when the tool raised or its process crashed, before a call with the same arguments starts again, and when a run is resumed.
        Return `happened=False` only if the effect can no longer happen: a service may still process a request that was sent. The engine
        accepts this answer only if the engine and the worker process of the first attempt have certainly ended; otherwise the call is
        `unknown`.

        Args:
            params: The final arguments of the call.
            idempotency_key: The call's key, the same as in the tool's context.
        """
        return Verified(happened=None)

    def invoke(self, context: ToolContext, arguments: dict[str, Any]) -> object:
        """Start the tool's code for a runner. Return its value or an awaitable of it."""
        return self.execute(context.scope.actor, **arguments)

    def where(self) -> str:
        """Return where this tool is defined, as `file:line` or a class name, for messages."""
        return f"{type(self).__module__}.{type(self).__qualname__}"

    def not_done_advice(self, exception: str) -> str:
        """Return how the tool's author says that a failed call has done nothing, for messages.

        Args:
            exception: The class of the exception that the tool raised, or a placeholder for it; may be empty.
        """
        declared = f", or declare the exceptions that mean that: not_done=({exception},)" if exception else ""
        return f"Where nothing happened, raise callgate.NotDone{declared}."
