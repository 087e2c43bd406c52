"""The key of a tool's effect: calls of the tool with the same key have the same effect. Pure.

The declaration is checked when the tool is registered. The key is made from the final arguments and the scope of each
call. Knows nothing of earlier calls.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from string import Formatter
from typing import Any, Final

from msgspec import Struct

from callgate._abort_signals import is_own_failure
from callgate._json import canonical
from callgate._schema import CompiledSchema
from callgate.calls import Effect, Scope
from callgate.errors import ArgumentsInvalid, ToolRaised, UsageError
from callgate.tools.host_functions import refuse_argument_names
from callgate.tools.key_patterns import parse_placeholders, unknown_placeholder

__all__ = ["EffectKey", "EffectKeyOf", "KeyFromCall"]

KeyFromCall = str | Callable[[dict[str, Any], Scope], str]
"""A text with `{argument}` and `{scope.principal}` placeholders, or a function of the final arguments and the scope that returns a text."""

_MOST_DIGITS: Final = 400
_SCOPE_FIELDS: Final = ("principal", "actor", "conversation", "workspace")


class EffectKeyOf(Struct, frozen=True, kw_only=True):
    """The key of one call's effect."""

    text: str
    """The key as text, for people and models. It must be redacted before it is shown."""
    tool: str
    """The tool's name as its server gives it, which the other servers of an engine cannot change."""
    digest: str
    """A hash of tool, tool server and key, the same in every run and process. The tool gets it as its idempotency key."""


class EffectKey(Struct, frozen=True, kw_only=True):
    """The declaration of a tool how to make the key of its effect."""

    tool: str
    declared: KeyFromCall
    server: str = ""
    """The tool server that has the tool; empty for other tools."""
    offered_as: str = ""
    """The tool's name as its server gives it; empty if `tool` is that name."""
    decimals: frozenset[str] = frozenset()
    """The arguments that are decimal numbers, written as text."""

    @classmethod
    def of(
        cls, declared: object, tool: str, effect: Effect, schema: CompiledSchema, where: str, *, server: str = "", offered_as: str = ""
    ) -> EffectKey:
        """Return the declaration after checking it.

        Raises:
            UsageError: Calls of this tool could not have such a key.
        """
        if effect == "none":
            raise UsageError(f"{where} has a key of its effect, but no effect. Drop the key, or declare effect='once' or 'idempotent'.")
        if isinstance(declared, str):
            _check_pattern(declared, schema, where)
            return cls(tool=tool, declared=declared, server=server, offered_as=offered_as, decimals=_decimals(schema))
        if not callable(declared) or inspect.iscoroutinefunction(declared):
            raise UsageError(
                f"{where} has key={declared!r:.80}; it must be a text such as 'refund:{{order}}', or a plain function of the arguments and"
                " the scope that returns a text."
            )
        _check_function(declared, schema, where)
        return cls(tool=tool, declared=declared, server=server, offered_as=offered_as)

    @property
    def is_function(self) -> bool:
        """Whether the host's code makes the key."""
        return not isinstance(self.declared, str)

    def from_call(self, arguments: dict[str, Any], scope: Scope) -> EffectKeyOf:
        """Return the key of a call with these final arguments.

        Raises:
            ArgumentsInvalid: An argument of the key is missing.
            ToolRaised: The key needs a field of the scope that is empty, or the tool's function failed.
        """
        if not isinstance(self.declared, str):
            text = self._call_key_function(self.declared, arguments, scope)
            return self._compile(text, [text])
        parts = list(self._parts(self.declared, arguments, scope))
        text = "".join(part if isinstance(part, str) else part[0] for part in parts)
        return self._compile(text, [self.declared, *(part[0] for part in parts if not isinstance(part, str))])

    def _compile(self, text: str, identity: list[str]) -> EffectKeyOf:
        tool = self.offered_as or self.tool
        owner = [self.server, tool] if self.server else tool
        known = canonical([owner, *identity])  # a list, because "a:b" and "c" are not "a" and "b:c"
        return EffectKeyOf(text=text, tool=tool, digest=hashlib.blake2b(known, digest_size=16).hexdigest())

    def _parts(self, pattern: str, arguments: Mapping[str, object], scope: Scope) -> Iterator[str | tuple[str]]:
        """Yield literal text unchanged, and each value in a tuple."""
        for literal, name, _, _ in Formatter().parse(pattern):
            yield literal
            if name is not None:
                yield (self._scope_value(name, scope) if name.startswith("scope.") else self._argument_value(name, arguments),)

    def _argument_value(self, name: str, arguments: Mapping[str, object]) -> str:
        value = arguments.get(name)
        if value is None or value == "":
            raise ArgumentsInvalid(
                f"{self.tool} was not run: the key of its effect, {self.declared!r:.80}, needs the argument '{name}', which is"
                f" {'missing' if name not in arguments else 'empty'}. Give it.",
                code="effect_key",
            )
        if isinstance(value, str):
            return _decimal_text(value) if name in self.decimals else value
        return canonical(_unify_equal_numbers(value)).decode()

    def _scope_value(self, name: str, scope: Scope) -> str:
        value: str = getattr(scope, name.removeprefix("scope."))
        if not value:
            field = name.removeprefix("scope.")
            raise ToolRaised(
                f"{self.tool} was not run: the key of its effect, {self.declared!r:.80}, needs Scope.{field}, which is empty. Tell the"
                " operator to set it.",
                code="effect_key",
            )
        return value

    def _call_key_function(self, declared: Callable[[dict[str, Any], Scope], str], arguments: dict[str, Any], scope: Scope) -> str:
        try:
            text: object = declared(arguments, scope)
        except BaseException as error:
            if not is_own_failure(error):
                raise
            raise self._invalid_key("failed") from error
        if not isinstance(text, str) or not text:
            raise self._invalid_key(f"returned {text!r:.80} instead of a text")
        return text

    def _invalid_key(self, why: str) -> ToolRaised:
        return ToolRaised(
            f"{self.tool} was not run: the function that makes the key of its effect {why}. Tell the operator.", code="effect_key"
        )


