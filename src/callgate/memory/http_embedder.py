"""An embedder behind HTTP: `POST /embeddings` as in OpenAI's API and many local servers.

Requests are limited in time and size. Redirects are not followed. Requests are not retried here; the memory retries. Errors never show
keys. httpx2 is imported with the first request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec import Struct

from callgate.errors import UsageError
from callgate.memory.embedder_protocol import EmbedderFailed
from callgate.models._credential_redaction import SecretRedactor, redact_url, secrets_in_url
from callgate.models._http_clients import create_client, tls_context

if TYPE_CHECKING:
    import httpx2

__all__ = ["EmbeddingsEndpoint"]

_BODY_BYTES = 67_108_864
_SAID_CHARS = 300


class _EmbeddingItem(Struct):
    index: int
    embedding: list[float]


class _EmbeddingsBody(Struct):
    data: list[_EmbeddingItem]


_decode = msgspec.json.Decoder(_EmbeddingsBody).decode


class EmbeddingsEndpoint:
    """An `Embedder` that sends requests to a server. Close it when its memory is closed.

    Args:
        base_url: The URL without `/embeddings`, such as `http://127.0.0.1:8080/v1`.
        model: The model's name on the server; also this embedder's name.
        dimension: The number of components of its vectors.
        api_key: Sent as a bearer token.
        headers: Additional headers.
        shorten: Whether to request vectors of this dimension from a model that can shorten them.
        timeout_s: The timeout in seconds for each step of a request.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        dimension: int,
        *,
        api_key: str = "",
        headers: Mapping[str, str] | None = None,
        shorten: bool = False,
        timeout_s: float = 30.0,
    ) -> None:
        self.name = model
        self.dimension = dimension
        self._url = f"{base_url.rstrip('/')}/embeddings"
        self._headers = {**({"authorization": f"Bearer {api_key}"} if api_key else {}), **(headers or {})}
        self._shown = redact_url(self._url)
        self._hidden = SecretRedactor.from_headers(self._headers, (api_key, *secrets_in_url(base_url)))
        self._shorten = shorten
        self._timeout_s = timeout_s
        self._client: httpx2.Client | None = None

    def __call__(self, texts: Sequence[str], /) -> list[list[float]]:
        """Return one vector per text.

        Raises:
            EmbedderFailed: The server did not answer, or its answer has no valid vectors.
        """
        asked = {"model": self.name, "input": list(texts), "encoding_format": "float"}
        answer = self._post(msgspec.json.encode(asked | ({"dimensions": self.dimension} if self._shorten else {})))
        try:
            found = {item.index: item.embedding for item in _decode(answer).data}
        except msgspec.DecodeError as error:
            raise EmbedderFailed(f"{self._shown} answered something else than embeddings: {error}.") from error
        if sorted(found) != list(range(len(texts))):
            raise EmbedderFailed(f"{self._shown} gave {len(found)} vectors for {len(texts)} texts.")
        return [found[index] for index in range(len(texts))]

    def close(self) -> None:
        """Close the connections. Idempotent."""
        if self._client is not None:
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _post(self, body: bytes) -> bytes:
        httpx = _import_httpx()
        if self._client is None:
            self._client = create_client(lambda: httpx.Client(timeout=self._timeout_s, follow_redirects=False, verify=tls_context()))
        headers = {"content-type": "application/json", **self._headers}
        try:
            with self._client.stream("POST", self._url, content=body, headers=headers) as response:
                answer = _read(response)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            said = self._hidden.redact(str(error) or type(error).__name__)
            raise EmbedderFailed(f"{self._shown} could not be asked: {said}. Check the address and whether it is up.") from None
        if not response.is_success:
            said = self._hidden.redact_and_truncate(answer.decode("utf-8", "replace"), _SAID_CHARS)
            raise EmbedderFailed(f"{self._shown} refused with status {response.status_code}: {said}")
        return answer


def _read(response: httpx2.Response) -> bytes:
    """Return the body of a response.

    Raises:
        EmbedderFailed: The body is larger than the limit.
    """
    pieces, size = [], 0
    for piece in response.iter_bytes():
        size += len(piece)
        if size > _BODY_BYTES:
            raise EmbedderFailed(
                f"{redact_url(str(response.url))} answered with more than {_BODY_BYTES:,} bytes. Ask for fewer texts at once."
            )
        pieces.append(piece)
    return b"".join(pieces)


def _import_httpx() -> Any:
    try:
        import httpx2
    except ImportError as error:
        raise UsageError("An embeddings endpoint needs httpx2, which is not installed. Run: pip install 'callgate[models]'.") from error
    return httpx2
