"""The gateway as a resource server of OAuth: what its metadata say, and the challenges that lead clients there. Pure.

Sources: RFC 9728; RFC 6750, section 3; MCP 2025-11-25 and 2026-07-28, Authorization.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from callgate.gateway.principals import Principal

__all__ = ["ResourceServer"]

_WELL_KNOWN = "/.well-known/oauth-protected-resource"


class ResourceServer:
    """One gateway, as the clients of its authorization servers see it.

    Args:
        url: The address at which clients call it, which is its identifier.
        issuers: Its authorization servers.
        scopes: The scopes that a token needs for every request.
        name: What users are shown.
        documentation: The address of a page for developers; may be empty.
        path: Where the gateway serves MCP, which differs from the path of `url` behind a proxy that changes paths.
    """

    def __init__(
        self, url: str, issuers: Sequence[str], *, scopes: Sequence[str] = (), name: str = "", documentation: str = "", path: str = "/mcp"
    ) -> None:
        parts = urlsplit(url)
        own_path = parts.path.rstrip("/")
        self.host = parts.netloc.lower()
        """The host that clients call."""
        self.paths = frozenset((_WELL_KNOWN, _WELL_KNOWN + own_path, _WELL_KNOWN + path.rstrip("/")))
        """Where the metadata are served."""
        self._scopes = tuple(scopes)
        self._metadata_url = f"{parts.scheme}://{parts.netloc}{_WELL_KNOWN}{own_path}"
        fields = {
            "resource": url,
            "authorization_servers": list(issuers),
            "scopes_supported": list(scopes),
            "bearer_methods_supported": ["header"],
            "resource_name": name,
            "resource_documentation": documentation,
        }
        self.metadata = {key: value for key, value in fields.items() if value}

    def challenge(self, error: str = "", scopes: Iterable[str] = ()) -> bytes:
        """Return a `WWW-Authenticate` that leads to the metadata.

        Args:
            error: The code of RFC 6750; empty if the request has no token.
            scopes: What the request needs in addition to the scopes of every request.
        """
        wanted = " ".join(dict.fromkeys((*self._scopes, *scopes)))
        parameters = {"error": error, "scope": wanted, "resource_metadata": self._metadata_url}
        return ("Bearer " + ", ".join(f'{name}="{value}"' for name, value in parameters.items() if value)).encode("ascii")

    def needed_scopes(self, principal: Principal, more: Iterable[str] = ()) -> tuple[str, ...]:
        """Return the scopes that a request needs, if its token does not have all of them: those of every request, and `more`.

        A principal whose token has no scopes, because it is known by the configuration, needs none.
        """
        needed = dict.fromkeys((*self._scopes, *more))
        return () if principal.scopes is None or needed.keys() <= set(principal.scopes) else tuple(needed)
