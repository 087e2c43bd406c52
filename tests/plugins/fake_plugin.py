"""A plugin that does what a script tells it, right or wrong. Runs as a program: `fake_plugin.py SCRIPT LOG`, without callgate.

The script is a JSON file; each message that the plugin gets, and each of its starts, is a line of the log.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from typing import Any


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


class FakePlugin:
    def __init__(self, script: dict[str, Any], log: str) -> None:
        self.script = script
        self.log = open(log, "a", encoding="utf-8")  # noqa: SIM115
        self.cancelled: dict[int, threading.Event] = {}

    def note(self, **fact: Any) -> None:
        self.log.write(json.dumps(fact) + "\n")
        self.log.flush()

    def serve(self) -> None:
        self.note(started=os.getpid())
        if "exit_at_start" in self.script:
            sys.stderr.write("this plugin does not start\n")
            sys.exit(self.script["exit_at_start"])
        sys.stdout.write(self.script.get("first", ""))
        sys.stdout.flush()
        for line in sys.stdin:
            message = json.loads(line)
            self.note(got=message)
            if message["kind"] not in self.script.get("deaf_to", ()):
                self.take(message)
        if self.script.get("stays"):
            time.sleep(3_600)

    def take(self, message: dict[str, Any]) -> None:
        kind = message["kind"]
        if kind == "hello":
            send({"kind": "ready", **({"tools": self.script["tools"]} if "tools" in self.script else {})})
        elif kind == "describe":
            send({"kind": "tools", "tools": self.script.get("described", [])})
        elif kind == "call":
            threading.Thread(target=self.call, args=(message,), daemon=True).start()
        elif kind == "cancel":
            self.cancelled.setdefault(message["id"], threading.Event()).set()
        elif kind == "ping":
            send({"kind": "pong"})
        elif kind == "shutdown" and not self.script.get("stays"):
            os._exit(0)

    def call(self, message: dict[str, Any]) -> None:
        number, arguments = message["id"], message["arguments"]
        steps: list[dict[str, Any]] = self.script["steps"] if message["tool"] == "work" else [{"echo": True}]
        for step in steps:
            ((act, value),) = step.items()
            if act == "echo":
                send({"kind": "result", "id": number, "value": arguments})
            elif act == "answer":
                send({"id": number, **value})
            elif act == "raw":
                sys.stdout.write(value.replace("{ID}", str(number)))
                sys.stdout.flush()
            elif act == "repeat":
                for _ in range(value[1]):
                    sys.stdout.write(value[0])
                sys.stdout.flush()
            elif act == "until_cancelled":
                self.cancelled.setdefault(number, threading.Event()).wait(600)
            elif act == "exit":
                os._exit(value)
            elif act == "spawn":
                subprocess.run([sys.executable, "-c", value], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        FakePlugin(json.load(file), sys.argv[2]).serve()
