"""The repository to repair: its files before and after the repair."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

__all__ = ["FILES", "REPAIRED", "SOURCE", "test_command", "write_project"]

SOURCE: Final = "shop/prices.py"

_PRICES = '''"""Prices in whole cents."""


def line_total(price_cents: int, quantity: int, discount_percent: int) -> int:
    """What a line of an order costs; fractions of a cent are dropped."""
    return int(price_cents * quantity * (1 - discount_percent / 100))
'''
_TESTS = '''import unittest

from shop.prices import line_total


class Prices(unittest.TestCase):
    def test_without_discount(self) -> None:
        self.assertEqual(line_total(250, 3, 0), 750)

    def test_order_A_04711(self) -> None:
        """The shop charged 9 cents for this one."""
        self.assertEqual(line_total(100, 1, 90), 10)


if __name__ == "__main__":
    unittest.main()
'''
_README = "# A small shop\n\nPrices are whole cents. The tests are in `tests/`.\n"
_PYPROJECT = '[project]\nname = "shop"\nversion = "1.0"\n\n[tool.pytest.ini_options]\ntestpaths = ["tests"]\n'

FILES: Final[dict[str, str]] = {
    "README.md": _README,
    "pyproject.toml": _PYPROJECT,
    "shop/__init__.py": "",
    SOURCE: _PRICES,
    "tests/__init__.py": "",
    "tests/test_prices.py": _TESTS,
}
REPAIRED: Final[dict[str, str]] = FILES | {
    SOURCE: _PRICES.replace(
        "int(price_cents * quantity * (1 - discount_percent / 100))", "price_cents * quantity * (100 - discount_percent) // 100"
    )
}
"""The expected files after the repair. The tests are unchanged."""


_QUIET = ("-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:randomly")
"""Disables pytest plugins that would add output."""


def write_project(root: Path) -> None:
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_command() -> list[str]:
    """Return the test command: pytest if it is installed, else unittest."""
    # -B: Python would use stale byte code if the file is repaired within the second in which it was written.
    if find_spec("pytest") is not None:
        return [sys.executable, "-B", "-m", "pytest", "-q", "--tb=line", "--no-header", *_QUIET]
    return [sys.executable, "-B", "-m", "unittest", "-v", "tests.test_prices"]
