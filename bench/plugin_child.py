"""A plugin that answers every call with one text, with nothing but the standard library. Also the other end of the bare pipe."""

from __future__ import annotations

import json
import sys


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        kind = message["kind"]
        if kind == "call":
            answer = {"kind": "result", "id": message["id"], "value": "sunny"}
        elif kind == "shutdown":
            return
        else:
            answer = {"kind": "ready" if kind == "hello" else "pong"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
