"""Requests of the providers' own SDKs to a server on the loopback interface. The SDKs are imported when they are used."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import pytest

__all__ = ["ASK", "SDK_WARNINGS", "SYNC_STREAMS", "bedrock_client", "close_clients", "kept"]

Ask = Callable[..., Any]

SDK_WARNINGS = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
"""Mark of tests with an SDK, whose own warnings are of no interest."""
_clients: list[Any] = []


def kept(client: Any) -> Any:
    """Keep a client until `close_clients`: one that is dropped starts a task to close itself, wherever it is collected."""
    _clients.append(client)
    return client


async def close_clients() -> None:
    """Close the kept clients of OpenAI and Anthropic; the others need it not."""
    while _clients:
        closing = getattr(_clients.pop(), "close", lambda: None)()
        if inspect.isawaitable(closing):
            await closing


async def _openai(url: str, messages: list[Any], tools: list[Any], **more: Any) -> Any:
    import openai

    client = kept(openai.AsyncOpenAI(api_key="x", base_url=url, max_retries=0))
    return await client.chat.completions.create(model="gpt-5", messages=messages, tools=tools, **more)


async def _responses(url: str, messages: list[Any], tools: list[Any], **more: Any) -> Any:
    import openai

    client = kept(openai.AsyncOpenAI(api_key="x", base_url=url, max_retries=0))
    return await client.responses.create(model="gpt-5", input=messages, tools=tools, **more)


async def _anthropic(url: str, messages: list[Any], tools: list[Any], **more: Any) -> Any:
    import anthropic

    client = kept(anthropic.AsyncAnthropic(api_key="x", base_url=url, max_retries=0))
    return await client.messages.create(model="claude", max_tokens=99, messages=messages, tools=tools, **more)


async def _gemini(url: str, messages: list[Any], tools: list[Any], *, stream: bool = False) -> Any:
    from google import genai

    client = genai.Client(api_key="x", http_options=genai.types.HttpOptions(base_url=url)).aio.models
    asked: Any = client.generate_content_stream if stream else client.generate_content
    return await asked(model="gemini-3-pro", contents=messages, config={"tools": tools, "automatic_function_calling": {"disable": True}})


async def _bedrock(url: str, messages: list[Any], tools: list[Any]) -> Any:
    return bedrock_client(url).converse(modelId="m", messages=messages, toolConfig={"tools": tools})


async def _mistral(url: str, messages: list[Any], tools: list[Any], *, stream: bool = False) -> Any:
    from mistralai.client import Mistral

    chat = Mistral(api_key="x", server_url=url).chat
    asked: Any = chat.stream_async if stream else chat.complete_async
    return await asked(model="mistral-large", messages=messages, tools=tools)


async def _cohere(url: str, messages: list[Any], tools: list[Any], *, stream: bool = False) -> Any:
    import cohere

    client = kept(cohere.AsyncClientV2(api_key="x", base_url=url))
    if stream:
        return client.chat_stream(model="command", messages=messages, tools=tools)
    return await client.chat(model="command", messages=messages, tools=tools)


async def _ollama(url: str, messages: list[Any], tools: list[Any], **more: Any) -> Any:
    import ollama

    return await ollama.AsyncClient(host=url).chat(model="qwen3", messages=messages, tools=tools, **more)


def bedrock_client(url: str) -> Any:
    import boto3
    from botocore.config import Config

    settings = Config(retries={"total_max_attempts": 1})
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "eu-west-1"}
    return boto3.client("bedrock-runtime", endpoint_url=url, config=settings, **keys)


ASK: Mapping[str, Ask] = {
    "openai": _openai,
    "openai-responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "bedrock": _bedrock,
    "mistral": _mistral,
    "cohere": _cohere,
    "ollama": _ollama,
}
"""By provider: sends one request with the asynchronous SDK, where there is one; with `stream=True` returns its stream."""


def _bedrock_stream(url: str, messages: list[Any], tools: list[Any]) -> Any:
    return bedrock_client(url).converse_stream(modelId="m", messages=messages, toolConfig={"tools": tools})["stream"]


def _openai_stream(url: str, messages: list[Any], tools: list[Any]) -> Any:
    import openai

    client = kept(openai.OpenAI(api_key="x", base_url=url, max_retries=0))
    return client.chat.completions.create(model="gpt-5", messages=messages, tools=tools, stream=True)


SYNC_STREAMS: Mapping[str, Ask] = {"bedrock": _bedrock_stream, "openai": _openai_stream}
"""By provider: sends one request with the synchronous SDK and returns its stream."""
