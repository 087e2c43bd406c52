"""`find_symbol` in other languages than Python: what each defines, through the engine, with the grammars of the extra `symbols`."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import callgate
import tests
from callgate import Engine
from callgate.builtins import _languages, symbol_tools
from callgate.memory import Memory
from tests.builtins.fakes import Box
from tests.memory.fakes import make

needs_grammars = pytest.mark.skipif(
    any(_languages.question_of(language) is None for language in _languages._LANGUAGES), reason="needs the extra: callgate[symbols]"
)
Expected = list[tuple[str, str, int, str]]
SOURCES: dict[str, tuple[str, Expected]] = {
    "Desk.cs": (
        """namespace Shop.Inner {
public delegate void Ring(int times);
[Serializable]
public class Desk<T> : Base {
    private const string KEY = "hunter2";
    int limit, rate = 2;
    public string Secret { get; set; } = "hunter2";
    public event Action Rang;
    public Desk(int hour) { }
    public bool Close(int hour) { int local = 1; void Hidden() { } return true; }
    public int Twice => limit * 2;
}
interface ITill { bool Close(int hour); }
struct Coin { int cents; }
record Drawer(int Width);
enum State { Open, Shut = 3 }
}
""",
        [
            ("Shop.Inner", "module", 1, "namespace Shop.Inner"),
            ("Shop.Inner.Ring", "type", 2, "public delegate void Ring(int times)"),
            ("Shop.Inner.Desk", "class", 4, "public class Desk<T> : Base"),
            ("Shop.Inner.Desk.KEY", "constant", 5, "private const string KEY"),
            ("Shop.Inner.Desk.limit", "variable", 6, "int limit, rate"),
            ("Shop.Inner.Desk.rate", "variable", 6, "int limit, rate"),
            ("Shop.Inner.Desk.Secret", "variable", 7, "public string Secret { get; set; }"),
            ("Shop.Inner.Desk.Rang", "variable", 8, "public event Action Rang"),
            ("Shop.Inner.Desk.Desk", "method", 9, "public Desk(int hour)"),
            ("Shop.Inner.Desk.Close", "method", 10, "public bool Close(int hour)"),
            ("Shop.Inner.Desk.Twice", "variable", 11, "public int Twice"),
            ("Shop.Inner.ITill", "interface", 13, "interface ITill"),
            ("Shop.Inner.ITill.Close", "method", 13, "bool Close(int hour)"),
            ("Shop.Inner.Coin", "struct", 14, "struct Coin"),
            ("Shop.Inner.Coin.cents", "variable", 14, "int cents"),
            ("Shop.Inner.Drawer", "class", 15, "record Drawer(int Width)"),
            ("Shop.Inner.State", "enum", 16, "enum State"),
            ("Shop.Inner.State.Open", "constant", 16, "Open"),
            ("Shop.Inner.State.Shut", "constant", 16, "Shut"),
        ],
    ),
    "Desk.java": (
        """package shop;
public class Desk<T> extends Base implements Till {
    private static final String KEY = "hunter2";
    int limit, rate = 2;
    public Desk(int hour) { int local = 1; }
    @Override
    public void close(int hour) throws E { Runnable r = () -> { int x; }; new Object() { void hidden() {} }; }
    enum State { OPEN, SHUT; boolean open() { return true; } }
    record Drawer(int width) { Drawer { } }
    interface Bell { int RINGS = 3; void ring(); }
    @interface Mark { String value() default "x"; }
}
""",
        [
            ("Desk", "class", 2, "public class Desk<T> extends Base implements Till"),
            ("Desk.KEY", "constant", 3, "private static final String KEY"),
            ("Desk.limit", "variable", 4, "int limit, rate"),
            ("Desk.rate", "variable", 4, "int limit, rate"),
            ("Desk.Desk", "method", 5, "public Desk(int hour)"),
            ("Desk.close", "method", 7, "public void close(int hour) throws E"),
            ("Desk.State", "enum", 8, "enum State"),
            ("Desk.State.OPEN", "constant", 8, "OPEN"),
            ("Desk.State.SHUT", "constant", 8, "SHUT"),
            ("Desk.State.open", "method", 8, "boolean open()"),
            ("Desk.Drawer", "class", 9, "record Drawer(int width)"),
            ("Desk.Drawer.Drawer", "method", 9, "Drawer"),
            ("Desk.Bell", "interface", 10, "interface Bell"),
            ("Desk.Bell.RINGS", "constant", 10, "int RINGS"),
            ("Desk.Bell.ring", "method", 10, "void ring()"),
            ("Desk.Mark", "interface", 11, "@interface Mark"),
            ("Desk.Mark.value", "method", 11, "String value() default"),
        ],
    ),
    "desk.c": (
        """#define HOURS 8
