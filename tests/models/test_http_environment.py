"""Unusable proxies and certificates in the environment are named in the error, with the next step."""

from __future__ import annotations

import pytest

from callgate.errors import UsageError
from callgate.memory import EmbeddingsEndpoint
from tests.models.http_requests import ask, at

WRONG = [
    ("HTTP_PROXY", "garbage://127.0.0.1:1"),
    ("https_proxy", "http://user:secret-of-the-proxy@127.0.0.1:not-a-port"),
    ("ALL_PROXY", "http://[::1"),
    ("SSL_CERT_FILE", "/nowhere/certificates.pem"),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
async def test_an_unusable_environment_variable_is_named_with_the_next_step(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=f"{name}=.*Give .* or unset it") as caught:
        await ask(at("http://127.0.0.1:1"))
    assert "secret-of-the-proxy" not in str(caught.value)


def test_an_embeddings_endpoint_names_an_unusable_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/certificates.pem")
    with EmbeddingsEndpoint("http://127.0.0.1:1/v1", "m", 3) as embedder, pytest.raises(UsageError, match="SSL_CERT_FILE="):
        embedder(["x"])
