"""Providers as data, and the one function that makes a model of a name.

A provider is where its servers are, which API it speaks, where its key comes from and what it wants differently. One that is not in the
table is `openai-compatible` with a `base_url`. Keys go from the environment into headers and nowhere else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from callgate.errors import UsageError
from callgate.models.http import Retries, Timeouts, Transport
from callgate.models.http_model import HttpModel, Signer

if TYPE_CHECKING:
    import httpx2

    from callgate.models._sigv4 import AwsKeys

__all__ = ["PROVIDERS", "Provider", "model"]


class Provider(Struct, frozen=True, kw_only=True):
    """Who serves models, and how they are asked."""

    name: str
    api: str = "openai.chat"
    base_url: str = ""
    """Empty where there is no usual one."""
    version: str = ""
    """The path that belongs to the base URL, where people give the URL with it and without it."""
    key_name: str = ""
    """The environment variable of the key."""
    signs: bool = False
    """Whether AWS keys do instead of a key: requests are then signed with them."""
    key_needed: bool = True
    auth: Literal["bearer", "x-api-key", "x-goog-api-key"] = "bearer"
    """How the key travels: always in a header, since addresses end up in logs."""
    headers: Mapping[str, str] = {}
    quirks: Mapping[str, object] = {}

    @property
    def base_url_name(self) -> str:
        """The environment variable that overrides the base URL."""
        return _variable(self.name.removesuffix("-responses"), "BASE_URL")


def _variable(name: str, what: str) -> str:
    return f"{name.replace('-', '_').upper()}_{what}"


def _hosted(name: str, base_url: str, quirks: Mapping[str, object] = {}, *, key_name: str = "") -> Provider:
    return Provider(name=name, base_url=base_url, key_name=key_name or _variable(name, "API_KEY"), quirks=quirks)


def _own(name: str, base_url: str, quirks: Mapping[str, object] = {}, *, api: str = "openai.chat") -> Provider:
    """A server that people run themselves: a key is sent where there is one."""
    return Provider(name=name, api=api, base_url=base_url, key_name=_variable(name, "API_KEY"), key_needed=False, quirks=quirks)


_ADDRESS = re.compile(r"https?://([^/?#@\s]*@)?(\[[\da-f:.%]+\]|[^/?#@:\s\[\]]+)(:\d{0,5})?([/?#].*)?", re.IGNORECASE)
_PLAIN: dict[str, object] = {"custom_tools": False}
_OLD: dict[str, object] = {**_PLAIN, "max_tokens_key": "max_tokens"}
_QUIET: dict[str, object] = {**_OLD, "stream_usage": False}
_THINKING: dict[str, object] = {**_OLD, "reasoning_key": "reasoning_content"}

PROVIDERS: Mapping[str, Provider] = {
    provider.name: provider
    for provider in (
        _hosted("openai", "https://api.openai.com/v1"),
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
        _hosted("mistral", "https://api.mistral.ai/v1", {**_QUIET, "id_chars": 9}),
        _hosted("groq", "https://api.groq.com/openai/v1", _PLAIN),
        _hosted("deepseek", "https://api.deepseek.com", _THINKING),
        _hosted("openrouter", "https://openrouter.ai/api/v1", _OLD),
        _hosted("together", "https://api.together.xyz/v1", _OLD),
        _hosted("fireworks", "https://api.fireworks.ai/inference/v1", _OLD),
        _hosted("xai", "https://api.x.ai/v1", _PLAIN),
        _hosted("cerebras", "https://api.cerebras.ai/v1", _PLAIN),
        _hosted("nvidia", "https://integrate.api.nvidia.com/v1", _OLD),
        _hosted("huggingface", "https://router.huggingface.co/v1", _OLD, key_name="HF_TOKEN"),
        Provider(name="cohere", api="cohere.chat", base_url="https://api.cohere.com", key_name="COHERE_API_KEY"),
        Provider(
            name="bedrock",
            api="bedrock.converse",
            base_url="https://bedrock-runtime.{region}.amazonaws.com",
            key_name="AWS_BEARER_TOKEN_BEDROCK",
            signs=True,
        ),
        _hosted("perplexity", "https://api.perplexity.ai", _QUIET),
        _hosted("moonshot", "https://api.moonshot.ai/v1", _THINKING),
        _hosted("zai", "https://api.z.ai/api/paas/v4", _THINKING),
        _own("ollama", "http://localhost:11434", api="ollama.chat"),
        _own("lmstudio", "http://localhost:1234/v1", _OLD),
        _own("vllm", "http://localhost:8000/v1", _OLD),
        _own("llamacpp", "http://localhost:8080/v1", _OLD),
        _own("openai-compatible", "", _OLD),
    )
}
"""By name."""


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
    """A provider's model: `model("openai:gpt-5")`.

    Args:
        name: The provider, a colon, and the provider's name for the model, which may hold colons itself.
        base_url: Instead of the provider's own, and of `OPENAI_BASE_URL` or whatever the provider's variable is.
        api_key: Instead of the one in the environment.
        timeouts: The deadlines of a request.
        retries: How patiently a request is sent again.
        client: An `httpx2.AsyncClient` of your own, for your own proxies and certificates; you close it.
        native_tools: False where the model takes no tools, and they are taught in the prompt.
        headers: Sent with every request, and never shown where their names say that they are secret.
        quirks: What this server wants differently, over what is known of it.
        environ: Where keys and base URLs are looked up.

    Raises:
        UsageError: There is no such provider, its key is missing or cannot be sent, or it has no base URL.
    """
    provider, said = _provider(name)
    keys = _aws_keys(provider, api_key, environ)
    key = "" if keys is not None else _key(provider, api_key, environ)
    url = base_url or environ.get(provider.base_url_name, "") or _of_region(provider, environ)
    if not url:
        raise UsageError(f"'{provider.name}' has no address of its own. Give base_url, or set {provider.base_url_name}.")
    signer = _signer(keys, environ, url) if keys is not None else None
    return HttpModel(
        provider.name,
        said,
        api=provider.api,
        base_url=_address(provider, url),
        transport=Transport(provider.name, timeouts=timeouts, retries=retries, client=client),
        headers={**provider.headers, **_authorisation(provider, key), **headers},
        quirks={**provider.quirks, **quirks},
        native_tools=native_tools,
        key_name=provider.key_name if signer is None else "AWS_ACCESS_KEY_ID",
        signer=signer,
    )


def _provider(name: str) -> tuple[Provider, str]:
    given, colon, said = name.partition(":")
    provider = PROVIDERS.get(given.strip().lower())
    if provider is None:
        raise UsageError(
            f"No provider is called '{given[:80]}'. Known are: {', '.join(PROVIDERS)}. "
            "For any other that speaks OpenAI's chat completions: model('openai-compatible:NAME', base_url=...)."
        )
    if not colon or not said.strip():
        raise UsageError(f"'{name[:80]}' names no model. Write the provider, a colon and the model: '{provider.name}:NAME'.")
    return provider, said.strip()


def _of_region(provider: Provider, environ: Mapping[str, str]) -> str:
    if "{region}" not in provider.base_url:
        return provider.base_url
    from callgate.models._aws import region_from_environment

    return provider.base_url.format(region=region_from_environment(environ))


def _aws_keys(provider: Provider, api_key: str | None, environ: Mapping[str, str]) -> AwsKeys | None:
    """What to sign with; None where a key does, which goes before."""
    if not provider.signs or api_key is not None or environ.get(provider.key_name, "").strip():
        return None
    from callgate.models._aws import keys_from_environment

    return keys_from_environment(environ)


def _signer(keys: AwsKeys, environ: Mapping[str, str], url: str) -> Signer:
    from callgate.models._aws import AwsSigner, region_from_environment

    return AwsSigner(keys, region_from_environment(environ, url))


def _key(provider: Provider, given: str | None, environ: Mapping[str, str]) -> str:
    key = (environ.get(provider.key_name, "") if given is None else given).strip()
    if not key and provider.key_needed:
        keys = ", AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY" if provider.signs else ""
        raise UsageError(f"'{provider.name}' needs a key. Set {provider.key_name}{keys}, or give api_key.")
    if not (key.isascii() and (not key or key.isprintable())):
        raise UsageError(f"The key of '{provider.name}' has characters that no header can hold. Copy it into {provider.key_name} again.")
    return key


def _authorisation(provider: Provider, key: str) -> dict[str, str]:
    if not key:
        return {}
    return {"authorization": f"Bearer {key}"} if provider.auth == "bearer" else {provider.auth: key}


def _address(provider: Provider, url: str) -> str:
    """The base URL with its scheme, and with the provider's version just once.

    Raises:
        UsageError: It is no address that can be asked.
    """
    url = (url.strip() if "://" in url else f"http://{url.strip()}").rstrip("/")
    if not _ADDRESS.fullmatch(url):
        scheme, _, rest = url.partition("://")
        shown = f"{scheme}://{rest.partition('/')[0].partition('?')[0].rpartition('@')[2]}"
        raise UsageError(
            f"'{provider.name}' cannot be asked at {shown[:200]}. Give a URL that begins with http:// or https:// and names a host, as"
            f" base_url (--base-url at a terminal) or in {provider.base_url_name}."
        )
    return url if url.endswith(provider.version) else url + provider.version
