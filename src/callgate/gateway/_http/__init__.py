"""Streamable HTTP: the ASGI application of the gateway and its server.

Read `app.py` first: it has the routes and tells the two eras apart. `request_checks.py` decides from the head whether a request is let in,
and `routing_headers.py` compares headers with bodies. `sessions.py` keeps handshake sessions, `posted_request.py` answers one request, with
JSON or an event stream, and `streams.py` writes both. `replica_forwarding.py` passes requests on to another gateway on the same journal.
`server.py` runs the application, with the deadlines of `connections.py`.
"""

from __future__ import annotations

from callgate.gateway._http.app import HttpApp
from callgate.gateway._http.server import HttpServer
from callgate.gateway._http_limits import HttpLimits

__all__ = ["HttpApp", "HttpLimits", "HttpServer"]
