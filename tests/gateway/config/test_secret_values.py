"""The redactor of registered values: no form of them is left, and what was JSON is still JSON."""

from __future__ import annotations

import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.gateway._config.secret_values import SecretValues

SECRETS = ["hunter2-plain", 'with "quotes" and \\ and /', "line\nend\ttab", "pässwörd-ü", "n123456", "a b&c=d/e", "\\n12345"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("plain", [True, False], ids=["ascii", "utf-8"])
def test_a_value_is_removed_in_every_form(secret: str, plain: bool) -> None:
    """In a text, in a key, in JSON that is a text itself, and in a URL."""
    inner = json.dumps({"key": secret}, ensure_ascii=plain)
    given = {
        "text": f"before {secret} after",
        secret: 1,
        "json": inner,
        "url": f"https://h/?k={quote_plus(secret)}&p={quote(secret, safe='')}",
    }
    body = SecretValues([secret]).redact(json.dumps(given, ensure_ascii=plain).encode())
    left = json.loads(body)
    assert left["text"] == "before *** after"
    assert left["***"] == 1
    assert json.loads(left["json"]) == {"key": "***"}
    assert left["url"] == "https://h/?k=***&p=***"


def test_a_slash_may_be_escaped() -> None:
    assert SecretValues(["to/ken/1"]).redact(rb'{"a":"to\/ken\/1"}') == b'{"a":"***"}'


def test_a_value_is_not_found_in_the_middle_of_an_escape() -> None:
    """`n123456` is not in the text "line end, 123456"; what is left would be no JSON."""
    body = json.dumps({"a": "\n123456", "b": "\\n123456"}).encode()
    assert json.loads(SecretValues(["n123456"]).redact(body)) == {"a": "\n123456", "b": "\\***"}


def test_a_number_becomes_a_text() -> None:
    body = b'{"pin":123456,"other":1234567,"list":[123456],"text":"123456"}'
    assert json.loads(SecretValues(["123456"]).redact(body)) == {"pin": "***", "other": 1234567, "list": ["***"], "text": "***"}


@given(value=JSON, secret=st.text(min_size=6, max_size=12))
def test_what_was_json_is_json(value: object, secret: str) -> None:
    body = json.dumps([value, secret, {secret: secret}]).encode("utf-8", "surrogatepass")
    left = json.loads(SecretValues([secret, "123456"]).redact(body))
    assert left[1:] == ["***", {"***": "***"}]


def test_without_values_nothing_changes_and_none_is_shown() -> None:
    assert SecretValues([]).redact(b'{"a":"***"}') == b'{"a":"***"}'
    assert "hunter2" not in repr(SecretValues(["hunter2-plain"]))
