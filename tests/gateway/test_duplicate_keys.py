"""A message in which an object has two equal keys is refused, wherever the object is and whatever else is in the message."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callgate.gateway._client_messages import RefusedMessage, read_client_message

TEXTS = st.sampled_from(('"a"', '"b"', '"a:b"', '"\\u0061"', '"\\u003a"', '"é:"', '"x\\"y:"', '""', '"::"', '"http://a"'))
SCALARS = TEXTS | st.sampled_from(("1", "-0.5e3", "true", "null", "123456789012345678901234567890"))
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]")
        | st.lists(st.tuples(TEXTS, inner), max_size=3).map(lambda pairs: f"{{{','.join(f'{key}:{value}' for key, value in pairs)}}}")
    ),
    max_leaves=8,
)


def has_a_key_twice(text: str) -> bool:
    found = False

    def note(pairs: list[tuple[str, object]]) -> None:
        nonlocal found
        found = found or len(dict(pairs)) != len(pairs)

    json.loads(text, object_pairs_hook=note)
    return found


@given(VALUES)
@example(r'{"a":1,"a":"\u003a"}')
@example('{"a":"b:c","a":1}')
@example('{"a":123456789012345678901234567890,"a":1}')
def test_a_message_is_refused_exactly_if_an_object_has_a_key_twice(value: str) -> None:
    text = f'{{"jsonrpc":"2.0","id":1,"method":"m","params":{value}}}'
    if has_a_key_twice(text):
        with pytest.raises(RefusedMessage, match="twice"):
            read_client_message(text.encode())
    else:
        assert read_client_message(text.encode())["id"] == 1
