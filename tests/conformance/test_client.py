"""callgate's MCP client keeps to the protocol: these scenarios of the conformance suite pass, which are all that a revision
requires.

A name that is missing is a regression.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.suite import Suite
from tests.forked_programs import forked_program

pytestmark = [pytest.mark.process, pytest.mark.slow]

_AUTHORIZATION: Final = {
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/basic-cimd",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
}
PASSED: Final = {
    "2025-11-25": {"initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry"} | _AUTHORIZATION,
    "2026-07-28": {
        "tools_call",
        "request-metadata",
        "sep-2322-client-request-state",
        "http-standard-headers",
        "http-custom-headers",
        "http-invalid-tool-headers",
        "json-schema-ref-no-deref",
        "auth/resource-mismatch",
        "auth/offline-access-scope",
        "auth/offline-access-not-supported",
        "auth/authorization-server-migration",
        "auth/iss-supported",
        "auth/iss-not-advertised",
        "auth/iss-supported-missing",
        "auth/iss-wrong-issuer",
        "auth/iss-unexpected",
        "auth/iss-normalized",
        "auth/metadata-issuer-mismatch",
    }
    | _AUTHORIZATION,
}
"""All that are required. Of the optional ones, those about extensions of OAuth fail, which the client does not have: client credentials,
enterprise-managed authorization, DPoP, workload identity."""


@pytest.mark.parametrize("revision", PASSED)
def test_the_client_passes_these_required_scenarios(suite: Suite, tmp_path: Path, revision: str) -> None:
    command = shlex.join(forked_program("-m", "tests.conformance.client"))
    verdicts = suite.client(command, revision, tmp_path)
    assert verdicts.passed() == PASSED[revision], str(verdicts)
    assert verdicts.conforms
    assert verdicts.optional["json-schema-2020-12-preservation"]
