"""Streamable HTTP: the ASGI application of the gateway and its server.

Read `app.py` first: it has the routes and tells the two eras apart. `request_checks.py` decides from the head whether a request is let in,
`routing_headers.py` compares headers with bodies, `sessions.py` keeps handshake sessions, `requests.py` answers one request with JSON or an
event stream, and `streams.py` writes both. `server.py` runs the application, with the deadlines of `connections.py`.
"""

from __future__ import annotations

from callgate.gateway._http.app import HttpApp
from callgate.gateway._http.limits import HttpLimits
from callgate.gateway._http.server import HttpServer

__all__ = ["HttpApp", "HttpLimits", "HttpServer"]