def _unify_equal_numbers(value: object) -> object:
    """Return JSON data in which 50.0 is 50, because JSON does not tell them apart and a model writes either."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_unify_equal_numbers(item) for item in value]
    if isinstance(value, dict):
        return {name: _unify_equal_numbers(item) for name, item in value.items()}
    return value


def _decimals(schema: CompiledSchema) -> frozenset[str]:
    named = schema.source.get("properties")
    return frozenset(name for name, inner in named.items() if _is_decimal(inner)) if isinstance(named, dict) else frozenset()


def _is_decimal(schema: object) -> bool:
    if not isinstance(schema, dict):
        return False
    choices = schema.get("anyOf")
    return schema.get("format") == "decimal" or (isinstance(choices, list) and any(map(_is_decimal, choices)))


def _decimal_text(text: str) -> str:
    """Return the same text for equal decimals: `50`, `50.0` and `5e1` are `50`. Other text, and a number of great length, is unchanged."""
    from decimal import Decimal, InvalidOperation

    try:
        number = Decimal(text)
    except InvalidOperation:
        return text
    if not number.is_finite() or abs(number.adjusted()) > _MOST_DIGITS:
        return text
    plain = f"{number:f}"
    plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
    return "0" if plain == "-0" else plain


def _check_function(declared: Callable[..., object], schema: CompiledSchema, where: str) -> None:
    refuse_argument_names(declared, schema.properties, "key", where, "def key(arguments, scope)")
    try:
        signature = inspect.signature(declared)
    except ValueError:  # one without a signature that can be read
        return
    try:
        signature.bind({}, Scope())
    except TypeError as error:
        raise UsageError(
            f"{where} has key={declared!r:.80}, which cannot be called with the arguments and the scope ({error})."
            " Write it as def key(arguments, scope)."
        ) from error


def _check_pattern(pattern: str, schema: CompiledSchema, where: str) -> None:
    subject = f"{where} has key={pattern!r:.80}"
    placeholders = parse_placeholders(pattern, subject, "refund:{order}")
    if not placeholders:
        raise UsageError(
            f"{subject}, which is the same for every call, so only the first one would ever run. Name the arguments"
            " that make the effect another one, as in 'refund:{order}'."
        )
    known = [*sorted(schema.properties), *(f"scope.{field}" for field in _SCOPE_FIELDS)]
    for placeholder in placeholders:
        if placeholder.name not in known:
            otherwise = ". In Python, the key may also be a function of the arguments and the scope."
            raise unknown_placeholder(placeholder.name, known, subject, otherwise)
        if placeholder.is_formatted:
            raise UsageError(f"{subject}; a placeholder has no format. Write '{{{placeholder.name}}}', or give a function.")
