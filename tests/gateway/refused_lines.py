"""Messages of clients that are refused as a whole, and the id and the code of the answer."""

from __future__ import annotations

__all__ = ["REFUSED"]

_CALL = '{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"price","arguments":{"item":%s}}}'

REFUSED: dict[str, tuple[str, object, int]] = {
    "half a surrogate pair": (_CALL % ('"seven"', r'"\ud800"'), "seven", -32600),
    "half a surrogate pair in a key": (_CALL % (7, r'{"\udc00":1}'), 7, -32600),
    "a duplicate key": (_CALL % (7, '{"a":1,"a":2}'), 7, -32600),
    "no number of JSON": (_CALL % (7, "NaN"), 7, -32600),
    "a number that is too large": (_CALL % (7, "-1e400"), 7, -32600),
    "an integer of very many digits": (_CALL % (7, "9" * 5_000), 7, -32600),
    "nested too deeply": (_CALL % (7, "[" * 5_000 + "]" * 5_000), 7, -32600),
    "no version": ('{"id":7,"method":"ping"}', 7, -32600),
    "half a surrogate pair in a notification": (r'{"jsonrpc":"2.0","method":"\ud800"}', None, -32700),
    "half a surrogate pair in an id": (r'{"jsonrpc":"2.0","id":"\ud800","method":"ping"}', None, -32700),
    "half a surrogate pair in a response to nobody": (r'{"jsonrpc":"2.0","id":7,"result":{"a":"\ud800"}}', None, -32700),
    "an id that is no id": (r'{"jsonrpc":"2.0","id":[7],"method":"\ud800"}', None, -32700),
    "a batch": (f"[{_CALL % (7, '1')}]", None, -32600),
    "an empty batch": ("[]", None, -32600),
    "a number instead of a message": ("5", None, -32600),
    "a text instead of a message": ('"a"', None, -32600),
    "null instead of a message": ("null", None, -32600),
    "no JSON": ('{"jsonrpc":"2.0","id":7,"method":"ping"', None, -32700),
}
