"""Streamable HTTP: the ASGI application of the gateway and its server.

Read `app.py` first: it has the routes and tells the two eras apart. `request_checks.py` decides from the head whether a request is let in,
`incoming_request.py` is one that was, with its body, and `routing_headers.py` compares headers with bodies. `open_requests.py` counts the
requests of each principal. `sessions.py` keeps handshake sessions, and `listening_streams.py` ends streams whose tokens are removed.
`posted_request.py` answers one request, with JSON or an event stream, and `streams.py` writes both; `watched_clients.py` notices that the
client has gone away. `resource_server.py` leads clients of OAuth to their tokens.

`replica_forwarding.py` passes requests on to another gateway on the same journal, while `replica_liveness.py` asks whether that is alive.

`server.py` runs the application, with the deadlines of `connections.py` and as many connections as `open_files.py` finds.
`http1_connection.py` is h11 with what it leaves to a server, and `simple_requests.py` handles simple requests without it.
"""

from __future__ import annotations

from callgate.gateway._http.app import HttpApp
from callgate.gateway._http.server import HttpServer
from callgate.gateway._http_limits import HttpLimits

__all__ = ["HttpApp", "HttpLimits", "HttpServer"]
