"""The effects and options that a developer gives for a framework's tools, by their names.

`import_tools` and the wrappers take both mappings, and check them in the same way. Must not know of engines or frameworks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any, get_args

from callgate._option_checks import refuse_unknown
from callgate.calls import Effect
from callgate.errors import UsageError
from callgate.tools import ToolOptions

__all__ = ["GivenOptions"]

_LABELS = ("name", "description", "parameters")


class GivenOptions:
    """The options of tools, by their names.

    Args:
        where: What they were given to, for messages.
        effects: The effects by the names of tools.
        options: More options of `@tool` by the names of tools.
        functions: The names of plain functions, whose description may be given.

    Raises:
        UsageError: An effect or an option does not exist, is given twice, or is the framework's own.
    """

    def __init__(
        self,
        where: str,
        effects: Mapping[str, Effect] | None,
        options: Mapping[str, ToolOptions] | None,
        functions: Collection[str] = (),
    ) -> None:
        self._where = where
        self._functions = functions
        self._effects: dict[str, Effect] = dict(self._check_mapping("effects", effects))
        self._options: dict[str, ToolOptions] = dict(self._check_mapping("options", options))
        for name, effect in self._effects.items():
            self._check_effect(f"effects={{'{name}': ...}}", effect)
        for name, given in self._options.items():
            self._check(name, given)
        self.entries = tuple([("effects", name) for name in self._effects] + [("options", name) for name in self._options])
        """The name of the mapping and of the tool for each entry."""

    def of(self, name: str) -> ToolOptions:
        """Return the options of one tool; empty if none are given."""
        given: ToolOptions = self._options.get(name, ToolOptions()).copy()
        if name in self._effects:
            given["effect"] = self._effects[name]
        return given

    def refuse_other_names(self, names: Collection[str], advice: str = "") -> None:
        """Raise `UsageError` if an entry is for none of these tools. Its message ends with `advice`."""
        for mapping, name in self.entries:
            if name not in names:
                near = get_close_matches(str(name)[:100], names, n=1, cutoff=0.6)
                meant = f" Did you mean '{near[0]}'?" if near else ""
                known = ", ".join(names) or "none"
                raise UsageError(
                    f"{self._where}({mapping}=...) has an entry for '{name}', which is none of the tools.{meant} They are {known}.{advice}"
                )

    def _check_mapping(self, label: str, given: object) -> Mapping[str, Any]:
        if given is not None and not isinstance(given, Mapping):
            raise UsageError(f"{self._where}({label}=...) is {given!r:.80}; it must be a mapping by the names of tools.")
        return given or {}

    def _check(self, name: str, given: ToolOptions) -> None:
        place = f"options={{'{name}': ...}}"
        if not isinstance(given, Mapping):
            raise UsageError(
                f"{self._where}({place}) has {given!r:.80} as the options of the tool '{name}'; they must be a mapping."
                " options is a mapping by the names of tools, such as {'refund': {'key': '{order}'}}."
            )
        refuse_unknown(f"{self._where}({place})", given, ToolOptions.__annotations__)
        for label in _LABELS:
            if label in given and not (label == "description" and name in self._functions):
                raise UsageError(f"{self._where}(options=...) sets the {label} of '{name}'. It stays the framework's own; change it there.")
        if "effect" in given:
            if name in self._effects:
                raise UsageError(f"{self._where} has the effect of '{name}' twice, in effects and in options. Give it once.")
            self._check_effect(place, given["effect"])

    def _check_effect(self, place: str, effect: object) -> None:
        if effect not in get_args(Effect):
            choices = ", ".join(map(repr, get_args(Effect)))
            raise UsageError(f"{self._where}({place}) has the effect {effect!r:.80}; it must be one of {choices}.")
