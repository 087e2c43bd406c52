"""What `callgate settle` and `callgate log` tell about a call in doubt: what ran, whoever holds its run, and what is known by now."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, RawCall, Scope, SqliteJournal, Tool, UsageError, Verified, inbox, tool
from tests.cli.shell import Ended, shell
from tests.engine_calls import result_of
from tests.forked_python import python
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="kills a process")]
PAID = "chat/0/0"
ASKED = {"invoice": "A", "amount": 120.5}
FINAL = {"invoice": "A", "amount": 99.0}


def above_100(arguments: dict[str, Any]) -> bool:
    return bool(arguments["amount"] > 100)


def paying(*, dies: bool = False, happened: bool | None = None) -> Tool:
    def find(arguments: dict[str, object], key: str) -> Verified:
        return Verified(happened=happened, result="paid earlier")

    @tool(key="pay:{invoice}", requires_approval=above_100, verify=find)
    def pay(invoice: str, amount: float) -> str:
        """Pay an invoice."""
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"paid {amount}"

    return pay


def opened(folder: Path, pay: Tool) -> Engine:
    return Engine([pay], journal=SqliteJournal(folder / "calls.db"))


def payment(id: str = "c1", arguments: dict[str, object] = ASKED) -> RawCall:
    return RawCall(id=id, name="pay", arguments=arguments)


def pay_and_die(folder: str) -> None:
    """The process in which a human lowers the amount, and that is killed while it pays."""
    engine = opened(Path(folder), paying(dies=True))
    question = engine.call_sync(payment(), Scope(run="chat"))
    engine.approve_sync(question.approval_id, by="carol", arguments=FINAL)  # type: ignore[union-attr]
    engine.call_sync(payment(), Scope(run="chat"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    code = "import sys; from tests.cli.test_settle_lists import pay_and_die as do; do(sys.argv[1])"
    assert python(code, str(tmp_path)).code == -signal.SIGKILL
    return tmp_path


def said(folder: Path, *words: str) -> Ended:
    return shell(folder, *words, "--journal", "calls.db")


def killed(folder: Path) -> str:
    """Return the id of the killed call."""
    (call,) = said(folder, "settle", "--json").lines
    return str(call["uid"])


def test_settle_and_the_log_show_the_arguments_that_ran_and_that_they_were_changed(folder: Path) -> None:
    (call,) = said(folder, "settle", "--json").lines
    assert (call["arguments"], call["received"]) == ('{"amount":99.0,"invoice":"A"}', '{"invoice":"A","amount":120.5}')
    shown = said(folder, "settle").out
    assert '{"amount":99.0,"invoice":"A"} (changed; received: {"invoice":"A","amount":120.5})' in shown
    assert [one["arguments"] for one in said(folder, "log", "list", "--json").lines if one["uid"] == call["uid"]] == [call["arguments"]]
    assert '{"amount":99.0,"invoice":"A"} (changed;' in said(folder, "log", "show", call["uid"]).err


async def test_settle_lists_a_call_of_a_killed_process_while_another_process_holds_its_run(folder: Path) -> None:
    uid = killed(folder)
    async with opened(folder, paying()) as engine:
        with engine.runs.at_work("chat"):
            refused = result_of(await engine.call(payment("c2", FINAL), Scope(run="chat")))
            assert (refused.status, refused.data) == ("unknown", {"earlier_call": uid})
            assert killed(folder) == uid
            assert uid in [one["uid"] for one in said(folder, "log", "list", "--field", "status=unknown", "--json").lines]


async def test_a_settled_call_without_an_end_is_not_shown_as_open(folder: Path) -> None:
    uid = killed(folder)
    assert said(folder, "settle", uid, "--happened").code == 0
    async with opened(folder, paying()) as engine:
        with engine.runs.at_work("chat"):
            await engine.call(payment("c2", FINAL), Scope(run="chat"))
            (line,) = [line for line in said(folder, "log", "list").out.splitlines() if line.split()[1] == uid]
    assert ("settled: happened" in line, "open" in line, " ," in line) == (True, False, False)


@pytest.mark.parametrize(("happened", "told"), [(True, "happened"), (False, "not_happened")])
async def test_what_verify_says_of_a_call_of_another_run_settles_it_for_the_operator(folder: Path, happened: bool, told: str) -> None:
    uid = killed(folder)
    async with opened(folder, paying(happened=happened)) as engine:
        result = result_of(await engine.call(payment("c2", FINAL), Scope(run="other")))
        assert (result.status, result.text) == ("ok", "paid earlier" if happened else "paid 99.0")
    empty = said(folder, "settle")
    assert (empty.out, "No call has to be settled" in empty.err) == ("", True)
    (line,) = [line for line in said(folder, "log", "list").out.splitlines() if line.split()[1] == uid]
    assert f"settled: {told.replace('_', ' ')}" in line
    for shown in (uid, "chat"):
        assert "Nobody knows" not in said(folder, "log", "show", shown).err
    contrary = said(folder, "settle", uid, "--not-happened" if happened else "--happened")
    assert (contrary.code, f"settled already, as {told.replace('_', ' ')}, by its tool" in contrary.err) == (2, True)


LATE = '''
import sys, threading
from callgate import Engine, RawCall, Scope, SqliteJournal, UsageError, tool

go_on = threading.Event()

@tool(key="pay:{invoice}", timeout_s=0.2)
def pay(invoice: str) -> str:
    """Pay an invoice."""
    if not go_on.wait(60):
        raise TimeoutError
    return "paid"

engine = Engine([pay], journal=SqliteJournal("calls.db"))
late = threading.Event()
engine.bus.subscribe(lambda topic, event: late.set(), "call.late")
engine.call_sync(RawCall(name="pay", arguments={"invoice": "A"}), Scope(run="chat"))
if sys.argv[1] == "waits":
    try:
        engine.settle_sync("chat/0/0", happened=False)
    except UsageError as error:
        print(error, flush=True)
    sys.stdin.readline()
if sys.argv[1] != "ends":
    go_on.set()
    late.wait(60)
    engine.close_sync()
sys.stdout.flush()
import os
os._exit(0)
'''


@pytest.mark.parametrize(
    ("then", "told"), [("returns", "The tool returned later, at "), ("ends", "Its process has ended since")], ids=["returns", "ends"]
)
def test_settle_tells_what_became_of_code_that_went_on_after_its_timeout(tmp_path: Path, then: str, told: str) -> None:
    assert python(LATE, then, folder=tmp_path).code == 0
    assert told in said(tmp_path, "settle").out
    (call,) = said(tmp_path, "settle", "--json").lines
    assert (call["late"], call["late_ns"] > 0) == (("returned", True) if then == "returns" else ("", False))
    assert ("the tool returned later" in said(tmp_path, "log", "list").out) is (then == "returns")


def test_a_call_whose_tool_returned_later_is_not_settled_as_not_happened_without_a_reason(tmp_path: Path) -> None:
    assert python(LATE, "returns", folder=tmp_path).code == 0
    (call,) = said(tmp_path, "settle", "--json").lines
    refused = said(tmp_path, "settle", call["uid"], "--not-happened")
    assert refused.code == 2
    assert "it has probably taken effect: settle it as happened" in " ".join(refused.err.split())
    with pytest.raises(UsageError, match="it has probably taken effect"):
        inbox.settle(tmp_path / "calls.db", call["uid"], happened=False, by="ann")
    assert said(tmp_path, "settle", call["uid"], "--not-happened", "--reason", "the bank sent it back").code == 0


def test_a_call_whose_code_still_runs_is_not_settled_as_not_happened_without_a_reason(tmp_path: Path) -> None:
    program = [sys.executable, "-c", LATE, "waits"]
    with subprocess.Popen(program, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as paying_late:
        assert paying_late.stdin is not None
        assert paying_late.stdout is not None
        assert "could not be stopped when the call chat/0/0 ended, and may still take effect" in paying_late.stdout.readline()
        refused = said(tmp_path, "settle", "chat/0/0", "--not-happened")
        assert refused.code == 2
        assert "may still take effect, because its program runs" in " ".join(refused.err.split())
        paying_late.stdin.write("\n")
        paying_late.stdin.flush()
        assert paying_late.wait(PATIENCE_S) == 0
    assert "The tool returned later" in said(tmp_path, "settle").out


def test_a_call_whose_program_has_ended_can_be_settled_as_not_happened(tmp_path: Path) -> None:
    assert python(LATE, "ends", folder=tmp_path).code == 0
    assert said(tmp_path, "settle", "chat/0/0", "--not-happened").code == 0


def test_the_list_says_for_whom_a_call_was_made(tmp_path: Path) -> None:
    @tool
    def order(article: str) -> str:
        """Order an article."""
        raise OSError("the line is dead")

    engine = opened(tmp_path, order)
    engine.call_sync(RawCall(name="order", arguments={"article": "tea"}), Scope(run="shop", principal="ann"))
    engine.close_sync()
    listed = shell(tmp_path, "settle", "--journal", "calls.db")
    assert [line.split()[2] for line in listed.out.splitlines()[:2]] == ["principal", "ann"]
    assert shell(tmp_path, "settle", "--journal", "calls.db", "--json").json["principal"] == "ann"
