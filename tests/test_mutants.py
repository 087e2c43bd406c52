"""The list of mutants that no test can detect matches the source code."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests/mutants_equivalent.toml"


def test_every_equivalent_mutant_matches_a_source_line_and_has_a_reason() -> None:
    listed = tomllib.loads(LIST.read_text(encoding="utf-8")).get("mutant", [])
    for entry in listed:
        assert entry.keys() == {"module", "was", "becomes", "reason"}
        code = " ".join(line.strip() for line in (ROOT / entry["module"]).read_text(encoding="utf-8").splitlines())
        assert entry["was"] in code, f"{entry['module']} does not contain {entry['was']!r}"
        assert entry["reason"].endswith(".")


def test_the_module_and_test_patterns_of_mutants_toml_match_files() -> None:
    settings = tomllib.loads((ROOT / "tools/mutants.toml").read_text(encoding="utf-8"))
    for names in settings["tests"].values():
        for name in names:
            assert list(ROOT.glob(name)), name
    for pattern in settings["modules"]:
        assert list(ROOT.glob(pattern)), pattern
