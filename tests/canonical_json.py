"""JSON with sorted keys, to compare values of any kind by their bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

__all__ = ["canonical"]

canonical: Final[Callable[[object], bytes]] = msgspec.json.Encoder(order="deterministic").encode
