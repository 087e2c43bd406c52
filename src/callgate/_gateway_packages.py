"""The packages that the gateway needs, and whether they are installed. The gateway itself cannot be imported without them."""

from __future__ import annotations

from importlib.util import find_spec

from callgate.errors import UsageError

__all__ = ["check_gateway_packages"]

_MODULES = {
    "cryptography": "cryptography",
    "httpx2": "httpx2",
    "jwt": "pyjwt",
    "prometheus_client": "prometheus-client",
    "uvicorn": "uvicorn",
}
"""The names of the packages, by the modules that are imported."""


def check_gateway_packages(user: str) -> None:
    """Check that the gateway can be imported.

    Args:
        user: What needs the gateway, for the error.

    Raises:
        UsageError: A package is not installed.
    """
    missing = [package for module, package in _MODULES.items() if not _is_installed(module)]
    if missing:
        raise UsageError(f"{user} needs {', '.join(missing)}. Install with: python -m pip install 'callgate[gateway]'")


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ValueError:  # the import of the module is blocked
        return False
