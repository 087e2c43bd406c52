"""What configured principals may do now, for calls that have waited since their request was authenticated.

A call may wait long for a free place or for a human, and the configuration may be read again meanwhile. Knows neither tokens nor calls.
"""

from __future__ import annotations

from collections.abc import Iterable

from callgate.gateway._access.narrowed_access import narrow
from callgate.gateway.principals import Principal

__all__ = ["CurrentPrincipals"]


class CurrentPrincipals:
    """The principals of the configuration in use, and of those that may replace it; none until a configuration is used."""

    def __init__(self) -> None:
        self._known: dict[str, Principal] = {}

    def use(self, *configurations: Iterable[Principal]) -> None:
        """Replace the principals by those of one configuration, or by what each may do in all of several."""
        self._known = {}
        for principal in (one for principals in configurations for one in principals):
            known = self._known.get(principal.name)
            self._known[principal.name] = principal if known is None else narrow(known, principal)

    def current(self, principal: Principal) -> Principal:
        """Return the principal with its present rights; as it is if no configuration names it."""
        return self._known.get(principal.name, principal)
