"""`callgate serve token`: a new token for a principal of the gateway, and what to write into its configuration."""

from __future__ import annotations

import secrets
import sys
from typing import Final

from callgate.cli import _exit_codes as _exits
from callgate.cli._console import print_json, say
from callgate.gateway.config_file import principal_header, token_digest

__all__ = ["make_token", "new_token"]

_TOKEN_BYTES: Final = 32


def new_token() -> str:
    return f"cg_{secrets.token_urlsafe(_TOKEN_BYTES)}"


def make_token(name: str, *, as_json: bool) -> int:
    """Print a new token to standard output; return the exit code."""
    header, token = principal_header(name), new_token()
    digest = token_digest(token)
    if as_json:
        print_json({"principal": name, "token": token, "token_sha256": digest})
        return _exits.OK
    say("The token, for the client. It is shown only now:", "dim")
    sys.stdout.write(f"{token}\n")
    sys.stdout.flush()
    say("The lines for the configuration file of the gateway, which needs the digest only:", "dim")
    sys.stdout.write(f'{header}\ntoken_sha256 = "{digest}"\n')
    return _exits.OK