#define TWICE(x) ((x) * 2)
static const char *KEY = "hunter2";
int close_it(int hour);
typedef struct desk { int limit; char *name; int hours[7]; } Desk;
enum state { OPEN, SHUT = 3 };
union both { int a; float b; };
typedef int (*ring_fn)(int);
static int
close_it(int hour)
{
    int local = 1;
    struct hidden { int x; };
    return local;
}
char *name_of(Desk *desk) { return desk->name; }
""",
        [
            ("HOURS", "macro", 1, "#define HOURS"),
            ("TWICE", "macro", 2, "#define TWICE(x)"),
            ("KEY", "constant", 3, "static const char *KEY"),
            ("Desk", "type", 5, "typedef struct desk { int limit; char *name; int hours[7]; } Desk"),
            ("desk", "struct", 5, "typedef struct desk"),
            ("desk.limit", "variable", 5, "int limit"),
            ("desk.name", "variable", 5, "char *name"),
            ("desk.hours", "variable", 5, "int hours[7]"),
            ("state", "enum", 6, "enum state"),
            ("state.OPEN", "constant", 6, "OPEN"),
            ("state.SHUT", "constant", 6, "SHUT"),
            ("both", "struct", 7, "union both"),
            ("both.a", "variable", 7, "int a"),
            ("both.b", "variable", 7, "float b"),
            ("ring_fn", "type", 8, "typedef int (*ring_fn)(int)"),
            ("close_it", "function", 10, "close_it(int hour)"),
            ("name_of", "function", 16, "char *name_of(Desk *desk)"),
        ],
    ),
    "desk.cpp": (
        """namespace shop::inner {
template <typename T> class Desk : public Base {
public:
    explicit Desk(int hour);
    ~Desk();
    virtual void close(int hour) = 0;
    int limit = 3;
    T &rate() { auto f = [](int x) { int y = x; return y; }; return rate_; }
private:
    T *rate_;
};
enum class State { Open, Shut };
using Id = long;
struct Till { int key{5}; bool operator==(const Till &) const; };
}
void shop::inner::Desk<int>::close(int hour) { int local; }
const std::string KEY = "hunter2";
int prototype(int);
constexpr int closing(int hour) { return hour; }
""",
        [
            ("shop.inner", "module", 1, "namespace shop::inner"),
            ("shop.inner.Desk", "class", 2, "class Desk : public Base"),
            ("shop.inner.Desk.Desk", "method", 4, "explicit Desk(int hour)"),
            ("shop.inner.Desk.~Desk", "method", 5, "~Desk()"),
            ("shop.inner.Desk.close", "method", 6, "virtual void close(int hour) = 0"),
            ("shop.inner.Desk.limit", "variable", 7, "int limit"),
            ("shop.inner.Desk.rate", "method", 8, "T &rate()"),
            ("shop.inner.Desk.rate_", "variable", 10, "T *rate_"),
            ("shop.inner.State", "enum", 12, "enum class State"),
            ("shop.inner.State.Open", "constant", 12, "Open"),
            ("shop.inner.State.Shut", "constant", 12, "Shut"),
            ("shop.inner.Id", "type", 13, "using Id = long"),
            ("shop.inner.Till", "struct", 14, "struct Till"),
            ("shop.inner.Till.key", "variable", 14, "int key"),
            ("shop.inner.Desk.close", "method", 16, "void shop::inner::Desk<int>::close(int hour)"),
            ("KEY", "constant", 17, "const std::string KEY"),
            ("closing", "function", 19, "constexpr int closing(int hour)"),
        ],
    ),
    "desk.go": (
        """package shop

const Hours = 8
const (
	Open, Shut = "hunter2", 2
)

var Rate float64 = 0.5

type Desk struct {
	Limit int
	inner struct{ Deep int }
}

type Till interface {
	Close(hour int) error
}
type Alias = Desk
type ID string

// Close closes.
func (d *Desk) Close(hour int) error {
	local := func() {}
	type hidden struct{}
	return nil
}
func (s Stack[T]) Push(x T) {}

