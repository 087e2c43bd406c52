"""The reference page of `gate.toml` has every key that is read, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec import structs

from callgate.errors import UsageError
from callgate.gateway._http_limits import HttpLimits
from callgate.gateway.config_file import read_gateway_config

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "gateway-config.md"
HEADERS = {
    "Keys": "",
    "Servers": "[servers.one]",
    "HTTP": "[http]",
    "Limits of HTTP": "[http.limits]",
    "Tokens of an issuer": "[jwt]",
    "Principals": "[principals.one]",
    "Replicas": "[replicas]",
    "Tasks": "[tasks]",
}


def section(heading: str) -> str:
    return PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]


def test_the_documented_limits_of_http_are_the_defaults() -> None:
    documented = re.findall(r"^\| `(\w+)` \| ([0-9]+) \|", section("Limits of HTTP"), re.MULTILINE)
    assert {key: float(value) for key, value in documented} == structs.asdict(HttpLimits())


@pytest.mark.parametrize("heading", HEADERS)
def test_the_documented_keys_are_those_that_are_read(tmp_path: Path, heading: str) -> None:
    """The error about an unknown key lists the known ones."""
    documented = set(re.findall(r"^\| `(\w+)` \|", section(heading), re.MULTILINE))
    (tmp_path / "gate.toml").write_text(f"{HEADERS[heading]}\nnot_a_key_of_anything = 1\n", encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        read_gateway_config(tmp_path / "gate.toml", {})
    known = str(caught.value).split(" It takes ")[1].rstrip(".").split(", ")
    assert documented == set(known)
