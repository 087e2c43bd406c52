"""The version of callgate. A low layer, so that any module can name it."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