func Closing(hour int) (string, error) { return "close", nil }
""",
        [
            ("Hours", "constant", 3, "const Hours"),
            ("Open", "constant", 5, "Open, Shut"),
            ("Shut", "constant", 5, "Open, Shut"),
            ("Rate", "variable", 8, "var Rate float64"),
            ("Desk", "struct", 10, "type Desk struct"),
            ("Desk.Limit", "variable", 11, "Limit int"),
            ("Desk.inner", "variable", 12, "inner struct{ Deep int }"),
            ("Till", "interface", 15, "type Till interface"),
            ("Till.Close", "method", 16, "Close(hour int) error"),
            ("Alias", "type", 18, "type Alias = Desk"),
            ("ID", "type", 19, "type ID string"),
            ("Desk.Close", "method", 22, "func (d *Desk) Close(hour int) error"),
            ("Stack.Push", "method", 27, "func (s Stack[T]) Push(x T)"),
            ("Closing", "function", 29, "func Closing(hour int) (string, error)"),
        ],
    ),
    "desk.js": (
        """import x from "x";
const KEY = "hunter2", other = 2;
export const close = (hour = 5) => hour + 1;
export default class Desk extends Base {
  limit = 3;
  #rate = 0.5;
  close(hour) { const inner = () => 1; return inner(); }
  static open = () => { let local = 1; };
}
export async function closing(a, b) {
  function inner_one() {}
}
module.exports.shut = function (a) { return a; };
describe("x", () => { function hidden() {} const no = 1; });
const $scope = {}; const api = { ring() {} };
""",
        [
            ("KEY", "constant", 2, "const KEY"),
            ("other", "variable", 2, "other"),
            ("close", "function", 3, "export const close = (hour = 5)"),
            ("Desk", "class", 4, "export default class Desk extends Base"),
            ("Desk.limit", "variable", 5, "limit"),
            ("Desk.#rate", "variable", 6, "#rate"),
            ("Desk.close", "method", 7, "close(hour)"),
            ("Desk.open", "method", 8, "static open = ()"),
            ("closing", "function", 10, "export async function closing(a, b)"),
            ("shut", "function", 13, "module.exports.shut = function (a)"),
            ("$scope", "variable", 15, "const $scope"),
            ("api", "variable", 15, "api"),
            ("ring", "function", 15, "ring()"),
        ],
    ),
    "desk.php": (
        """<?php
namespace App;
const KEY = "hunter2", OTHER = 3;
interface Till { public function close(int $hour): bool; }
trait Rings { public function ring() {} }
enum State: string { case Open = 'o'; case Shut = 's'; }
#[Attr]
abstract class Desk extends Base implements Till {
    const HOURS = 8;
    private string $secret = "hunter2";
    public function close(int $hour): bool { $f = function () { return 1; }; return true; }
}
function closing(int $hour = 5): int { function hidden() {} return $hour; }
""",
        [
            ("KEY", "constant", 3, "const KEY"),
            ("OTHER", "constant", 3, "OTHER"),
            ("Till", "interface", 4, "interface Till"),
            ("Till.close", "method", 4, "public function close(int $hour): bool"),
            ("Rings", "trait", 5, "trait Rings"),
            ("Rings.ring", "method", 5, "public function ring()"),
            ("State", "enum", 6, "enum State: string"),
            ("State.Open", "constant", 6, "case Open"),
            ("State.Shut", "constant", 6, "case Shut"),
            ("Desk", "class", 8, "abstract class Desk extends Base implements Till"),
            ("Desk.HOURS", "constant", 9, "const HOURS"),
            ("Desk.secret", "variable", 10, "private string $secret"),
            ("Desk.close", "method", 11, "public function close(int $hour): bool"),
            ("closing", "function", 13, "function closing(int $hour = 5): int"),
        ],
    ),
    "desk.rb": (
        """module Shop
  KEY = "hunter2"
  class Desk < Base
    def close(hour = 5)
      local = 1
    end
    def closed? = true
    def self.open(hour); end
    class << self
      def ring; end
    end
  end
