"""The sealed states by which clients of the stateless era continue their requests.

A state is encrypted and authenticated, and is valid for one principal and for the same method and params. It names what continues: a
request that waits in this process, or a call whose approval the client's user was asked for. The latter is on record, so it continues
after a restart, and at any gateway with the same secret and journal. The id of a task is sealed in the same way. Knows neither requests
nor calls.

Source: MCP 2026-07-28, Multi Round-Trip Requests.
"""

from __future__ import annotations

import hashlib
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from callgate._json import canonical, plain_bytes
from callgate.gateway._client_calls import CallInQuestion
from callgate.mcp._messages import INVALID_PARAMS, RpcError

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

__all__ = ["ApprovalState", "ParkedState", "RequestStates", "TaskState", "request_digest", "request_over"]

_CONTINUATION = frozenset({"inputResponses", "requestState", "_meta"})
"""The params that differ when a request is continued."""


_DIGEST_BYTES = 8


class ParkedState(Struct, frozen=True, tag="parked"):
    """The state of a request that waits in this process."""

    principal: str
    digest: str
    request: str
    replica: str = ""
    """The address of that process for other gateways on its journal; empty if there are none."""


class ApprovalState(Struct, frozen=True, tag="approval"):
    """The state of a request whose call is suspended until a human approves it."""

    principal: str
    digest: str
    question: CallInQuestion


class TaskState(Struct, frozen=True, tag="task"):
    """What the id of a task contains."""

    principal: str
    call: str
    """The id of its call; empty if none had been submitted yet."""
    created_ms: int
    replica: str = ""
    """The address of the process that began it for other gateways on its journal; empty if there are none."""
    arguments: str = ""
    """The digest of the call's arguments, so that no others are submitted in their place."""
    server: str = ""
    """The server or plugin that had the call's tool; empty if none had."""


_State = ParkedState | ApprovalState | TaskState
_decode: Callable[[bytes], _State] = msgspec.json.Decoder(_State).decode


class RequestStates:
    """Seals and opens the states of one gateway.

    Args:
        secret: From which the key is made; None: a random one, so that states are valid until this process ends.
    """

    def __init__(self, secret: bytes | None) -> None:
        self._secret = secret or secrets.token_bytes(32)
        self._digest_key = hashlib.sha256(b"callgate digest" + self._secret).digest()

    @cached_property
    def _key(self) -> Fernet:
        from cryptography.fernet import Fernet

        return Fernet(urlsafe_b64encode(hashlib.sha256(b"callgate request state" + self._secret).digest()))

    def digest(self, data: bytes) -> str:
        """Return a keyed digest of the data as 16 hexadecimal digits. It can be computed and checked only with the secret."""
        return hashlib.blake2b(data, digest_size=_DIGEST_BYTES, key=self._digest_key).hexdigest()

    def seal(self, state: _State) -> str:
        return self.seal_bytes(plain_bytes(msgspec.to_builtins(state)))

    def seal_bytes(self, data: bytes) -> str:
        """Return text of letters, digits, `-`, `_` and `=` that only a holder of the secret can read or make."""
        return self._key.encrypt(data).decode()

    def replica_of(self, sealed: object) -> str:
        """Return the address of the gateway that holds what a state names; empty if none is needed, or the state is not valid."""
        state = self._open(sealed)
        return "" if state is None or isinstance(state, ApprovalState) else state.replica

    def open_task(self, sealed: object, principal: str) -> TaskState | None:
        """Return the content of the id of a task; None if it is not valid, or belongs to another principal."""
        state = self._open(sealed)
        return state if isinstance(state, TaskState) and state.principal == principal else None

    def open(self, sealed: object, principal: str, digest: str) -> ParkedState | ApprovalState:
        """Return the state that a client has sent back.

        Raises:
            RpcError: It was changed, or belongs to another gateway, principal or request.
        """
        state = self._open(sealed)
        if state is None or isinstance(state, TaskState) or (state.principal, state.digest) != (principal, digest):
            raise _state_refused()
        return state

    def _open(self, sealed: object) -> _State | None:
        data = self.unseal(sealed)
        try:
            return None if data is None else _decode(data)
        except msgspec.DecodeError:
            return None

    def unseal(self, sealed: object) -> bytes | None:
        """Return what `seal_bytes` was given; None if it is not valid."""
        from cryptography.fernet import InvalidToken

        try:
            token = sealed.encode("ascii") if isinstance(sealed, str) else b""
            if urlsafe_b64encode(urlsafe_b64decode(token)) != token:  # text after the padding would be ignored
                return None
            return self._key.decrypt(token, ttl=None)
        except (InvalidToken, ValueError):
            return None


def _state_refused() -> RpcError:
    """Return the error for a state that does not name anything that continues."""
    return RpcError(
        INVALID_PARAMS,
        "The requestState is not valid here: it was changed, belongs to another request, or is of another gateway or of this one before a"
        " restart. Make the request again without it. If it was a call that had begun, check first whether it has taken effect.",
    )


def request_over() -> RpcError:
    """Return the error for a state whose request is no longer waiting. Its outcome is not known here."""
    return RpcError(
        INVALID_PARAMS,
        "The request of this requestState is no longer waiting: it was continued already, expired, or ended with its gateway. If it was a"
        " call of a tool, it may have taken effect: check that before you make the request again without the state.",
    )


def request_digest(method: str, params: Mapping[str, Any]) -> str:
    """Return a text that identifies a request whose continuations differ only in their answers."""
    return hashlib.sha256(canonical([method, {key: value for key, value in params.items() if key not in _CONTINUATION}])).hexdigest()
