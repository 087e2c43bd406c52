"""A secret that the redactor knows is in no field of a result, in no stored value, and in no event."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from callgate import Deny, Engine, Limits, RawCall, SqliteCache, ToolResult, before_call, tool
from callgate.protocols import Allow, Modify, Verdict
from callgate.stage_types import ValidatedCall
from tests.canonical_json import canonical
from tests.engine_calls import call, said
from tests.host_fakes import Hider

SECRET = "hunter2"


async def hidden(given: Any, **settings: Any) -> ToolResult:
    """Return the result of a tool that returns or raises `given`, after checking that the secret is nowhere in it."""

    @tool(effect="none")
    async def login(password: str = "") -> Any:
        """Log in."""
        if isinstance(given, Exception):
            raise given
        return given

    async with Engine([login], redactor=Hider(), **settings) as engine:
        result = await said(engine, call("login", password=SECRET))
        record = b"".join(event.body for event in engine.journal.read())
        kept = engine.blobs.get(result.metadata.blob) if result.metadata.blob else b""
    assert SECRET.encode() not in canonical(result)
    assert SECRET.encode() not in record
    assert kept is not None
    assert SECRET.encode() not in kept
    assert result.id.startswith("call_")
    assert result.uid
    return result


@pytest.mark.parametrize(
    "given",
    [
        f"in with {SECRET}",
        {"token": SECRET, SECRET: 1},
        {"success": True, "data": SECRET, "message": f"kept {SECRET}", "image_metadata": {"alt": [SECRET]}},
        {"success": False, "error": f"not {SECRET}", "message": SECRET, "data": {"tried": SECRET}, "image_metadata": SECRET},
        {"success": False, "error": "no", "data": [SECRET] * 5000},
        [SECRET] * 5000,
        ValueError(f"no entry with {SECRET}"),
        ValueError(f"no entry \ud800 with {SECRET}"),
    ],
    ids=["text", "object", "shaped", "failure", "large failure", "large", "raised", "raised surrogate"],
)
async def test_no_field_of_a_result_contains_a_redacted_secret(given: Any) -> None:
    await hidden(given)


async def test_a_redacted_result_has_its_keys_in_their_order() -> None:
    result = await hidden({"z": SECRET, "a": {"y": 1, "b": 2}})
    assert repr(result.structured) == repr({"z": "[hidden]", "a": {"y": 1, "b": 2}})


@pytest.mark.parametrize("shift", range(len(SECRET)))
async def test_a_secret_is_redacted_before_an_error_text_is_cut(shift: int) -> None:
    result = await hidden(ValueError("x" * (2048 - len("login failed: ") - shift) + SECRET + "y" * 9000))
    for piece in (SECRET[:4], SECRET[-4:]):
        assert piece not in result.text


async def test_texts_of_policies_and_hooks_are_redacted() -> None:
    class Refuse:
        async def decide(self, call: ValidatedCall) -> Verdict:
            return Deny(reason=f"because of {SECRET}", rule=f"rule {SECRET}")

    class Change:
        async def decide(self, call: ValidatedCall) -> Verdict:
            return Allow() if call.arguments["password"] == "" else Modify(arguments={"password": ""}, reason=f"not {SECRET}")

    @before_call(kind="reject")
    def reject(call: ValidatedCall) -> str:
        return f"seen {SECRET}"

    assert (await hidden(1, policies=[Refuse()])).failure_class == "denied"
    assert (await hidden(1, policies=[Change()])).metadata.notes
    assert (await hidden(1, hooks=[reject])).failure_class == "denied"


async def test_an_unknown_tool_name_is_redacted_and_the_call_id_is_kept() -> None:
    async with Engine([], redactor=Hider()) as engine:
        result = await said(engine, RawCall(name=f"x{SECRET}", id="call_1"))
        record = b"".join(event.body for event in engine.journal.read())
    assert SECRET.encode() not in canonical(result) + record
    assert result.id == "call_1"


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"status":"[hidden]"}', None], ids=["nothing", "a list", "no status", "an error"])
@pytest.mark.parametrize("given", ["fine", ValueError(SECRET)], ids=["success", "failure"])
async def test_a_result_is_withheld_if_the_redactor_fails(answer: bytes | None, given: Any) -> None:
    class Broken:
        def redact(self, body: bytes) -> bytes:
            if b'"attempts":' not in body and SECRET.encode() not in body and b"fine" not in body:
                return body
            if answer is None:
                raise RuntimeError(SECRET)
            return answer

    @tool(effect="none")
    async def login() -> Any:
        """Log in."""
        if isinstance(given, Exception):
            raise given
        return given

    async with Engine([login], redactor=Broken(), limits=Limits()) as engine:
        result = await said(engine, call("login"))
    assert not result.success
    assert (result.code, result.structured) == ("redactor_failed", None)
    assert "withheld" in result.text
    assert SECRET not in result.text


async def test_a_persistent_cache_stores_no_redacted_secret(tmp_path: Path) -> None:
    """Neither the file nor a result that an engine without a redactor reads from it contains the secret."""

    @tool(effect="none", cacheable=True, cache_scope="persistent")
    async def login(user: str) -> dict[str, str]:
        """Log in."""
        return {"user": user, "token": SECRET}

    path = tmp_path / "cache.db"
    async with Engine([login], redactor=Hider(), persistent_cache=SqliteCache(path)) as engine:
        assert (await said(engine, call("login", user="ann"))).metadata.cached is None
    assert not with_secret(tmp_path)
    async with Engine([login], persistent_cache=SqliteCache(path)) as engine:
        result = await said(engine, call("login", user="ann"))
    assert result.metadata.cached == "persistent"
    assert SECRET not in result.text


def with_secret(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir() if SECRET.encode() in file.read_bytes()]
