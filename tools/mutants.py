"""Break a sample of the code, one small change at a time, and see whether a test notices: `make mutants`.

The changes are cosmic-ray's, and one more: a statement is left out. Where they are made, which tests are asked first and which then, is
`tools/mutants.toml`. A change that no test can notice is listed in `tests/mutants_equivalent.toml` with its reason. Works on copies in a
temporary folder; the same seed gives the same sample of the same code.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import cosmic_ray.plugins
import parso
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("src", "tests", "docs", "examples", "tools", "bench", "changes")
BESIDE = ("pyproject.toml", "README.md", "CHANGELOG.md", "Makefile")
OPERATORS = (
    "core/AddNot", "core/ReplaceAndWithOr", "core/ReplaceOrWithAnd", "core/ReplaceTrueWithFalse", "core/ReplaceFalseWithTrue",
    "core/NumberReplacer", "core/ExceptionReplacer", "core/ReplaceBreakWithContinue", "core/ReplaceContinueWithBreak",
    "core/RemoveDecorator", "core/ZeroIterationForLoop", "core/ReplaceUnaryOperator_Delete_Not",
    "core/ReplaceComparisonOperator_Eq_NotEq", "core/ReplaceComparisonOperator_NotEq_Eq", "core/ReplaceComparisonOperator_Lt_LtE",
    "core/ReplaceComparisonOperator_LtE_Lt", "core/ReplaceComparisonOperator_Gt_GtE", "core/ReplaceComparisonOperator_GtE_Gt",
    "core/ReplaceComparisonOperator_Is_IsNot", "core/ReplaceComparisonOperator_IsNot_Is",
    "core/ReplaceBinaryOperator_Add_Sub", "core/ReplaceBinaryOperator_Sub_Add",
)  # fmt: skip
GOAL = 0.95


class LeaveOut(Operator):
    """Replace a statement of a function by `pass`: what it does is gone. Not one that a later line needs to run at all."""

    def mutation_positions(self, node):
        if _is_statement(node) and _acts(node):
            yield node.start_pos, node.end_pos

    def mutate(self, node, index):
        left_out = parso.parse("pass").children[0]
        left_out.prefix = node.get_first_leaf().prefix
        return left_out

    @classmethod
    def examples(cls):
        return ()


class Mutant(NamedTuple):
    module: str
    operator: str
    occurrence: int
    line: int


class Ended(NamedTuple):
    mutant: Mutant
    was: str
    becomes: str
    killed_by: str
    """Empty where no test noticed."""
    seconds: float


def main() -> int:
    options = _options()
    settings = tomllib.loads((ROOT / "tools/mutants.toml").read_text())
    equivalent = tomllib.loads((ROOT / "tests/mutants_equivalent.toml").read_text()).get("mutant", [])
    modules = [file for pattern in settings["modules"] for file in sorted(ROOT.glob(pattern)) if fnmatch(str(file), f"*{options.only}*")]
    every = [mutant for module in modules for mutant in mutants_of(module)]
    sample = random.Random(options.seed).sample(every, min(options.sample, len(every)))
    print(f"{len(sample)} of {len(every)} changes in {len(modules)} modules, seed {options.seed}.", flush=True)
    tests = settings["tests"] | ({"*": []} if options.own else {})
    ended = list(all_tested(sample, tests, options.jobs))
    killed = [one for one in ended if one.killed_by]
    known = [one for one in ended if not one.killed_by and _reason(one, equivalent)]
    survived = [one for one in ended if not one.killed_by and not _reason(one, equivalent)]
    for one in survived:
        print(f"\nSURVIVED {one.mutant.module}:{one.mutant.line} {one.mutant.operator}\n- {one.was}\n+ {one.becomes}")
    share = len(killed) / max(1, len(ended) - len(known))
    print(f"\n{len(killed)} killed, {len(known)} equivalent, {len(survived)} survived: {share:.0%}; the goal is {GOAL:.0%}.")
    return share < GOAL


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every change of a module; none in annotations, which nothing reads at run time, and one for each place and kind."""
    code = path.read_text(encoding="utf-8")
    tree = get_ast(code)
    for name in ("own/LeaveOut", *OPERATORS):
        operator = _operator(name)
        positions = ((node, start) for node in ast_nodes(tree) for start, _ in operator.mutation_positions(node))
        for occurrence, (node, start) in enumerate(positions):
            if not _is_annotation(node):
                yield Mutant(str(path.relative_to(ROOT)), name, occurrence, start[0])