end
class Shop::Till; end
def closing; end
""",
        [
            ("Shop", "module", 1, "module Shop"),
            ("Shop.KEY", "constant", 2, "KEY"),
            ("Shop.Desk", "class", 3, "class Desk < Base"),
            ("Shop.Desk.close", "method", 4, "def close(hour = 5)"),
            ("Shop.Desk.closed?", "method", 7, "def closed?"),
            ("Shop.Desk.open", "method", 8, "def self.open(hour); end"),
            ("Shop.Desk.ring", "method", 10, "def ring; end"),
            ("Shop.Till", "class", 14, "class Shop::Till; end"),
            ("closing", "function", 15, "def closing; end"),
        ],
    ),
    "desk.rs": (
        """pub mod shop {
    pub const HOURS: u8 = 8;
    #[derive(Debug)]
    pub struct Desk<T> { pub limit: u8, rate: T }
    pub enum State { Open, Shut(u8) }
    pub trait Till { fn close(&self, hour: u8) -> bool; }
    impl<T> Till for Desk<T> {
        fn close(&self, hour: u8) -> bool { fn hidden() {} true }
    }
    impl Desk<u8> {
        pub const KEY: &'static str = "hunter2";
        pub async fn open(&mut self) {}
    }
}
static mut RATE: f32 = 0.5;
type Id = u64;
macro_rules! ring { () => {} }
pub(crate) fn closing<'a>(hour: &'a u8) -> &'a u8
where
    u8: Copy,
{ hour }
""",
        [
            ("shop", "module", 1, "pub mod shop"),
            ("shop.HOURS", "constant", 2, "pub const HOURS: u8"),
            ("shop.Desk", "struct", 4, "pub struct Desk<T>"),
            ("shop.Desk.limit", "variable", 4, "pub limit: u8"),
            ("shop.Desk.rate", "variable", 4, "rate: T"),
            ("shop.State", "enum", 5, "pub enum State"),
            ("shop.State.Open", "constant", 5, "Open"),
            ("shop.State.Shut", "constant", 5, "Shut"),
            ("shop.Till", "trait", 6, "pub trait Till"),
            ("shop.Till.close", "method", 6, "fn close(&self, hour: u8) -> bool"),
            ("shop.Desk.close", "method", 8, "fn close(&self, hour: u8) -> bool"),
            ("shop.Desk.KEY", "constant", 11, "pub const KEY: &'static str"),
            ("shop.Desk.open", "method", 12, "pub async fn open(&mut self)"),
            ("RATE", "constant", 15, "static mut RATE: f32"),
            ("Id", "type", 16, "type Id = u64"),
            ("ring", "macro", 17, "macro_rules! ring"),
            ("closing", "function", 18, "pub(crate) fn closing<'a>(hour: &'a u8) -> &'a u8"),
        ],
    ),
    "desk.ts": (
        """export interface Till { close(hour: number): void; limit?: number }
export type Hours = { from: number };
export enum State { Open = 1, Shut }
namespace Shop.Inner { export class Drawer<T> { private key: string = "hunter2"; close(): void {} } }
@Component({ a: 1 })
export abstract class Desk {
  constructor(private hour: number) {}
  abstract open(): void;
  readonly close = async (hour: number): Promise<void> => { const local = 1; };
}
export const KEY: string = "hunter2";
export function closing<T>(a: T): T { return a; }
declare function outside(a: string): void;
""",
        [
            ("Till", "interface", 1, "export interface Till"),
            ("Till.close", "method", 1, "close(hour: number): void"),
            ("Till.limit", "variable", 1, "limit?: number"),
            ("Hours", "type", 2, "export type Hours"),
            ("State", "enum", 3, "export enum State"),
            ("Shop.Inner", "module", 4, "namespace Shop.Inner"),
            ("Shop.Inner.Drawer", "class", 4, "class Drawer<T>"),
            ("Shop.Inner.Drawer.key", "variable", 4, "private key: string"),
            ("Shop.Inner.Drawer.close", "method", 4, "close(): void"),
            ("Desk", "class", 6, "export abstract class Desk"),
            ("Desk.constructor", "method", 7, "constructor(private hour: number)"),
            ("Desk.open", "method", 8, "abstract open(): void"),
            ("Desk.close", "method", 9, "readonly close = async (hour: number): Promise<void>"),
            ("KEY", "constant", 11, "export const KEY: string"),
            ("closing", "function", 12, "export function closing<T>(a: T): T"),
            ("outside", "function", 13, "declare function outside(a: string): void"),
        ],
    ),
    "desk.tsx": (
        """export const Panel = ({ close }: Props): JSX.Element => <div onClick={close}>x</div>;
