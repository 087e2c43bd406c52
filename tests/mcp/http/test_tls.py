"""Servers whose certificate is trusted, and whose certificate is not."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from callgate.mcp import NotSent
from tests.mcp.http.clients import connected
from tests.mcp.http.fake_server import FakeServer
from tests.mcp.http.test_failures import answer, failure_of
from tests.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a certificate for 127.0.0.1 that nobody has signed, and its key."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    file = tmp_path_factory.mktemp("tls") / "server.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(file), "-out", str(file) + ".crt"]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)
    file.write_bytes(file.read_bytes() + Path(f"{file}.crt").read_bytes())
    return file


def served(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


async def test_a_certificate_from_the_environment_is_trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with FakeServer(answer, tls=served(certificate)) as server, connected(server.url) as client:
        assert [await client.call("pay"), await client.call("pay")] == ["done", "done"]
    assert [sent.connection for sent in server.sent] == [0, 0]


async def test_a_certificate_that_nobody_trusts_is_named_and_nothing_is_sent(certificate: Path) -> None:
    async with FakeServer(answer, tls=served(certificate)) as server:
        error = await failure_of(server.url)
    assert isinstance(error, NotSent)
    assert not error.retryable
    assert "has no trusted certificate (" in str(error)
    assert server.sent == []
