"""Provider APIs, sans I/O: bytes in and events out, a conversation in and a request out. One room per API, all of one shape.

    frames → decoder → assembly        bytes → one JSON value at a time → the API's own reading → the message as it grows

`frames` knows how a body is cut into values, an API's room what the values mean, `assembly` how text, calls and their ends fit together.
Nothing here opens a connection, waits, or knows a tool.
"""

from __future__ import annotations

from callgate.models.wire.codec import Codec, codec, known_apis

__all__ = ["Codec", "codec", "known_apis"]
