"""The arguments of a tool whose framework reads them with pydantic: their errors, and their JSON form with the tool's defaults.

Equal values have one form, whatever the model has written: a date, a decimal number or a UUID is one text or number. A form is used only
if the framework reads the same values from it as from what the model has written. Must not know of frameworks or tools.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from decimal import Decimal
from typing import Any

from msgspec import Struct
from pydantic import BaseModel, ValidationError, create_model
from pydantic_core import PydanticSerializationError, to_jsonable_python

from callgate._json import canonical

__all__ = ["ModelArguments", "json_form", "without_fields"]

_EXACT = 2**53
"""From here on, JSON numbers are not exact everywhere."""
_MOST_DIGITS = 400

Arguments = dict[str, Any]


class _Values(Struct, frozen=True):
    """The values of arguments, by the names of the framework's fields or parameters."""

    by_name: Mapping[str, Any]
    passed: Mapping[str, Any]
    """The same as the tool gets them."""
    given: Collection[str]
    """The names of the values that are not defaults."""
    aliases: Mapping[str, str]
    """The names of arguments that are named otherwise, by the names of their fields."""


class ModelArguments:
    """Reads arguments as a framework does, to find errors and forms.

    Args:
        read: The framework's validation: a pydantic model or a dict by the names of parameters.
        schema: The JSON Schema of the arguments, whose `default` says which omitted arguments have a fixed value.
        hidden: The fields that the framework fills in itself.
        dumped: Whether the tool gets the given values of a model without nested models, as `model_dump` returns them, and its own
            defaults as they are.
    """

    def __init__(
        self, read: Callable[[Arguments], Any], schema: Mapping[str, Any], hidden: Collection[str] = (), *, dumped: bool = False
    ) -> None:
        self._validated = read
        self._dumped = dumped
        self._hidden = frozenset(hidden)
        properties = schema.get("properties", {})
        self._fixed = frozenset(name for name, one in properties.items() if "default" in one and name not in self._hidden)

    def forms(self, arguments: Arguments) -> Iterator[Arguments]:
        """Yield forms of the arguments from which the framework reads the same values, the most regular one first.

        The last is the arguments themselves, without what only the framework may fill in.

        Raises:
            ValidationError: The framework does not accept them.
        """
        given = {name: value for name, value in arguments.items() if name not in self._hidden}
        values = self._read(given)
        if values is not None:
            defaults, regular = self._defaults(values), _as_json_form(given, values)
            if not defaults and regular is not None and canonical(regular) == canonical(given):
                yield given
                return
            for form in (regular, given):
                if form is not None and (found := self._fill_defaults(form, defaults, values)) is not None:
                    yield found
        yield given

    def _read(self, given: Arguments) -> _Values | None:
        """Return the values; None if they cannot be read without what the framework fills in, or without its context."""
        try:
            read = self._validated(given)
            dumped = read.model_dump(exclude_unset=True, warnings=False) if self._dumped and isinstance(read, BaseModel) else {}
        except ValidationError as error:
            if self._hidden and any(not one["loc"] for one in error.errors()):
                return None
            raise
        except Exception:  # the framework reports it when it reads them itself
            return None
        if isinstance(read, BaseModel):
            fields = type(read).model_fields
            aliases = {name: one.alias for name, one in fields.items() if one.alias is not None}
            values = {name: getattr(read, name) for name in fields}
            return _Values(values, values | dumped, read.model_fields_set & fields.keys(), aliases)
        return _Values(read, read, read.keys() & given.keys(), {}) if isinstance(read, dict) else None

    def _defaults(self, values: _Values) -> Arguments:
        """Return the defaults of omitted arguments in their JSON form."""
        made: Arguments = {}
        for name, value in values.by_name.items():
            shown = name if name in self._fixed else values.aliases.get(name)
            if shown in self._fixed and shown is not None and name not in values.given:
                try:
                    made[shown] = json_form(value)
                except PydanticSerializationError:
                    continue
        return made

    def _fill_defaults(self, form: Arguments, defaults: Arguments, values: _Values) -> Arguments | None:
        """Return a form with the defaults that have one; None if the framework reads other values from it."""
        if defaults and self._reads_same_values(form | defaults, values):
            return form | defaults
        kept = {name: value for name, value in defaults.items() if self._reads_same_values(form | {name: value}, values)}
        return form | kept if self._reads_same_values(form | kept, values) else None

    def _reads_same_values(self, form: Arguments, values: _Values) -> bool:
        try:
            again = self._read(form)
            return again is not None and all(self._is_equal(name, values, again) for name in values.by_name)
        except Exception:  # a form that the framework refuses, or values that cannot be compared
            return False

    def _is_equal(self, name: str, values: _Values, again: _Values) -> bool:
        if name in self._hidden or (name not in values.given and name not in again.given):
            return True
        one, other = values.passed[name], again.passed[name]
        return bool(one == other) and (type(one) is type(other) or name not in values.given)


def without_fields(model: type[BaseModel], hidden: Collection[str]) -> type[BaseModel]:
    """Return a model with the same validators in which some fields may be omitted."""
    if not hidden:
        return model
    optional: dict[str, Any] = dict.fromkeys(hidden, (Any, None))
    return create_model(model.__name__, __base__=model, **optional)


def _as_json_form(given: Arguments, values: _Values) -> Arguments | None:
    """Return the given arguments in their JSON form; None if they have none."""
    form = dict(given)
    for name in values.given:
        key = name if name in given else values.aliases.get(name, name)
        if key not in given:
            return None
        try:
            form[key] = json_form(values.by_name[name])
        except PydanticSerializationError:
            return None
    return form


def json_form(value: Any, *, whole: bool = False) -> Any:
    """Return the JSON form of a value, the same for equal values.

    Args:
        whole: Whether models have the fields that were not given, too.

    Raises:
        PydanticSerializationError: It has none.
    """
    match value:
        case BaseModel():
            return json_form(value.model_dump(by_alias=True, exclude_unset=not whole), whole=whole)
        case Decimal():
            return _number_or_text(value)
        case float() if value.is_integer() and abs(value) < _EXACT:
            return int(value)
        case Mapping():
            return {_key(key): json_form(item, whole=whole) for key, item in value.items()}
        case list() | tuple():
            return [json_form(item, whole=whole) for item in value]
        case set() | frozenset():
            return sorted((json_form(item, whole=whole) for item in value), key=canonical)
    return to_jsonable_python(value, by_alias=True)


def _key(key: object) -> str:
    return key if isinstance(key, str) else str(next(iter(to_jsonable_python({key: None}))))


def _number_or_text(number: Decimal) -> int | float | str:
    """Return a number if JSON has exactly this one, else text without superfluous zeros."""
    if not number.is_finite() or abs(number.adjusted()) > _MOST_DIGITS:
        return str(number)
    if abs(number) < _EXACT:
        if number == number.to_integral_value():
            return int(number)
        if Decimal(repr(float(number))) == number:
            return float(number)
    plain = f"{number:f}"
    return plain.rstrip("0").rstrip(".") if "." in plain else plain
