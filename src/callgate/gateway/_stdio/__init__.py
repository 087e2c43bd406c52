"""The stdio transport: one client at the other end of standard input and output.

`server` serves the client. `input_lines` reads its messages within bounds, and `held_requests` holds its requests while it leaves much
unread.
"""

from __future__ import annotations

from callgate.gateway._stdio.server import serve_stdio

__all__ = ["serve_stdio"]