""",
        [
            ("Panel", "function", 1, "export const Panel = ({ close }: Props): JSX.Element"),
        ],
    ),
}
HIDDEN = ("hidden", "local", "inner_one", "no", "prototype", "x")


@needs_grammars
@pytest.mark.parametrize("file", SOURCES)
async def test_each_language_tells_its_definitions_with_kind_place_and_signature(tmp_path: Path, file: str) -> None:
    """All that is defined outside functions, where the name stands, in the words of the source, without bodies and values."""
    source, expected = SOURCES[file]
    (tmp_path / file).write_text(source)
    async with Engine(symbol_tools()) as engine:

        async def found(name: str) -> Expected:
            structured: Any = (await make(engine, tmp_path, "find_symbol", name=name, max_symbols=200)).structured
            assert structured["files_with_mistakes"] == []
            assert "hunter2" not in str(structured)
            return [(one["name"], one["kind"], int(one["at"].removeprefix(f"{file}:")), one["signature"]) for one in structured["symbols"]]

        names = dict.fromkeys(name.rpartition(".")[2] for name, *_ in expected if "~" not in name)
        for name in names:
            assert await found(name) == [one for one in expected if one[0].rpartition(".")[2] == name]
        for name in set(HIDDEN) - set(names):
            assert await found(name) == []


@needs_grammars
def test_names_of_other_languages_are_asked_for_as_they_are_written_there(tmp_path: Path) -> None:
    """With `::`, `$`, `#` or `?`; whole, by the beginning, in any capitals, as Python's."""
    for file, (source, _) in SOURCES.items():
        (tmp_path / file).write_text(source)
    box = Box(symbol_tools(), tmp_path)

    def places(name: str, **more: Any) -> list[str]:
        return [one["at"] for one in box("find_symbol", name=name, **more)["symbols"]]

    assert places("Shop::Desk::close") == ["desk.rb:4"]
    assert places("inner::Desk::close") == ["desk.cpp:6", "desk.cpp:16"]
    assert places("closed?") == ["desk.rb:7"]
    assert places("$scope") == ["desk.js:15"]
    assert places("#rate") == ["desk.js:6"]
    assert places("Till.cl", match="prefix") == ["desk.php:4", "desk.rs:6", "desk.ts:1"]
    assert places("ITILL", ignore_case=True) == ["Desk.cs:13"]


@needs_grammars
async def test_an_index_changes_no_answer_about_other_languages(tmp_path: Path) -> None:
    """With it as without, before it is made and after, and after a write."""
    root = tmp_path / "work"
    root.mkdir()
    for file, (source, _) in SOURCES.items():
        (root / file).write_text(source)
    memory = Memory(tmp_path / "m.db")
    plain = Box(symbol_tools(), root)
    async with Engine(symbol_tools(index=memory.index), memory=memory) as engine:
        for name in ("Desk", "close", "Desk"):
            assert (await make(engine, root, "find_symbol", name=name)).structured == plain("find_symbol", name=name)
            assert await memory.settled()
        (root / "new.go").write_text("package a\n\ntype Desk struct{}\n")
        answer = plain("find_symbol", name="Desk")
        assert "new.go:3" in [one["at"] for one in answer["symbols"]]
        assert (await make(engine, root, "find_symbol", name="Desk")).structured == answer


@needs_grammars
def test_of_a_source_with_mistakes_in_any_language_counts_what_can_be_read(tmp_path: Path) -> None:
    """The rest of the file is told, and the file is named."""
    (tmp_path / "broken.go").write_text("package a\n\nfunc one() {}\n\nfunc two( {\n\nfunc Four() {}\n")
    (tmp_path / "nul.rs").write_bytes(b"// " + b"x" * 9000 + b"\n\0\0\nfn four() {}\n")
    (tmp_path / "latin.rb").write_bytes("# caf\xe9\ndef four; end\n".encode("latin-1"))
    (tmp_path / "marked.js").write_bytes("\ufefffunction four() {}\n".encode())
    (tmp_path / "wide.js").write_bytes("function four() {}\n".encode("utf-16"))
    (tmp_path / "lines.c").write_bytes(b"int four(void)\r\n{\r\n  return 4;\r\n}\r\n")
    result = Box(symbol_tools(), tmp_path)("find_symbol", name="four")
    assert [(one["at"], one["signature"]) for one in result["symbols"]] == [
        ("latin.rb:2", "def four; end"),
        ("lines.c:1", "int four(void)"),
        ("marked.js:1", "function four()"),
        ("nul.rs:3", "fn four()"),
    ]
    assert (result["files_with_mistakes"], result["files_skipped"]) == (["nul.rs"], 1)
    broken = Box(symbol_tools(), tmp_path)("find_symbol", name="one", path="broken.go")
    assert [one["at"] for one in broken["symbols"]] == ["broken.go:3"]
    assert broken["files_with_mistakes"] == ["broken.go"]
    assert "mistakes" in broken["note"]


