"""Texts of malformed JSON with one reading, which are repaired, and with several, which are refused."""

from __future__ import annotations

import pytest

from callgate import Limits
from callgate._json.json_repair import repair_text

LIMITS = Limits()


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ('{"a":1}}', {"a": 1}),
        ('{"a":[1,2}}', {"a": [1, 2]}),
        ('\ufeff{"a":\u200b1}', {"a": 1}),
        (r"{\"a\": 1, \"b\": \"say \\\"hi\\\"\"}", {"a": 1, "b": 'say "hi"'}),
        (
            '{"day": 2026-11-23, "at": 2026-11-23T10:00:00Z, "city": Paris}',
            {"day": "2026-11-23", "at": "2026-11-23T10:00:00Z", "city": "Paris"},
        ),
        ('{"city": New York, "host": 10.0.0.1, "id": 57ee-b1}', {"city": "New York", "host": "10.0.0.1", "id": "57ee-b1"}),
        ('{"a": 1, # one\n "b": 2 // two\n}', {"a": 1, "b": 2}),
        ("{\u2018a\u2019: “it's”}", {"a": "it's"}),
        ('{"a":"x"\n"b":"y"}', {"a": "x", "b": "y"}),
        ('{"a":["x"\n"y"]}', {"a": ["x", "y"]}),
        ('{"a": https://x.org/,"b": ftp://y.org/a?b=c&d=%20#e}', {"a": "https://x.org/", "b": "ftp://y.org/a?b=c&d=%20#e"}),
        ('{"a": [https://x.org, http://localhost:80/y]}', {"a": ["https://x.org", "http://localhost:80/y"]}),
        ('{{"a": {{"b": [{{}}]}} }}', {"a": {"b": [{}]}}),
        ('{{"a": {"b": 1}}}', {"a": {"b": 1}}),
        ('{"a": 1};\n', {"a": 1}),
        ('{x-id": 1, content-type": "json", $ref": "#"}', {"x-id": 1, "content-type": "json", "$ref": "#"}),
        ('```js\n{"a": 1};\n```', {"a": 1}),
        ('`{"a": 1}`', {"a": 1}),
        (r'{\n  "a": [1,\n\t2],\r\n  "b": "\n"\n}', {"a": [1, 2], "b": "\n"}),
    ],
)
def test_text_with_one_reading_is_repaired(text: str, meant: dict[str, object]) -> None:
    assert repair_text(text, LIMITS) == (True, meant)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "x, "b": 1}',
        '{"a": "x, "b": "y"}',
        '{"a": "say "hi" now"}',
        '{"a": ["say "hi" now"]}',
        '{"a": ["say " hi " now"]}',
        '{"a": ["x" "y"]}',
        '{"a": ["x, "y", "z, "w"]}',
        "{'a': 'it's', 'b': 'he's'}",
        *(f'{{"a": {word}}}' for word in ("1e", "2e-", "1e+", "05", "1_000", "+5", "0x1F", "10n", "1..2", "2026-11-", "--5", "1.2e3.4")),
        *(f'{{"a": {word}}}' for word in ("TRUE", "Null", "none", "nan", "-Infinity", "undefined", "not true", "1 000", "foo...")),
        *(f"{{{word}: 1}}" for word in ("True", "None", "1e3", "05", "a b", "NaN")),
        r'{"a": "\d+"}',
        r'{"a": "C:\dir"}',
        r'{"a": "\u12"}',
        r"{\"a\": \"x\\ny\"}",
        r'{\"a\": "x"}',
        '{"a": {"b": [1}, "c": 2}}',
        '{"a": "x"]}',
        '{"a": [}]}',
        '{"a": [1]]}',
        '{]// "a": 1}',
        '{"a":1}} and more',
        '{} // " }',
        '{"a": 1,\n//b": 2\n}',
        '{"a":1}{"b":2}}',
        '{"a": {"b": 1}"c": 2}}',
        '{"a": {"b": 1,} "c": 2}}',
        '{"a": foo // or bar\n}',
        '{"a": Par\u200bis}',
        "{...}",
        '{"a": [...]}',
        '{"a": [,1]}',
        '{"a": [,]}',
        "{,}",
        ',{"a":1}',
        '{"a": [New York, Paris]}',
        '{"a": Paris, France}',
        '{"a": 1 b: 2}',
        '{"a": """x"""}',
        '{"a": b"x"}',
        '{"a" 1}',
        '{"a": "x"; "b": 1}',
        '{"a": 1 ```json "b": 2}',
        '{"a": [https://x.org,https://y.org]}',
        '{"a": https://x.org/a,b}',
        '{"a": https://x.org is it}',
        '{"a": https://x.org // or not\n}',
        '{"a": https://x.or',
        '{"a": 1;}',
        '{"a": 1;',
        '{"a": 1};;',
        '{"a": 1}; {"b": 2}',
        '{{"a": {"b": {{}}}}}',
        '{{"a": { {"b": 1}}}}',
        '{{"a": {{"b": 1}}',
        r'{"a": x\n}',
        r'{"a": 1,\nb: 2}',
        r'{"a": [1\n2]}',
        '{"a": `x`}',
        '{"a": 1} ` {"b": 2}',
    ],
)
def test_text_with_two_readings_is_refused(text: str) -> None:
    assert repair_text(text, LIMITS) == (False, None)
