"""`Tool`: everything that callgate must know of a tool before it may run it.

Subclass it for tools with state; `@tool` makes one from a function. What does not change per call is worked out once, when the tool is
registered (`registry`). Knows nothing of the route.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from msgspec import Struct, field

from callgate._schema import CompiledSchema, compile_schema
from callgate.calls import Category, Effect
from callgate.tools.argument_cleaning import Keywords, fitted, without
from callgate.tools.context import ToolContext
from callgate.tools.resources import Declared
from callgate.tools.retry import RetryPolicy

__all__ = ["CacheScope", "RunnerName", "Tool", "ValidationResult", "Verified"]

CacheScope = Literal["tick", "session", "persistent"]
"""How long a cached result lives: the tick, the process (`session`), or as long as the cache's database."""

RunnerName = str
"""`inline`, `thread`, `process`, or the name of a runner that the host gave to the engine."""


class ValidationResult(Struct, kw_only=True):
    """What a tool's own validator found."""

    valid: bool
    errors: list[str] = field(default_factory=list)
    """Each names the argument, what was expected, what came and, where one exists, the value that would pass."""
    warnings: list[str] = field(default_factory=list)
    cleaned_params: dict[str, Any] = field(default_factory=dict)
    """The arguments to run with; empty means: as they are."""


class Verified(Struct, frozen=True, kw_only=True):
    """What a tool's `verify` found out about a call whose outcome was lost."""

    happened: bool | None
    """True: the effect is there. False: it is not, and will not come any more. None: it cannot tell."""
    result: object = None
    """The result to give where it happened."""


class Tool:
    """A tool, as a class.

    Set `name`, `description`, `parameters` and `category`, and write `execute`. Everything else has a default that assumes nothing safe.
    """

    name: str = ""
    """Unique within its layer: letters, digits, `_`, `-`, `.`, `/`; at most 64 characters."""
    description: str = ""
    parameters: Mapping[str, Any] | None = None
    """JSON Schema (draft 4 to 2020-12) of an object; used as given."""
    category: Category | None = None
    effect: Effect | None = None
    """What is safe to repeat. None: what the category implies."""
    reads: Declared | None = None
    """Resource keys the call reads, so that others may run beside it."""
    writes: Declared | None = None
    """Resource keys the call changes; cached reads of them are dropped. None: it may change anything, unless its effect is `none`."""
    timeout_s: float | None = None
    """Of the whole call, from its first start on, retries and waits included; None: the engine's."""
    attempt_timeout_s: float | None = None
    """Of one attempt within that, so that one that hangs can be tried again; None: all that is left."""
    retry: RetryPolicy | None = None
    """None: the default policy, where the effect allows a repeat."""
    not_done: tuple[type[BaseException], ...] = ()
    """Exceptions by which the tool says that nothing happened, as by `NotDone`. After any other, its effect may have happened."""
    retryable: bool | None = None
    """False: never a second attempt. None: what the effect allows."""
    cacheable: bool = False
    cache_scope: CacheScope = "tick"
    cache_ttl: float | None = None
    """Seconds; None: as long as the scope."""
    requires_actor: bool = True
    aliases: tuple[str, ...] = ()
    """Other names that resolve to this tool."""
    triggers: tuple[str, ...] = ()
    """Phrases by which deliberate mode exposes the tool: literal, `stem*`, `/regex/`, or `^` for always."""
    output_schema: Mapping[str, Any] | None = None
    content_key: str | None = None
    """Of a result that is a dict: the key whose text is the result's content, in the place of the dict as JSON. Beside it, `mime`,
    `bytes` and `truncated` are facts about that content, and `note` is shown after it."""
    runner: RunnerName | None = None
    """None: `inline` for async, `thread` for sync code. `process` for tools that must be stoppable."""
    parallel: int | None = None
    """How many calls of this tool may run at once; None: no limit of its own."""
    coerce: bool | None = None
    """Whether arguments of a wrong type are put right where nothing is lost; None: the engine's setting."""
    wraps_result: ClassVar[bool] = False
    """Whether any return value is a result. `Tool.execute` must return a dict; a function may return anything."""
    drops_unknown: ClassVar[bool] = False
    """Whether unknown arguments are dropped (and noted) where the schema is silent about them."""

    async def execute(self, actor: str, **params: Any) -> dict[str, Any]:
        """Do the work. May be a plain `def`; it then runs in a thread.

        Args:
            actor: Whom the call acts as; empty where `requires_actor` is off and nobody was named.
            params: The validated arguments.

        Returns:
            `{"success": bool, "error": str, "data": ..., "message": str, "end_turn": bool, "image_metadata": ...}`, all optional.
            "Found nothing" is a success.
        """
        raise NotImplementedError(f"{type(self).__name__} has no execute method")

    def validate_parameters(self, params: dict[str, Any]) -> ValidationResult:
        """Check arguments against the tool's own schema, and put right what that alone can put right.

        `cleaned_params` are the arguments as `execute` would get them, with a warning for each change; `params` are not touched.
        Override it to check what a schema cannot say; the engine calls that after the schema has passed.
        """
        schema = compile_schema(self.parameters or {}, f"tool '{self.name}' ({self.where()})")
        takes, keywords = self.only(schema), self.keywords()
        cleaned, notes, problems = fitted(schema, takes, dict(params), coerce=self.coerce is not False)
        if problems:
            return ValidationResult(valid=False, errors=[problem.message for problem in problems])
        cleaned, more = without(cleaned, keywords.unexpected(cleaned), keywords.names or ())
        return ValidationResult(valid=True, warnings=[note.text for note in notes + more], cleaned_params=cleaned)

    def own_validation(self, params: dict[str, Any]) -> ValidationResult:
        """What the engine asks the tool when the schema has passed."""
        return self.validate_parameters(params)

    def only(self, schema: CompiledSchema) -> frozenset[str] | None:
        """The only arguments that count, where all others are dropped; None: unknown ones are the schema's business."""
        return schema.properties if self.drops_unknown and schema.silent else None

    def keywords(self) -> Keywords:
        """The keywords by which the tool's code can be called; asked once, when the tool is registered."""
        return Keywords.of(self.execute, has_actor=True) if type(self).invoke is Tool.invoke else Keywords()

    def defaults(self) -> Mapping[str, Any]:
        """What the tool takes for arguments that are left out, as JSON data; asked once, when the tool is registered."""
        return {}

    def has_validator(self) -> bool:
        """Whether `validate_parameters` can find anything; asked once, when the tool is registered."""
        return type(self).validate_parameters is not Tool.validate_parameters

    async def verify(self, params: dict[str, Any], idempotency_key: str) -> Verified:
        """Find out whether a call whose outcome was lost took effect. The default cannot tell.

        Asked when the tool raised or its process crashed, before a call with the same arguments starts again, and when a run is resumed.
        Say `happened=False` only where the effect cannot come any more: a request that was sent may still be worked on by the service.
        What the engine can rule out, it does: "did not happen" counts only where the engine and the worker process that ran the first
        attempt have certainly ended. One that is alive, or may only stand still, leaves the call `unknown`.

        Args:
            params: The final arguments of the call.
            idempotency_key: Of the call; the same that the tool had in its context.
        """
        return Verified(happened=None)

    def invoke(self, context: ToolContext, arguments: dict[str, Any]) -> object:
        """Start the tool's code; what the runners call. Returns its value, or an awaitable of it."""
        return self.execute(context.scope.actor, **arguments)

    def where(self) -> str:
        """Where this tool is defined, as `file:line` or a class name, for messages about it."""
        return f"{type(self).__module__}.{type(self).__qualname__}"
