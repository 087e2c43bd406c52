"""Sources in ten languages, and the name, kind, line and signature of each definition in them."""

from __future__ import annotations

__all__ = ["HIDDEN", "SOURCES", "Expected"]

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
"""Names that are local to a function or not defined in the sources; they must not be found."""
