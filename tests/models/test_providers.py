"""From a name to a model: the table of providers, keys, URLs, and errors with a next step."""

from __future__ import annotations

import pytest

from callgate.errors import UsageError
from callgate.messages import UserMessage
from callgate.models.providers import PROVIDERS, Provider, model
from callgate.models.wire import known_apis
from callgate.models.wire.request import ModelRequest
from callgate.testing import Fail, Reply, ScriptedServer
from tests.models.decoding import finished, text_of
from tests.models.http_requests import KEY, ask

HOSTED = [provider for provider in PROVIDERS.values() if provider.key_needed]
HERE = [provider for provider in PROVIDERS.values() if provider.api in known_apis()]


def test_the_provider_table_has_every_supported_provider() -> None:
    assert set(PROVIDERS) == {
        *("openai", "openai-responses", "anthropic", "gemini", "ollama", "mistral", "groq", "deepseek", "openrouter", "together"),
        *("fireworks", "xai", "cerebras", "nvidia", "huggingface", "perplexity", "moonshot", "zai", "lmstudio", "vllm", "llamacpp"),
        *("cohere", "bedrock", "openai-compatible"),
    }
    for provider in PROVIDERS.values():
        assert provider.base_url.startswith("https://") == provider.key_needed
        assert not provider.base_url.endswith("/")


@pytest.mark.parametrize("provider", HOSTED, ids=lambda provider: provider.name)
def test_a_missing_api_key_error_names_the_variable_to_set(provider: Provider) -> None:
    with pytest.raises(UsageError, match=provider.key_name):
        model(f"{provider.name}:m", environ={})


@pytest.mark.parametrize("name", ["nobody:m", "openai", "openai:", "", ":"])
def test_an_invalid_model_name_error_lists_the_providers(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        model(name, environ={"OPENAI_API_KEY": KEY})
    assert "openai" in str(caught.value)


def test_a_provider_without_a_default_base_url_requires_one() -> None:
    with pytest.raises(UsageError, match="OPENAI_COMPATIBLE_BASE_URL"):
        model("openai-compatible:m", environ={})


@pytest.mark.parametrize("key", ["sk-ünïcode", "sk-a\nb", "sk-\x00"])
def test_an_api_key_invalid_in_a_header_is_refused_and_never_printed(key: str) -> None:
    with pytest.raises(UsageError) as caught:
        model("openai:m", api_key=key, environ={})
    assert key not in str(caught.value)


@pytest.mark.parametrize("found", HERE, ids=lambda found: found.name)
async def test_key_and_base_url_are_read_from_the_environment(found: Provider) -> None:
    """For every provider whose API is supported. A line break after the key is ignored."""
    async with ScriptedServer([Reply(turn=Fail(), status=400)]) as server:
        environ = {found.key_name: f"{KEY}\n", found.base_url_name: f"{server.url.removesuffix('/v1')}{found.version}/"}
        of = model(f"{found.name}:family/some:model", environ=environ, headers={"X-Team": "tools"})
        assert finished(await ask(of)).reason == "error"
        await of.close()
        received = server.requests[0]
    assert (of.provider, of.name) == (found.name, "family/some:model")
    assert received.path.startswith(f"{found.version}/")
    assert KEY in received.headers["authorization" if found.auth == "bearer" else found.auth]
    assert received.headers["x-team"] == "tools"
    assert KEY not in received.path + repr(of)


async def test_arguments_take_precedence_over_the_environment() -> None:
    async with ScriptedServer(["Hello"]) as server:
        environ = {"OPENAI_API_KEY": "sk-of-the-environment", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}
        of = model("OpenAI:m", base_url=server.url.removeprefix("http://"), api_key=KEY, environ=environ)
        assert text_of(await ask(of)) == "Hello"
        await of.close()
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


async def test_given_quirks_override_the_providers_quirks() -> None:
    request = ModelRequest(model="m", messages=[UserMessage("Hi")], max_tokens=5)
    async with ScriptedServer(["a", "b"]) as server:
        for quirks in ({}, {"stream_usage": True}):
            of = model("mistral:m", base_url=server.url, api_key=KEY, quirks=quirks, environ={})
            await ask(of, request)
            await of.close()
        plain, asked = (received.body_json for received in server.requests)
    assert (plain["max_tokens"], "stream_options" in plain, "stream_options" in asked) == (5, False, True)


async def test_a_given_http_client_is_used_and_stays_open() -> None:
    import httpx2

    async with ScriptedServer(["a", "b"]) as server, httpx2.AsyncClient(headers={"x-from": "mine"}) as client:
        of = model("openai:m", base_url=server.url, api_key=KEY, client=client, environ={})
        await ask(of)
        await of.close()
        assert not client.is_closed
        await ask(of)
        assert [received.headers["x-from"] for received in server.requests] == ["mine", "mine"]


@pytest.mark.skipif("anthropic.messages" not in known_apis(), reason="this API is not read yet")
@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/"])
async def test_the_base_url_may_omit_the_api_version(ending: str) -> None:
    """Anthropic's and Gemini's own clients take a base URL without the version."""
    async with ScriptedServer(["Hello"], api="anthropic.messages") as server:
        base_url = server.url.removesuffix("/v1") + "/gateway" + ending
        of = model("anthropic:m", base_url=base_url, api_key=KEY, environ={})
        assert text_of(await ask(of)) == "Hello"
        await of.close()
    assert server.requests[0].path == "/gateway/v1/messages"


def test_native_tools_can_be_disabled_for_a_model() -> None:
    assert not model("vllm:m", native_tools=False, environ={}).native_tools
