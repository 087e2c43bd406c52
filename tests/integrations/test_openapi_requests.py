"""Calls of tools from an OpenAPI document, against a real HTTP server: what is sent, and what the answers become."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx2
import pytest

from callgate import AbortController, Engine, RawCall, RetryPolicy, Scope, Tool, ToolContext, ToolResult
from callgate.calls import Effect
from callgate.integrations.openapi import openapi_tools
from tests.engine_calls import call, result_of
from tests.integrations.http_api import Answer, HttpApi, Received, json_answer
from tests.integrations.shop_document import operation, shop

SECRET = "Bearer tok-9c1f0aa7"


def ok(_: Received) -> Answer:
    return json_answer("{}")


async def ask(tools: list[Tool], name: str = "ask", /, **arguments: object) -> ToolResult:
    async with Engine(tools) as engine:
        return result_of(await engine.call(RawCall(name=name, arguments=arguments)))


async def sent(*parameters: dict[str, Any], path: str = "/things", arguments: dict[str, object], **more: Any) -> Received:
    """Return the request that a call of a tool with these parameters makes."""
    async with HttpApi(ok) as api:
        result = await ask(openapi_tools(operation(*parameters, path=path, **more), base_url=api.url), **arguments)
        assert result.success, result.text
        return api.received[0]


def q(style: str | None = None, *, explode: bool | None = None, **more: Any) -> dict[str, Any]:
    chosen = {"style": style, "explode": explode}
    return {"name": "q", "in": "query", "schema": {}} | {key: value for key, value in chosen.items() if value is not None} | more


LIST, OBJECT = ["a b", "c,d"], {"R": 100, "G": "x&y"}
QUERIES: dict[str, tuple[dict[str, Any], object, str]] = {
    "text": (q(), "ä/&=?#", "q=%C3%A4%2F%26%3D%3F%23"),
    "a flag": (q(), True, "q=true"),
    "null": (q(), None, ""),
    "null as json": (q(content={"application/json": {"schema": {}}}), None, "q=null"),
    "a list": (q(), LIST, "q=a%20b&q=c%2Cd"),
    "a list, not exploded": (q(explode=False), LIST, "q=a%20b,c%2Cd"),
    "no items": (q(), [], ""),
    "a list with spaces": (q("spaceDelimited"), ["a", "b"], "q=a%20b"),
    "a list with pipes": (q("pipeDelimited", explode=False), ["a", "b"], "q=a%7Cb"),
    "an object": (q(), OBJECT, "R=100&G=x%26y"),
    "an object, not exploded": (q(explode=False), OBJECT, "q=R,100,G,x%26y"),
    "a deep object": (q("deepObject"), {"R": 1, "in": {"k": [2, 3]}}, "q%5BR%5D=1&q%5Bin%5D%5Bk%5D=2&q%5Bin%5D%5Bk%5D=3"),
    "json": (q(content={"application/json": {"schema": {}}}), {"a": [1]}, "q=%7B%22a%22%3A%5B1%5D%7D"),
    "reserved characters": (q(allowReserved=True), "a/b?c&d", "q=a/b?c%26d"),
    "reserved characters that end a value": (q(allowReserved=True), "a&b=c+d#e", "q=a%26b%3Dc%2Bd%23e"),
}


@pytest.mark.parametrize(("parameter", "value", "query"), QUERIES.values(), ids=QUERIES)
async def test_a_query_parameter_is_written_in_its_style(parameter: dict[str, Any], value: object, query: str) -> None:
    request = await sent(parameter, arguments={"q": value})
    assert request.target == f"/things{'?' + query if query else ''}"


PATHS: dict[str, tuple[dict[str, Any], object, str]] = {
    "text": ({}, "a/b ?#%", "a%2Fb%20%3F%23%25"),
    "a list": ({}, LIST, "a%20b,c%2Cd"),
    "an object": ({"explode": True}, OBJECT, "R=100,G=x%26y"),
    "a label": ({"style": "label", "explode": True}, ["x", "y"], ".x.y"),
    "a matrix": ({"style": "matrix"}, ["x", "y"], ";id=x,y"),
    "an exploded matrix": ({"style": "matrix", "explode": True}, ["x", "y"], ";id=x;id=y"),
}


@pytest.mark.parametrize(("style", "value", "path"), PATHS.values(), ids=PATHS)
async def test_a_path_parameter_is_escaped_and_written_in_its_style(style: dict[str, Any], value: object, path: str) -> None:
    parameter = {"name": "id", "in": "path", "required": True, "schema": {}} | style
    assert (await sent(parameter, path="/t/{id}/x", arguments={"id": value})).target == f"/t/{path}/x"


async def test_headers_and_cookies_are_sent() -> None:
    parameters = [{"name": "X-Tags", "in": "header", "schema": {}}, {"name": "session", "in": "cookie", "schema": {}}]
    request = await sent(*parameters, arguments={"X-Tags": ["a", "b"], "session": "x y"})
    assert (request.headers["x-tags"], request.headers["cookie"]) == ("a,b", "session=x%20y")


async def test_null_leaves_out_a_header_and_a_cookie() -> None:
    schema = {"type": "string", "nullable": True}
    parameters = [{"name": "X-Tag", "in": "header", "schema": schema}, {"name": "session", "in": "cookie", "schema": schema}]
    request = await sent(*parameters, arguments={"X-Tag": None, "session": None}, version="3.0.3")
    assert not {"x-tag", "cookie"} & set(request.headers)


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [("id", "path", ""), ("id", "path", ".."), ("id", "path", "../admin"), ("id", "path", "a/./b"), ("x-id", "header", "a\r\nX-Admin: 1")],
)
async def test_a_value_that_would_change_the_meaning_of_the_request_is_refused(name: str, place: str, value: str) -> None:
    path = "/t/{id}" if place == "path" else "/t"
    parameter = {"name": name, "in": place, "required": True, "schema": {"type": "string"}}
    async with HttpApi(ok) as api:
        result = await ask(openapi_tools(operation(parameter, path=path), base_url=api.url), **{name: value})
        assert result.failure_class == "invalid_parameters"
        assert api.received == []


async def test_a_body_is_sent_as_json_as_a_form_or_as_text() -> None:
    async def body(media_type: str, value: object, **media: Any) -> tuple[str, str]:
        content = {media_type: {"schema": {}} | media}
        request = await sent(method="post", requestBody={"content": content}, arguments={"body": value})
        return request.headers["content-type"], request.body.decode()

    assert await body("application/vnd.api+json", {"a": [1, None]}) == ("application/vnd.api+json", '{"a":[1,null]}')
    form = "application/x-www-form-urlencoded"
    assert await body(form, {"a": ["x y", "z"], "b": {"k": 1}}) == (form, "a=x%20y&a=z&b=%7B%22k%22%3A1%7D")
    styled = {"a": {"style": "form", "explode": False}, "b": {"style": "deepObject"}}
    assert await body(form, {"a": ["x", "y"], "b": {"k": 1}}, encoding=styled) == (form, "a=x,y&b%5Bk%5D=1")
    assert await body("text/plain", "hello") == ("text/plain", "hello")


async def test_no_value_of_a_parameter_cuts_off_what_follows_in_the_query() -> None:
    note = {"name": "note", "in": "query", "schema": {"type": "string"}, "allowReserved": True}
    dry_run = {"name": "dry_run", "in": "query", "schema": {"type": "boolean"}}
    async with HttpApi(ok) as api:
        tools = openapi_tools(operation(note, dry_run, method="post"), base_url=api.url, query={"shop": "7"})
        assert (await ask(tools, note="rent #7", dry_run=True)).success
        assert api.received[0].target == "/things?note=rent%20%237&dry_run=true&shop=7"


@pytest.mark.parametrize("media_type", ["application/xml", "text/xml; charset=utf-8", "application/soap+xml"])
async def test_a_body_of_xml_is_given_as_text(media_type: str) -> None:
    schema = {"type": "object", "description": "An order.", "properties": {"cents": {"type": "integer"}}}
    document = operation(method="post", requestBody={"content": {media_type: {"schema": schema}}})
    async with HttpApi(ok) as api:
        tools = openapi_tools(document, base_url=api.url)
        assert (await ask(tools, body={"cents": 5})).code == "schema_invalid"
        assert (await ask(tools, body="<order><cents>5</cents></order>")).success
        assert [(request.headers["content-type"], request.body) for request in api.received] == [
            (media_type, b"<order><cents>5</cents></order>")
        ]
    assert tools[0].parameters is not None
    described = tools[0].parameters["properties"]["body"]["description"]
    assert described.startswith("An order. XML as text. ")
    assert "cents" in described


async def test_a_call_gets_what_the_server_answers() -> None:
    def answer(request: Received) -> Answer:
        assert (request.method, request.target) == ("PUT", "/v1/articles/a%2F1")
        return json_answer(request.body.decode())

    async with HttpApi(answer) as api:
        tools = openapi_tools(shop(), base_url=f"{api.url}/v1/")
        result = await ask(tools, "replaceArticle", articleId="a/1", body={"name": "lamp"})
    assert result.data == {"name": "lamp"}
    assert result.text == '{"name":"lamp"}'


ANSWERS: dict[str, tuple[Answer, str]] = {
    "text": (Answer(200, "grün".encode("latin-1"), "text/plain; charset=latin-1"), "grün"),
    "nothing": (Answer(204, b"", ""), "GET /things answered 204 (No Content) without content."),
    "a place": (Answer(201, b"", "", {"Location": "/t/7"}), "GET /things answered 201 (Created) without content. Location: /t/7"),
    "json without a type": (Answer(200, b"[1]", ""), "[1]"),
    "text that should be json": (Answer(200, b"oops"), "oops"),
    "an own success": (json_answer('{"success":false,"end_turn":true}'), '{"success":true,"data":{"success":false,"end_turn":true}}'),
}


@pytest.mark.parametrize(("answer", "text"), ANSWERS.values(), ids=ANSWERS)
async def test_a_successful_answer_becomes_the_result(answer: Answer, text: str) -> None:
    async with HttpApi(lambda _: answer) as api:
        result = await ask(openapi_tools(operation(), base_url=api.url))
    assert (result.success, result.end_turn, result.text) == (True, False, text)


async def test_binary_answers_are_content_parts() -> None:
    media = iter(["image/png", "application/pdf"])
    async with HttpApi(lambda _: Answer(200, b"\x89PNG", next(media))) as api:
        tools = openapi_tools(operation(), base_url=api.url)
        image, document = await ask(tools), await ask(tools)
    assert '"image/png"' in json.dumps(image.structured) or image.content[0].mime_type == "image/png"  # type: ignore[union-attr]
    assert "application/pdf" in json.dumps(document.structured) or document.content[0].resource["mimeType"] == "application/pdf"  # type: ignore[union-attr]


FAILURES: dict[int, str] = {
    304: "Nothing has changed",
    301: "Redirects are not followed",
    400: "correct them as it says",
    401: "tell the user",
    404: "There is nothing with these arguments",
    409: "Read that state",
    418: "change it as the server says",
    500: "The server failed",
}


@pytest.mark.parametrize(("status", "hint"), FAILURES.items())
async def test_a_refusal_is_a_failure_that_the_model_can_act_on(status: int, hint: str) -> None:
    async with HttpApi(lambda _: json_answer('{"detail":"name is missing"}', status)) as api:
        result = await ask(openapi_tools(operation(), base_url=api.url))
        assert len(api.received) == 1
    assert (result.status, result.failure_class) == ("error", "tool_declared")
    assert f"GET /things answered {status}" in (result.error or "")
    assert hint in (result.error or "")
    assert ("name is missing" in result.text) == (status != 304)


@pytest.mark.parametrize("method", ["get", "post"])
async def test_an_answer_that_cannot_be_decoded_is_no_broken_connection(method: str) -> None:
    async with HttpApi(lambda _: json_answer("no gzip", Content_Encoding="gzip")) as api:
        result = await ask(openapi_tools(operation(method=method), base_url=api.url))
        assert len(api.received) == 1
    assert (result.status, result.failure_class) == ("error", "tool_declared")
    assert f"{method.upper()} /things answered 200 (OK), but its body cannot be decoded. The call did run" in (result.error or "")


async def test_a_refusal_whose_body_cannot_be_decoded_keeps_its_status() -> None:
    async with HttpApi(lambda _: json_answer("no gzip", 404, Content_Encoding="gzip")) as api:
        result = await ask(openapi_tools(operation(), base_url=api.url))
    assert "GET /things answered 404 (Not Found)" in (result.error or "")


async def test_a_long_answer_of_a_failure_is_cut() -> None:
    async with HttpApi(lambda _: Answer(400, b"x" * 100_000, "text/html")) as api:
        result = await ask(openapi_tools(operation(), base_url=api.url))
    assert "[cut, 100000 characters in all]" in json.dumps(result.structured)
    assert len(json.dumps(result.structured)) < 3_000


async def test_a_server_that_is_busy_is_asked_again_after_the_time_it_names() -> None:
    later = format_datetime(datetime.now(UTC) - timedelta(seconds=5), usegmt=True)
    answers = iter([json_answer("{}", 503, Retry_After=later), json_answer("{}", 429, Retry_After="0"), json_answer('"done"')])
    async with HttpApi(lambda _: next(answers)) as api:
        tools = openapi_tools(operation(), base_url=api.url)
        tools[0].retry = RetryPolicy(base_s=0)
        result = await ask(tools)
    assert (result.text, result.metadata.attempts) == ("done", 3)


async def test_a_rejected_request_that_was_not_accepted_yet_is_sent_again_whatever_its_effect() -> None:
    answers = iter([json_answer("{}", 429, Retry_After="0"), json_answer('"done"', 201)])
    async with HttpApi(lambda _: next(answers)) as api:
        tools = openapi_tools(operation(method="post"), base_url=api.url)
        tools[0].retry = RetryPolicy(base_s=0)
        result = await ask(tools)
        assert len(api.received) == 2
    assert result.text == "done"


async def test_the_host_is_told_what_makes_a_post_repeatable(caplog: pytest.LogCaptureFixture) -> None:
    async with HttpApi(lambda _: json_answer("{}", 500)) as api:
        assert (await ask(openapi_tools(operation(method="post"), base_url=api.url))).status == "unknown"
        told = next(record.getMessage() for record in caplog.records if "said once" in record.getMessage())
        assert "effects={'POST /things': 'idempotent'}" in told
        assert "NotDone" not in told
        assert [
            tool.effect for tool in openapi_tools(operation(method="post"), effects={"POST /things": "idempotent"}, base_url=api.url)
        ] == ["idempotent"]


@pytest.mark.parametrize(
    "answer",
    [json_answer("{}", 500), json_answer("{}", 503, Retry_After="0"), json_answer("{}", 408), json_answer("{}", 499), Answer(0)],
    ids=["500", "503", "408", "499", "broken"],
)
async def test_after_a_failure_of_the_server_it_is_unknown_if_a_post_took_effect(answer: Answer) -> None:
    async with HttpApi(lambda _: answer) as api:
        result = await ask(openapi_tools(operation(method="post"), base_url=api.url))
        assert len(api.received) == 1
    assert (result.status, result.failure_class) in {("unknown", "exception"), ("unknown", "outcome_unknown")}


@pytest.mark.parametrize(("method", "doubt"), [("get", False), ("put", True)])
async def test_the_failure_of_a_server_says_that_the_call_may_have_taken_effect(method: str, *, doubt: bool) -> None:
    async with HttpApi(lambda _: json_answer("{}", 500)) as api:
        result = await ask(openapi_tools(operation(method=method), base_url=api.url))
    assert result.status == "error"
    assert ("may have taken effect" in result.text) is doubt


async def test_without_a_connection_nothing_is_done() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        result = await ask(openapi_tools(operation(method="post"), base_url=url))
    assert (result.status, result.code, result.metadata.attempts) == ("error", "not_done", 1)
    assert "no connection to the server" in (result.error or "")


async def test_a_server_that_dies_with_the_first_request_leaves_the_call_unknown() -> None:
    """The second attempt finds no server, which says nothing of what the first one did."""

    async def pay_and_die(_: Received) -> Answer:
        api.stop_listening()
        return Answer(0)

    api = HttpApi(pay_and_die)
    async with api:
        tools = openapi_tools(
            operation(method="post"), base_url=api.url, effects={"ask": "idempotent"}, idempotency_header="Idempotency-Key"
        )
        tools[0].retry = RetryPolicy(base_s=0)
        result = await ask(tools)
        assert len(api.received) == 1
    assert result.status == "unknown"
    assert "It may have taken effect" in result.text


async def test_a_read_that_finds_no_server_is_tried_again() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        tools = openapi_tools(operation(), base_url=f"http://127.0.0.1:{taken.getsockname()[1]}")
        tools[0].retry = RetryPolicy(base_s=0)
        result = await ask(tools)
    assert result.metadata.attempts == tools[0].retry.attempts


@pytest.mark.parametrize("failed", [KeyError("no token"), TimeoutError("busy")], ids=["for good", "for now"])
async def test_headers_that_fail_in_a_later_attempt_leave_the_call_unknown(failed: Exception) -> None:
    def headers(context: ToolContext) -> dict[str, str]:
        if context.attempt > 1:
            raise failed
        return {}

    async with HttpApi(lambda _: Answer(0)) as api:
        tools = openapi_tools(operation(method="put"), base_url=api.url, headers=headers)
        tools[0].retry = RetryPolicy(base_s=0)
        result = await ask(tools)
        assert len(api.received) == 1
    assert result.status == "unknown"


async def test_a_kill_ends_the_request() -> None:
    arrived = asyncio.Event()

    async def never(_: Received) -> Answer:
        arrived.set()
        await asyncio.Event().wait()
        raise AssertionError

    abort = AbortController()
    async with HttpApi(never) as api, Engine(openapi_tools(operation(), base_url=api.url)) as engine:
        running = asyncio.ensure_future(engine.call(call("ask"), signal=abort.signal))
        await arrived.wait()
        abort.abort("the user left")
        await running
        await api.closed_early.wait()


async def test_a_deadline_ends_the_request() -> None:
    async def never(_: Received) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    async with HttpApi(never) as api:
        tools = openapi_tools(operation(method="post"), base_url=api.url)
        tools[0].timeout_s = 0.2
        result = await ask(tools)
        await api.closed_early.wait()
    assert (result.status, result.failure_class) == ("unknown", "timeout")


async def test_credentials_reach_the_server_and_neither_the_model_nor_the_journal() -> None:
    def echo(request: Received) -> Answer:
        status = 400 if request.method == "PUT" else 200
        return json_answer(json.dumps({"headers": request.headers, "target": request.target}), status, X_Echo=SECRET)

    async with HttpApi(echo) as api:
        tools = openapi_tools(shop(), base_url=api.url, headers={"Authorization": SECRET}, query={"api_key": "k-77aa88"})
        async with Engine(tools) as engine:
            results = [
                result_of(await engine.call(call("listArticles", tags=["a"]))),
                result_of(await engine.call(call("replaceArticle", articleId="1", body={"name": "n"}))),
            ]
            recorded = [event.body for event in engine.journal.read()]
        assert api.received[0].headers["authorization"] == SECRET
        assert api.received[0].target == "/articles?tags=a&api_key=k-77aa88"
    told = "".join(map(repr, (*results, *recorded)))
    assert "***" in told
    assert "tok-9c1f0aa7" not in told
    assert "k-77aa88" not in told


async def test_credentials_can_depend_on_the_call() -> None:
    async def headers(context: ToolContext) -> dict[str, str]:
        return {"X-Token": f"token-of-{context.principal}"}

    async with HttpApi(ok) as api, Engine(openapi_tools(operation(), base_url=api.url, headers=headers)) as engine:
        await engine.call(call("ask"), Scope(run="r", principal="eve"))
        assert api.received[0].headers["x-token"] == "token-of-eve"


async def test_a_plain_function_of_headers_does_not_hold_up_the_event_loop() -> None:
    """The function waits for what only the loop can do."""
    served = threading.Event()

    def headers(context: ToolContext) -> dict[str, str]:
        return {"X-Token": context.principal if served.wait(10) else "too late"}

    async with HttpApi(ok) as api, Engine(openapi_tools(operation(), base_url=api.url, headers=headers)) as engine:
        asked = asyncio.create_task(engine.call(call("ask"), Scope(run="r", principal="eve")))
        asyncio.get_running_loop().call_later(0, served.set)
        await asked
        assert api.received[0].headers["x-token"] == "eve"


async def test_nothing_is_sent_after_the_deadline_of_a_call_whose_headers_take_long() -> None:
    release, ended = threading.Event(), threading.Event()

    def headers(_: ToolContext) -> dict[str, str]:
        release.wait(10)
        ended.set()
        return {}

    async with HttpApi(ok) as api:
        async with Engine(openapi_tools(operation(), base_url=api.url, headers=headers), timeout_s=0.05) as engine:
            result = result_of(await engine.call(call("ask")))
            release.set()
        assert ended.wait(10)
        assert (result.failure_class, api.received) == ("timeout", [])


async def test_a_function_of_headers_may_raise_any_exception() -> None:
    """`StopIteration` cannot be the exception of a future."""
    tokens = iter([{"X-Token": "t"}])
    async with HttpApi(ok) as api, Engine(openapi_tools(operation(), base_url=api.url, headers=lambda _: next(tokens))) as engine:
        results = [result_of(await engine.call(call("ask"))) for _ in range(2)]
        assert len(api.received) == 1
    assert [result.status for result in results] == ["ok", "error"]
    assert "StopIteration" in results[1].text


async def test_a_header_of_a_function_is_not_replaced_by_the_user_of_the_url() -> None:
    async with HttpApi(ok) as api:
        url = api.url.replace("://", "://eve:pw@")
        result = await ask(openapi_tools(operation(), base_url=url, headers=lambda _: {"authorization": "Bearer t"}))
        assert api.received == []
    assert "would replace the header Authorization" in result.text
    assert "pw" not in result.text


@pytest.mark.parametrize(
    ("answer", "told"),
    [(json_answer("{}", 429, Retry_After="4000"), "try again after 4000 s"), (json_answer("{}", 503, Retry_After="4000"), "after 4000 s")],
)
async def test_a_server_that_is_busy_for_long_is_not_blamed_on_the_arguments(answer: Answer, told: str) -> None:
    async with HttpApi(lambda _: answer) as api:
        result = await ask(openapi_tools(operation(), base_url=api.url))
        assert len(api.received) == 1
    assert told in (result.error or "")
    assert "arguments" not in (result.error or "")


async def test_a_server_that_is_down_is_not_blamed_on_the_arguments() -> None:
    async with HttpApi(ok) as api:
        url = api.url
    tools = openapi_tools(operation(), base_url=url)
    tools[0].retry = RetryPolicy(attempts=1)
    assert "The cause may pass: try again later" in ((await ask(tools)).error or "")


async def test_options_of_an_operation_are_those_of_its_tool() -> None:
    def paid(arguments: dict[str, Any], _: Scope) -> str:
        return str(arguments["body"]["order"])

    document = operation(method="post", requestBody={"content": {"application/json": {"schema": {"type": "object"}}}})
    async with HttpApi(ok) as api:
        tools = openapi_tools(
            document, base_url=api.url, options={"POST *": {"timeout_s": 5, "key": "{body}"}, "ask": {"key": paid, "parallel": 1}}
        )
        async with Engine(tools) as engine:
            for run in "ab":
                await engine.call(RawCall(name="ask", arguments={"body": {"order": "A7", "run": run}}), Scope(run=run))
        assert len(api.received) == 1
    assert (tools[0].timeout_s, tools[0].parallel) == (5, 1)


async def test_an_operation_that_requires_approval_waits_for_it() -> None:
    async with HttpApi(ok) as api:
        async with Engine(openapi_tools(operation(), base_url=api.url, options={"ask": {"requires_approval": True}})) as engine:
            outcome = await engine.call(call("ask"))
        assert (type(outcome).__name__, api.received) == ("Suspended", [])


@pytest.mark.parametrize(("effect", "code"), [("none", "tool_raised"), ("idempotent", "not_done"), ("once", "not_done")])
async def test_a_failed_function_of_headers_has_sent_nothing(effect: Effect, code: str) -> None:
    def headers(_: ToolContext) -> dict[str, str]:
        raise KeyError("no token of eve")

    async with HttpApi(ok) as api:
        result = await ask(openapi_tools(operation(), base_url=api.url, headers=headers, effects={"ask": effect}))
        assert api.received == []
    assert (result.status, result.code) == ("error", code)
    assert "The request was not sent" in result.text


async def test_a_function_of_headers_that_finds_its_server_busy_is_asked_again() -> None:
    asked = list[str]()

    def headers(context: ToolContext) -> dict[str, str]:
        asked.append(context.uid)
        if len(asked) == 1:
            raise TimeoutError("the server of tokens is busy")
        return {"X-Token": "t"}

    async with HttpApi(ok) as api:
        tools = openapi_tools(operation(method="post"), base_url=api.url, headers=headers)
        tools[0].retry = RetryPolicy(base_s=0)
        assert (await ask(tools)).success
        assert [request.headers["x-token"] for request in api.received] == ["t"]


async def test_an_unusable_header_of_a_function_is_not_shown() -> None:
    async with HttpApi(ok) as api:
        result = await ask(openapi_tools(operation(), base_url=api.url, headers=lambda _: {"X-Token": "tok\nen-4711"}))
        assert api.received == []
    assert "header 'X-Token'" in result.text
    assert "4711" not in result.text


async def test_the_idempotency_key_of_a_call_is_sent_with_every_attempt() -> None:
    answers = iter([json_answer("{}", 503), json_answer('"done"')])
    async with HttpApi(lambda _: next(answers)) as api:
        document = operation({"name": "idempotency-key", "in": "header", "schema": {}}, method="post")
        tools = openapi_tools(document, base_url=api.url, effects={"POST *": "idempotent"}, idempotency_header="Idempotency-Key")
        tools[0].retry = RetryPolicy(base_s=0)
        assert tools[0].parameters is not None
        assert tools[0].parameters["properties"] == {}
        assert (await ask(tools)).text == "done"
        keys = [request.headers["idempotency-key"] for request in api.received]
    assert len(keys) == 2
    assert keys[0] == keys[1] != ""


async def test_a_client_of_the_host_is_used_and_stays_open() -> None:
    async with HttpApi(ok) as api, httpx2.AsyncClient(base_url=f"{api.url}/v2", headers={"X-Key": "key-5150"}) as client:
        assert (await ask(openapi_tools(operation(), client=client))).success
        assert (await ask(openapi_tools(operation(), client=client))).success
        assert not client.is_closed
        assert {(request.target, request.headers["x-key"]) for request in api.received} == {("/v2/things", "key-5150")}


async def test_calls_from_synchronous_code_work() -> None:
    async with HttpApi(ok) as api:
        engine = Engine(openapi_tools(operation(), base_url=api.url))

        def ask_sync() -> list[bool]:
            try:
                return [result_of(engine.call_sync(call("ask"))).success for number in range(2)]
            finally:
                engine.close_sync()

        assert await asyncio.to_thread(ask_sync) == [True, True]


async def test_a_client_of_the_host_follows_no_redirect_and_so_sends_no_header_elsewhere() -> None:
    async with HttpApi(ok) as other:

        def elsewhere(_: Received) -> Answer:
            return Answer(302, headers={"location": f"{other.url}/things"})

        async with HttpApi(elsewhere) as api, httpx2.AsyncClient(follow_redirects=True) as client:
            tools = openapi_tools(operation(path="/things"), base_url=api.url, headers={"X-API-Key": SECRET}, client=client)
            assert not (await ask(tools)).success
        assert other.received == []


async def test_a_credential_is_hidden_from_the_model_in_each_form_that_a_service_writes_it() -> None:
    key = "kEy/9+z8 y7=="

    def echo(received: Received) -> Answer:
        return json_answer(json.dumps({"next": received.target, "key": key}).replace("/9", "\\/9"))

    async with HttpApi(echo) as api:
        text = (await ask(openapi_tools(operation(path="/things"), base_url=api.url, query={"api_key": key}))).text
    assert "z8" not in text