def all_tested(sample: list[Mutant], tests: dict[str, list[str]], jobs: int) -> Iterator[Ended]:
    """How each of them ends; each job has a copy of the project to itself."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        free: SimpleQueue[Path] = SimpleQueue()
        for number in range(jobs):
            free.put(_copy(Path(folder) / str(number)))

        def one(mutant: Mutant) -> Ended:
            copy = free.get()
            try:
                return tested(mutant, copy, tests)
            finally:
                free.put(copy)

        for ended in pool.map(one, sample):
            how = f"killed by {ended.killed_by}" if ended.killed_by else "SURVIVED"
            print(f"{ended.mutant.module}:{ended.mutant.line} {ended.mutant.operator} {how} ({ended.seconds:.0f} s)", flush=True)
            yield ended


def tested(mutant: Mutant, copy: Path, tests: dict[str, list[str]]) -> Ended:
    file, began = copy / mutant.module, time.monotonic()
    code = file.read_text(encoding="utf-8")
    changed = mutate_code(code, _operator(mutant.operator), mutant.occurrence)
    assert changed is not None, mutant
    was, becomes = _difference(code, changed)
    killed_by = ""
    try:
        file.write_text(changed, encoding="utf-8")
        for asked in _asked(mutant.module, tests):
            killed_by = noticed(copy, asked)
            if killed_by:
                break
    finally:
        file.write_text(code, encoding="utf-8")
        shutil.rmtree(copy / ".hypothesis", ignore_errors=True)  # what failed with this change is not to be tried first with the next
    return Ended(mutant, was, becomes, killed_by, time.monotonic() - began)


def noticed(copy: Path, tests: list[str], limit_s: float = 3600) -> str:
    """The first test that fails, or why the run ended; empty where all passed."""
    command = [
        sys.executable,
        "-B",
        "-m",
        "pytest",
        "-x",
        "-q",
        "-n",
        "0",
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
        "--timeout=120",
        "--tb=no",
        "--hypothesis-seed=0",
    ]
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    process = subprocess.Popen(
        [*command, *tests], cwd=copy, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return f"no end within {limit_s:g} s"
    if process.returncode == 0:
        return ""
    failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR "))]
    return failed[0][:160] if failed else f"pytest's exit code {process.returncode}"


def _asked(module: str, tests: dict[str, list[str]]) -> list[list[str]]:
    """The tests for a module, those of its own first."""
    own = [name for pattern, names in tests.items() if fnmatch(module, f"src/callgate/{pattern}") for name in names if pattern != "*"]
    left_out = set(_files(tests["left out"]))
    chosen = _files(own)
    rest = [name for name in _files(tests["*"]) if name not in chosen and name not in left_out]
    return [names for names in (chosen, rest) if names]


def _files(patterns: Iterable[str]) -> list[str]:
    """The test files of these patterns, a folder's own included."""
    found = [file for pattern in patterns for place in sorted(ROOT.glob(pattern)) for file in _within(place)]
    return list(dict.fromkeys(str(file.relative_to(ROOT)) for file in found))


def _within(place: Path) -> list[Path]:
    return sorted(place.glob("test_*.py")) if place.is_dir() else [place]


def _copy(place: Path) -> Path:
    """The project, with the inputs beside it where this one has them."""
    tree = place / "project"
    for name in COPIED:
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in BESIDE:
        shutil.copy(ROOT / name, tree / name)
    if (shared := ROOT.parent / "shared").is_dir():
        (place / "shared").symlink_to(shared)
    return tree


def _operator(name: str) -> Operator:
    return LeaveOut() if name == "own/LeaveOut" else cosmic_ray.plugins.get_operator(name)()


def _is_statement(node) -> bool:
    """Whether it is a whole statement of a function."""
    parent = node.parent
    inside = parent is not None and parent.type == "simple_stmt" and parent.children[0] is node
    return inside and parso.tree.search_ancestor(node, "funcdef") is not None


def _acts(node) -> bool:
    """Whether it calls, raises, returns, or changes something that outlives its line; a new name is none: without it nothing runs."""
    if node.type == "expr_stmt":
        return node.children[0].type in ("atom_expr", "power") or node.children[1].type == "augassign"
    if node.type == "return_stmt" and node.get_code(include_prefix=False) == "return None" and node.parent.get_next_sibling() is None:
        return node.parent.parent.parent.type != "funcdef"  # as the last line of a function it says what happens anyway
    return node.type in ("atom_expr", "power", "raise_stmt", "return_stmt", "del_stmt")


def _is_annotation(node) -> bool:
    while node is not None and node.parent is not None:
        parent = node.parent
        if parent.type in ("annassign", "tfpdef") and node is not parent.children[0] and not _is_value(parent, node):
            return True
        if parent.type == "funcdef" and node is parent.annotation:
            return True
        if parent.type == "decorator" and parent.children[1] is node:
            return True
        node = parent
    return False


def _is_value(parent, node) -> bool:
    return parent.type == "annassign" and len(parent.children) == 4 and node is parent.children[3]


def _difference(code: str, changed: str) -> tuple[str, str]:
    """The lines that differ, without their indentation."""
    before, after = code.splitlines(), changed.splitlines()
    first = next((at for at, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
    last = next((at for at, (a, b) in enumerate(zip(reversed(before), reversed(after), strict=False)) if a != b), 0)
    return _joined(before[first : len(before) - last]), _joined(after[first : len(after) - last])


def _joined(lines: Iterable[str]) -> str:
    return " ".join(line.strip() for line in lines)


def _reason(one: Ended, equivalent: list[dict[str, str]]) -> str:
    for entry in equivalent:
        if (entry["module"], entry["was"], entry["becomes"]) == (one.mutant.module, one.was, one.becomes):
            return entry["reason"]
    return ""


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--own", action="store_true", help="ask only the tests of the module's own pattern")
    parser.add_argument("--only", default="", help="part of a module's path")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
