"""The bounds of the gateway's HTTP transport."""

from __future__ import annotations

from callgate._option_checks import Count, Options, Seconds

__all__ = ["HttpLimits"]


class HttpLimits(Options, frozen=True, kw_only=True):
    """What one client, and all clients together, may use."""

    body_bytes: Count = 4 * 1024 * 1024
    """The largest body of a request, in bytes."""
    head_bytes: Count = 32 * 1024
    """The largest head of a request, in bytes."""
    head_timeout_s: Seconds = 10.0
    """How long a client may take to send a head, in seconds."""
    body_timeout_s: Seconds = 30.0
    """How long a client may take to send a whole body, or the rest of one that was refused, in seconds."""
    read_timeout_s: Seconds = 30.0
    """How long a client may take to read 64 KiB of what waits for it, in seconds. One that is slower is disconnected."""
    connections: Count = 2000
    """How many connections may be open. A further one takes the place of the one that has waited longest for its next request; if all have
    requests that are being answered, it is answered with 503."""
    requests_per_principal: Count = 500
    """How many requests of one principal may be open, streams included; further ones are answered with 429. If its `parallel` and `queued`
    are more together, it may have as many as these."""
    stream_messages: Count = 1000
    """How many messages may wait on one event stream for a slow client."""
    stream_bytes: Count = 8 * 1024 * 1024
    """How many bytes may wait on one event stream for a slow client."""
    keep_alive_s: Seconds = 15.0
    """The time between comments on a silent event stream, in seconds."""
    session_idle_s: Seconds = 1800.0
    """How long an unused handshake session is kept, in seconds."""
    sessions: Count = 1000
    """How many handshake sessions may be open."""
    sessions_per_principal: Count = 100
    """How many handshake sessions one principal may have open."""
    session_spare_s: Seconds = 60.0
    """When there are too many handshake sessions, one that was unused for so long, in seconds, is ended for a new one."""
    stop_timeout_s: Seconds = 5.0
    """How long the server waits for open requests when it stops, in seconds."""
