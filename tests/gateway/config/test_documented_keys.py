"""The reference of `gate.toml` has every key that is read, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec import structs

from callgate.errors import UsageError
from callgate.gateway._http_limits import HttpLimits
from callgate.gateway.config_file import read_gateway_config

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
SECTIONS = {
    "": ("gateway-config", "Keys"),
    "[servers.one]": ("gateway-config", "Servers"),
    "[http]": ("gateway-config", "HTTP"),
    "[http.limits]": ("gateway-limits", "Limits of HTTP"),
    "[jwt]": ("gateway-config", "Tokens of an issuer"),
    "[principals.one]": ("gateway-config", "Principals"),
    "[replicas]": ("gateway-config", "Replicas"),
    "[tasks]": ("gateway-tasks", "Keys"),
}
"""The page and the section about each table of the file."""


def section(table: str) -> str:
    page, heading = SECTIONS[table]
    return (REFERENCE / f"{page}.md").read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]


def test_the_documented_limits_of_http_are_the_defaults() -> None:
    documented = re.findall(r"^\| `(\w+)` \| ([0-9]+) \|", section("[http.limits]"), re.MULTILINE)
    assert {key: float(value) for key, value in documented} == structs.asdict(HttpLimits())


@pytest.mark.parametrize("table", SECTIONS)
def test_the_documented_keys_are_those_that_are_read(tmp_path: Path, table: str) -> None:
    """The error about an unknown key lists the known ones."""
    documented = set(re.findall(r"^\| `(\w+)` \|", section(table), re.MULTILINE))
    (tmp_path / "gate.toml").write_text(f"{table}\nnot_a_key_of_anything = 1\n", encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        read_gateway_config(tmp_path / "gate.toml", {})
    known = str(caught.value).split(" It takes ")[1].rstrip(".").split(", ")
    assert documented == set(known)
