"""Error messages for refused requests, and which requests are retried; tested without a socket."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.models._credential_redaction import SecretRedactor
from callgate.models._error_messages import describe_error_response
from callgate.models._http_retries import Retries, is_retryable_response, retry_after_s


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        (
            {"error": {"message": "None left.", "type": "quota", "code": "no_quota"}},
            "no_quota",
            "None left",
        ),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overloaded_error", "Overloaded"),
        (
            [{"error": {"code": 400, "message": "Key not valid.", "status": "INVALID_ARGUMENT"}}],
            "INVALID_ARGUMENT",
            "Key not valid",
        ),
        ({"object": "error", "message": "too long", "type": "BadRequestError", "code": 400}, "BadRequestError", "too long"),
        ({"error": "model 'x' not found"}, "http_400", "model 'x' not found"),
        ({"detail": "Not Found"}, "http_400", "Not Found"),
        ({"message": {"detail": [{"loc": ["body"]}]}}, "http_400", '{"message": {"detail": [{"loc": ["body"]}]}}'),
        ({"Message": "not authorised"}, "http_400", "not authorised"),
        ({"code": 500, "msg": "no route"}, "http_400", "no route"),
        ({"errors": [{"message": "no route", "code": 7000}], "success": False}, "http_400", "no route"),
        ({"status": 429, "title": "Too Many Requests"}, "http_400", "Too Many Requests"),
        (
            {"error": {"message": "Provider returned error", "code": 429, "metadata": {"raw": "busy upstream", "provider_name": "X"}}},
            "http_400",
            "Provider returned error: busy upstream",
        ),
        ("just a text", "http_400", "just a text"),
        ([], "http_400", "[]"),
        (None, "http_400", "null"),
    ],
)
def test_error_bodies_of_every_known_shape_are_read(body: object, code: str, said: str) -> None:
    assert describe_error_response("someone", 400, json.dumps(body).encode()) == (code, f"someone answered 400: {said}.")


def test_an_html_error_page_is_shown_truncated_and_without_tags() -> None:
    page = b"<html><head><title>502 Bad Gateway</title><style>p { color: red }</style></head><body>" + b"<p>nginx</p>" * 5_000
    _, text = describe_error_response("someone", 502, page)
    assert text.startswith("someone answered 502: 502 Bad Gateway nginx")
    assert len(text) < 2_100


def test_an_error_message_names_the_next_step() -> None:
    assert (
        describe_error_response("someone", 401, b"", key_name="SOME_KEY")[1]
        == "someone answered 401: an empty body. Check the key in SOME_KEY."
    )
    assert "which is not followed" in describe_error_response("someone", 308, b"", location="https://elsewhere.example/")[1]


@given(st.binary(max_size=300), st.sampled_from([400, 401, 404, 429, 500]))
def test_any_error_body_gives_a_code_and_a_message(body: bytes, status: int) -> None:
    code, text = describe_error_response("someone", status, body)
    assert code
    assert text.startswith(f"someone answered {status}: ")


def test_credentials_are_redacted_with_and_without_their_scheme() -> None:
    hidden = SecretRedactor.from_headers({"authorization": "Bearer sk-1234", "x-api-key": "abcd-ef", "x-team": "tools", "x-token": "abc"})
    shown = hidden.redact("Bearer sk-1234, sk-1234, abcd-ef, tools, abc")
    assert shown == "***, ***, ***, tools, abc"
    assert "1234" not in repr(hidden)


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 90.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:01 GMT"}, 0.0),
        ({"retry-after": "whenever"}, None),
        ({"retry-after-ms": "250", "retry-after": "3"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "3"}, 3.0),
    ],
)
def test_retry_after_headers_are_read(headers: dict[str, str], wait_s: float | None) -> None:
    assert retry_after_s(headers, now_s=10.0) == wait_s


@given(asked_s=st.none() | st.floats(0, 1e9), retry=st.integers(1, 20), jitter=st.floats(0, 1, exclude_max=True), most=st.integers(0, 20))
def test_a_retry_wait_is_never_above_the_limit_or_below_the_requested_time(
    asked_s: float | None, retry: int, jitter: float, most: int
) -> None:
    wait_s = Retries(max_retries=most).wait_s(asked_s, retry, jitter)
    if wait_s is None:
        assert retry > most or (asked_s is not None and asked_s > 60)
    else:
        assert retry <= most
        assert max(asked_s or 0.0, 0.0) <= wait_s <= 60


def test_retry_waits_without_a_requested_time_grow_exponentially() -> None:
    assert [Retries(max_retries=9).wait_s(None, retry, 0.0) for retry in (1, 2, 3, 8)] == [0.5, 1.0, 2.0, 60.0]


def test_the_retry_delay_in_a_google_error_body_is_read() -> None:
    """Google sends no header for the delay, and refuses requests that come earlier."""
    body = b'{"error": {"code": 429, "details": [{"@type": "RetryInfo", "retryDelay": "34.5s"}]}}'
    assert retry_after_s({}, 0.0, body) == 34.5
    assert retry_after_s({"retry-after": "3"}, 0.0, body) == 3.0


def test_an_exhausted_quota_is_not_retryable() -> None:
    assert not is_retryable_response(429, {}, b'{"error": {"code": "insufficient_quota"}}')
    assert is_retryable_response(429, {}, b'{"error": {"code": "rate_limit_exceeded"}}')


def test_the_should_retry_header_decides_if_a_response_is_retryable() -> None:
    assert is_retryable_response(400, {"x-should-retry": "true"})
    assert not is_retryable_response(503, {"x-should-retry": "false"})
    assert is_retryable_response(503, {"x-should-retry": "perhaps"})
