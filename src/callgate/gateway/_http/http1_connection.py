"""h11's connection with what it leaves to a server: the size of a whole head, and a client that waits to be asked for its body. No I/O."""

from __future__ import annotations

import re
from typing import Final

import h11

__all__ = ["BoundedHeads"]

_CLIENT_BYTES: Final = re.compile(r":? (?:bytearray\()?b['\"].*", re.DOTALL)
"""Where the text of an error quotes what the client has sent."""
_CLOSE: Final = (b"connection", b"close")


class BoundedHeads(h11.Connection):
    """A server's side of a connection.

    h11 limits what it keeps of a head that is not complete, so it accepts a head of any size that arrives at once.

    Args:
        head_bytes: The largest head.
    """

    def __init__(self, head_bytes: int) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size=head_bytes)
        self._head_bytes = head_bytes
        self.refused_status, self.refused_text = 400, ""
        """What to answer after `next_event` has raised an error."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        in_head = self.their_state is h11.IDLE
        waiting_bytes = len(self.trailing_data[0]) if in_head else 0
        try:
            event = super().next_event()
            if isinstance(event, h11.Request) and waiting_bytes - len(self.trailing_data[0]) > self._head_bytes:
                raise h11.RemoteProtocolError("the head is too large", error_status_hint=431)
        except h11.RemoteProtocolError as error:
            self.refused_status = error.error_status_hint
            self.refused_text = self._text_of(error, in_head=in_head)
            raise
        return event

    def send_with_data_passthrough(self, event: h11.Event) -> list[bytes] | None:
        if isinstance(event, h11.Response) and self.they_are_waiting_for_100_continue:
            # Whether its body still comes is not known, so what comes next cannot be read as a request.
            others = [header for header in event.headers if header[0] != b"connection"]
            event = h11.Response(status_code=event.status_code, headers=[*others, _CLOSE], reason=event.reason)
        return super().send_with_data_passthrough(event)

    def _text_of(self, error: h11.RemoteProtocolError, *, in_head: bool) -> str:
        if error.error_status_hint == 431:
            what, less = ("head", "or shorter headers") if in_head else ("head of a chunk or the trailer", "extensions")
            return f"The {what} is larger than {self._head_bytes} bytes. Send fewer {less}."
        return f"The request is not valid HTTP/1.1: {_CLIENT_BYTES.sub('', str(error))}. Correct it, and send it on a new connection."
