"""The provider names that a host may give: the names that `callgate.models.providers.model` takes, and the names of the APIs."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from msgspec import Struct

from callgate.errors import UsageError
from callgate.models.wire import known_apis

__all__ = ["ProviderApi", "provider_api", "shown_api"]

_USUAL = ("openai", "openai-responses", "anthropic", "gemini", "bedrock", "mistral", "cohere", "ollama")
_OTHER_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("google", "google-genai", "genai", "vertex", "vertexai"), "gemini"),
    **dict.fromkeys(("aws", "boto3", "amazon", "converse", "bedrock-runtime"), "bedrock"),
    "claude": "anthropic",
}
"""Names of companies, SDKs and models, with the provider that they mean."""
_SEPARATORS = str.maketrans("._ ", "---")


class ProviderApi(Struct, frozen=True, kw_only=True):
    """A provider's API, and the provider's differences from it."""

    api: str
    """The API's name in `callgate.models.wire`, such as `openai.chat`."""
    quirks: Mapping[str, object] = {}


def shown_api(api: str, given: object) -> ProviderApi:
    """Return the API that a response or chunk has shown, with the differences of the provider whose SDK it came from."""
    if api == "openai.chat" and type(given).__module__.startswith("mistralai"):
        return provider_api("mistral")
    return ProviderApi(api=api)


def provider_api(provider: str) -> ProviderApi:
    """Return the API of a provider: `anthropic`, `openai-responses`, `groq`; or `anthropic.messages`, the API's own name.

    Raises:
        UsageError: No provider and no API has this name.
    """
    if not isinstance(provider, str):
        raise UsageError(f"The provider is {provider!r:.80}; it must be a name, such as {', '.join(map(repr, _USUAL))}.")
    if provider in known_apis():
        return ProviderApi(api=provider)
    from callgate.models.providers import PROVIDERS

    found = PROVIDERS.get(provider.strip().lower())
    if found is not None:
        return ProviderApi(api=found.api, quirks=found.quirks)
    known = [*_USUAL, *(name for name in PROVIDERS if name not in _USUAL), *known_apis()]
    raise UsageError(f"No provider is called '{provider[:80]}'.{_suggest_name(provider, known)} Known are: {', '.join(known)}.")


def _suggest_name(provider: str, known: Sequence[str]) -> str:
    """Return the question whether the most similar name is meant; empty if none is similar. Of equally similar names, the first counts."""
    names = {**_OTHER_NAMES, **{_comparable(name): name for name in reversed(known)}}
    near = difflib.get_close_matches(_comparable(provider[:80]), names, n=1, cutoff=0.6)
    return f" Did you mean '{names[near[0]]}'?" if near else ""


def _comparable(name: str) -> str:
    return name.lower().translate(_SEPARATORS)
