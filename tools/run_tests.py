"""Run every test: `run_tests.py WORKERS [OPTIONS of pytest]`. A few tests that fail run once more, each alone.

Many tests start processes, and a machine that is slow and busy can keep one of them waiting longer than any user would see. What is broken
fails again, and fails the whole; what passes then is reported as unstable, so that somebody mends it. If many fail, there is no second try.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOME_FAILED = 1
"""How pytest exits when it ran to its end and tests failed."""
MOST_AGAIN = 5
"""How many failed tests run again."""


def main() -> int:
    end = run_tests(Path(sys.executable), sys.argv[1], ROOT / ".pytest_cache", *sys.argv[2:])
    if end:
        print(f"The tests: {end}")
    return end.startswith("failed")


def run_tests(python: Path, workers: str, cache: Path, *options: str, timeout_s: float | None = None) -> str:
    """How the suite ended on this Python, in words; empty where no test failed.

    Args:
        cache: The folder in which pytest notes failures.
        options: Of pytest, for the first run.
    """

    def pytest(number: str, *more: str) -> int:
        command = [python, "-m", "pytest", "-n", number, "-o", f"cache_dir={cache}", *more]
        return subprocess.run(command, cwd=ROOT, timeout=timeout_s).returncode

    try:
        ended = pytest(workers, "--cache-clear", *options)
        if not ended:
            return ""
        if ended != SOME_FAILED or not 1 <= len(failed := last_failed(cache)) <= MOST_AGAIN:
            return f"failed: pytest ended with {ended}"
        print(f"== the tests that failed, again, each alone: {', '.join(failed)}", flush=True)
        again = pytest("0", *failed)
    except subprocess.TimeoutExpired as error:
        return f"failed: they did not end within {error.timeout / 60:.0f} minutes"
    return f"failed: pytest ended with {again}" if again else f"UNSTABLE: failed, and passed alone: {', '.join(failed)}"


def last_failed(cache: Path) -> list[str]:
    """The tests that failed in the last run."""
    return sorted(json.loads((cache / "v/cache/lastfailed").read_text(encoding="utf-8")))


if __name__ == "__main__":
    sys.exit(main())
