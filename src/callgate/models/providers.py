"""The table of providers, and `model`, which makes a model from a name.

A provider is data: its URL, its API, the environment variable of its key, and its differences from the API. Use
`openai-compatible` with a `base_url` for a server that is not in the table. Keys are sent in headers only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from callgate.errors import UsageError
from callgate.models.http_model import HttpModel, Signer
from callgate.models.http_transport import Retries, Timeouts, Transport

if TYPE_CHECKING:
    import httpx2

    from callgate.models._sigv4 import AwsKeys

__all__ = ["PROVIDERS", "Provider", "model"]


class Provider(Struct, frozen=True, kw_only=True):
    """A provider of models and how its API is reached."""

    name: str
    api: str = "openai.chat"
    base_url: str = ""
    """Empty if there is no usual one."""
    version: str = ""
    """The version path of the base URL, which users may give or leave out."""
    key_name: str = ""
    """The environment variable of the key."""
    signs: bool = False
    """Whether AWS keys may replace the key; requests are then signed."""
    key_needed: bool = True
    auth: Literal["bearer", "x-api-key", "x-goog-api-key"] = "bearer"
    """How the key is sent: always in a header, since URLs end up in logs."""
    headers: Mapping[str, str] = {}
    quirks: Mapping[str, object] = {}

    @property
    def base_url_name(self) -> str:
        """The environment variable that overrides the base URL."""
        return _variable_name(self.name.removesuffix("-responses"), "BASE_URL")


def _variable_name(name: str, suffix: str) -> str:
    return f"{name.replace('-', '_').upper()}_{suffix}"


def _hosted_provider(name: str, base_url: str, quirks: Mapping[str, object] = {}, *, key_name: str = "") -> Provider:
    return Provider(name=name, base_url=base_url, key_name=key_name or _variable_name(name, "API_KEY"), quirks=quirks)


def _local_provider(name: str, base_url: str, quirks: Mapping[str, object] = {}, *, api: str = "openai.chat") -> Provider:
    """Return a provider for a self-hosted server; a key is sent if one is set."""
    return Provider(name=name, api=api, base_url=base_url, key_name=_variable_name(name, "API_KEY"), key_needed=False, quirks=quirks)


_HTTP_URL = re.compile(r"https?://([^/?#@\s]*@)?(\[[\da-f:.%]+\]|[^/?#@:\s\[\]]+)(:\d{0,5})?([/?#].*)?", re.IGNORECASE)
_NO_CUSTOM_TOOLS: dict[str, object] = {"custom_tools": False}
_MAX_TOKENS_KEY: dict[str, object] = {**_NO_CUSTOM_TOOLS, "max_tokens_key": "max_tokens"}
_NO_STREAM_USAGE: dict[str, object] = {**_MAX_TOKENS_KEY, "stream_usage": False}
_REASONING_CONTENT: dict[str, object] = {**_MAX_TOKENS_KEY, "reasoning_key": "reasoning_content"}
_MISTRAL: dict[str, object] = {**_NO_STREAM_USAGE, "id_chars": 9, "plain_audio": True, "answers_results": True}

PROVIDERS: Mapping[str, Provider] = {
    provider.name: provider
    for provider in (
        _hosted_provider("openai", "https://api.openai.com/v1"),
        Provider(name="openai-responses", api="openai.responses", base_url="https://api.openai.com/v1", key_name="OPENAI_API_KEY"),
        Provider(
            name="anthropic",
            api="anthropic.messages",
            base_url="https://api.anthropic.com",
            version="/v1",
            key_name="ANTHROPIC_API_KEY",
            auth="x-api-key",
            headers={"anthropic-version": "2023-06-01"},
        ),
        Provider(
            name="gemini",
            api="gemini.generate",
            base_url="https://generativelanguage.googleapis.com",
            version="/v1beta",
            key_name="GEMINI_API_KEY",
            auth="x-goog-api-key",
        ),
        _hosted_provider("mistral", "https://api.mistral.ai/v1", _MISTRAL),
        _hosted_provider("groq", "https://api.groq.com/openai/v1", _NO_CUSTOM_TOOLS),
        _hosted_provider("deepseek", "https://api.deepseek.com", _REASONING_CONTENT),
        _hosted_provider("openrouter", "https://openrouter.ai/api/v1", _MAX_TOKENS_KEY),
        _hosted_provider("together", "https://api.together.xyz/v1", _MAX_TOKENS_KEY),
        _hosted_provider("fireworks", "https://api.fireworks.ai/inference/v1", _MAX_TOKENS_KEY),
        _hosted_provider("xai", "https://api.x.ai/v1", _NO_CUSTOM_TOOLS),
        _hosted_provider("cerebras", "https://api.cerebras.ai/v1", _NO_CUSTOM_TOOLS),
        _hosted_provider("nvidia", "https://integrate.api.nvidia.com/v1", _MAX_TOKENS_KEY),
        _hosted_provider("huggingface", "https://router.huggingface.co/v1", _MAX_TOKENS_KEY, key_name="HF_TOKEN"),
        Provider(name="cohere", api="cohere.chat", base_url="https://api.cohere.com", key_name="COHERE_API_KEY"),
        Provider(
            name="bedrock",
            api="bedrock.converse",
            base_url="https://bedrock-runtime.{region}.amazonaws.com",
            key_name="AWS_BEARER_TOKEN_BEDROCK",
            signs=True,
        ),
        _hosted_provider("perplexity", "https://api.perplexity.ai", _NO_STREAM_USAGE),
        _hosted_provider("moonshot", "https://api.moonshot.ai/v1", _REASONING_CONTENT),
        _hosted_provider("zai", "https://api.z.ai/api/paas/v4", _REASONING_CONTENT),
        _local_provider("ollama", "http://localhost:11434", api="ollama.chat"),
        _local_provider("lmstudio", "http://localhost:1234/v1", _MAX_TOKENS_KEY),
        _local_provider("vllm", "http://localhost:8000/v1", _MAX_TOKENS_KEY),
        _local_provider("llamacpp", "http://localhost:8080/v1", _MAX_TOKENS_KEY),
        _local_provider("openai-compatible", "", _MAX_TOKENS_KEY),
    )
}
"""Providers by name."""


def model(
    name: str,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    timeouts: Timeouts | None = None,
    retries: Retries | None = None,
    client: httpx2.AsyncClient | None = None,
    native_tools: bool = True,
    headers: Mapping[str, str] = {},
    quirks: Mapping[str, object] = {},
    environ: Mapping[str, str] = os.environ,
) -> HttpModel:
    """Return a provider's model: `model("openai:gpt-5")`.

    Args:
        name: The provider, a colon, and the provider's name for the model, which may contain colons.
        base_url: Replaces the provider's URL and its environment variable, such as `OPENAI_BASE_URL`.
        api_key: Replaces the key in the environment.
        timeouts: The deadlines of a request.
        retries: How often and how patiently a request is sent again.
        client: Your own `httpx2.AsyncClient`, with your own proxies and certificates; you close it.
        native_tools: False if the model does not accept tools; the prompt then describes them.
        headers: Sent with every request; never shown if their names say that they are secret.
        quirks: The differences of this server from the API; overrides the provider's own quirks.
        environ: Where keys and base URLs are looked up.

    Raises:
        UsageError: The provider is unknown, its key is missing or cannot be sent, or it has no base URL.
    """
    provider, model_name = _parse_model_name(name)
    keys = _aws_keys(provider, api_key, environ)
    key = "" if keys is not None else _api_key(provider, api_key, environ)
    url = base_url or environ.get(provider.base_url_name, "") or _regional_base_url(provider, environ)
    if not url:
        raise UsageError(f"'{provider.name}' has no default URL. Give base_url, or set {provider.base_url_name}.")
    signer = _signer(keys, environ, url) if keys is not None else None
    return HttpModel(
        provider.name,
        model_name,
        api=provider.api,
        base_url=_normalised_url(provider, url),
        transport=Transport(provider.name, timeouts=timeouts, retries=retries, client=client),
        headers={**provider.headers, **_auth_headers(provider, key), **headers},
        quirks={**provider.quirks, **quirks},
        native_tools=native_tools,
        key_name=provider.key_name if signer is None else "AWS_ACCESS_KEY_ID",
        signer=signer,
    )


def _parse_model_name(name: str) -> tuple[Provider, str]:
    provider_name, colon, model_name = name.partition(":")
    provider = PROVIDERS.get(provider_name.strip().lower())
    if provider is None:
        raise UsageError(
            f"No provider is called '{provider_name[:80]}'. Known are: {', '.join(PROVIDERS)}. "
            "For any other that speaks OpenAI's chat completions: model('openai-compatible:NAME', base_url=...)."
        )
    if not colon or not model_name.strip():
        raise UsageError(f"'{name[:80]}' does not name a model. Write the provider, a colon and the model: '{provider.name}:NAME'.")
    return provider, model_name.strip()


def _regional_base_url(provider: Provider, environ: Mapping[str, str]) -> str:
    if "{region}" not in provider.base_url:
        return provider.base_url
    from callgate.models._aws import region_from_environment

    return provider.base_url.format(region=region_from_environment(environ))


def _aws_keys(provider: Provider, api_key: str | None, environ: Mapping[str, str]) -> AwsKeys | None:
    """Return the AWS keys to sign with; None if an API key is used, which takes precedence."""
    if not provider.signs or api_key is not None or environ.get(provider.key_name, "").strip():
        return None
    from callgate.models._aws import keys_from_environment

    return keys_from_environment(environ)


def _signer(keys: AwsKeys, environ: Mapping[str, str], url: str) -> Signer:
    from callgate.models._aws import AwsSigner, region_from_environment

    return AwsSigner(keys, region_from_environment(environ, url))


def _api_key(provider: Provider, api_key: str | None, environ: Mapping[str, str]) -> str:
    key = (environ.get(provider.key_name, "") if api_key is None else api_key).strip()
    if not key and provider.key_needed:
        keys = ", AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY" if provider.signs else ""
        raise UsageError(f"'{provider.name}' needs a key. Set {provider.key_name}{keys}, or give api_key.")
    if not (key.isascii() and (not key or key.isprintable())):
        raise UsageError(
            f"The key of '{provider.name}' has characters that an HTTP header cannot hold. Copy it into {provider.key_name} again."
        )
    return key


def _auth_headers(provider: Provider, key: str) -> dict[str, str]:
    if not key:
        return {}
    return {"authorization": f"Bearer {key}"} if provider.auth == "bearer" else {provider.auth: key}


def _normalised_url(provider: Provider, url: str) -> str:
    """Return the base URL with its scheme, and with the provider's version path exactly once.

    Raises:
        UsageError: It is not an HTTP URL.
    """
    url = (url.strip() if "://" in url else f"http://{url.strip()}").rstrip("/")
    if not _HTTP_URL.fullmatch(url):
        scheme, _, rest = url.partition("://")
        shown = f"{scheme}://{rest.partition('/')[0].partition('?')[0].rpartition('@')[2]}"
        raise UsageError(
            f"'{provider.name}' cannot use {shown[:200]} as its URL. Give a URL that begins with http:// or https:// and names a host, as"
            f" base_url (--base-url at a terminal) or in {provider.base_url_name}."
        )
    return url if url.endswith(provider.version) else url + provider.version