@needs_grammars
@pytest.mark.parametrize(
    ("file", "bomb"),
    [
        ("a.js", "x = " + "(" * 300_000),
        ("a.java", "class A {" * 100_000),
        ("a.rb", "<<A," * 100_000),
        ("a.cpp", "a<" * 300_000),
        ("a.ts", "const a1 = 1;" * 300_000),
        ("a.go", 'package a\nvar x = "' + "a" * 3_000_000),
    ],
    ids=["brackets", "classes", "heredocs", "templates", "one line", "one word"],
)
def test_a_source_that_breaks_a_grammar_is_named_and_breaks_nothing_else(tmp_path: Path, file: str, bomb: str) -> None:
    """Whatever becomes of the parser's process; files beside it are answered as ever."""
    (tmp_path / file).write_text(f"{bomb}\n// desk_after\n")
    (tmp_path / "z_last.go").write_text("package a\nfunc desk_after() {}\n")
    (tmp_path / "z_last.py").write_text("def desk_after(): ...\n")
    result = Box(symbol_tools(), tmp_path)("find_symbol", name="desk_after")
    assert [one["at"] for one in result["symbols"]] == ["z_last.go:2", "z_last.py:1"]
    assert (result["files_with_mistakes"], result["truncated"]) == ([file], False)


@needs_grammars
def test_of_a_source_too_dense_to_parse_whole_counts_its_beginning(tmp_path: Path) -> None:
    """Its tree would take more memory than the parser's process has; the file is named."""
    (tmp_path / "a.js").write_text("var a1;\n" * 500_000)
    result = Box(symbol_tools(), tmp_path)("find_symbol", name="a1", max_symbols=3)
    assert [one["at"] for one in result["symbols"]] == ["a.js:1", "a.js:2", "a.js:3"]
    assert result["files_with_mistakes"] == ["a.js"]


def test_what_cannot_be_read_without_the_extra_is_counted_and_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python is answered all the same, and a folder of nothing else is answered as ever."""
    monkeypatch.setattr("callgate.builtins._languages.find_spec", lambda name: None)
    for file in ("desk.js", "till.js", "desk.go", "desk.lua"):
        (tmp_path / file).write_text("function desk() {}\n")
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "desk.py").write_text("def desk(): ...\n")
    box = Box(symbol_tools(), tmp_path)
    result = box("find_symbol", name="desk")
    assert [one["at"] for one in result["symbols"]] == ["python/desk.py:1"]
    assert (result["files_searched"], result["files_not_readable"]) == (1, 3)
    assert result["note"] == "3 files in Go, JavaScript were not looked at: pip install 'callgate[symbols]'"
    assert not {"note", "files_not_readable"} & set(box("find_symbol", name="desk", path="python"))


@needs_grammars
def test_one_missing_grammar_takes_no_other_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each language is read if its own package is there."""
    monkeypatch.setattr("callgate.builtins._languages.find_spec", lambda name: None if name == "tree_sitter_go" else find_spec(name))
    (tmp_path / "desk.js").write_text("function desk() {}\n")
    (tmp_path / "desk.go").write_text("package a\nfunc desk() {}\n")
    result = Box(symbol_tools(), tmp_path)("find_symbol", name="desk")
    assert [one["at"] for one in result["symbols"]] == ["desk.js:1"]
    assert result["files_not_readable"] == 1


def test_the_engines_process_loads_no_grammar(tmp_path: Path) -> None:
    """Only the child imports them; here it is known that they are there."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom callgate.builtins import symbol_tools\nfrom tests.builtins.fakes import Box\n"
        "Path('a.go').write_text('package a\\nfunc desk() {}\\n')\n"
        "Box(symbol_tools(), Path('.').resolve())('find_symbol', name='desk')\n"
        "print([name for name in sys.modules if name.startswith('tree_sitter')])\n"
    )
    paths = os.pathsep.join([*(str(Path(module.__file__ or "").parents[1]) for module in (callgate, tests))])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    assert done.stdout == "[]\n", done.stderr
