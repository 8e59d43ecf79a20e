"""The tool `code` finds its way in five languages, and never leaves the working folder."""

import time
from pathlib import Path

import pytest

from everturn.tools import ToolContext
from everturn_activities.builtin.code import code
from everturn_activities.toolbox import ToolOutcome, call_tool
from everturn_activities.workspace import tool_spec

FILES = {
    "shop.py": '''LIMIT = 3


class Cart:
    size: int = 0

    def add(self, item: str) -> None:
        self.items.append(item)


def checkout(cart: Cart) -> None:
    """Cart is not used here."""
    cart.add("Cart")
''',
    "shop.ts": """export const LIMIT = 3;
interface Item { price: number }
export class Cart {
  items: Item[] = [];
  add(item: Item) { this.items.push(item); }
}
export function checkout(cart: Cart) { cart.add({ price: LIMIT }); }
""",
    "view.tsx": "export function View() { return <Cart size={LIMIT} />; }\n",
    "shop.go": """package shop

const Limit = 3

type Cart struct{ items []string }

func (c *Cart) Add(item string) { c.items = append(c.items, item) }

func Checkout(c *Cart) { c.Add("x") }
""",
    "shop.rs": """pub struct Cart { items: Vec<String> }
impl Cart {
    pub fn add(&mut self, item: String) { self.items.push(item) }
}
pub fn checkout(cart: &mut Cart) { cart.add(String::new()) }
""",
    "Shop.java": """class Cart {
    private int size;
    void add(String item) { size++; }
}
class Shop {
    void checkout(Cart cart) { cart.add("x"); }
}
""",
    "script.js": "function run() { return new Cart(); }\nconst quick = () => run();\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


async def found(folder: Path, find: str, **more: object) -> ToolOutcome:
    context = ToolContext("default", "s", folder, "key")
    return await call_tool(code, tool_spec(code), {"find": find, **more}, None, context)


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("shop.py", ["constant LIMIT", "class Cart", "field Cart.size", "method Cart.add",
                     "function checkout"]),
        ("shop.ts", ["constant LIMIT", "interface Item", "class Cart", "field Cart.items",
                     "method Cart.add", "function checkout"]),
        ("view.tsx", ["function View"]),
        ("shop.go", ["constant Limit", "type Cart", "field Cart.items", "method Add",
                     "function Checkout"]),
        ("shop.rs", ["struct Cart", "field Cart.items", "method Cart.add", "function checkout"]),
        ("Shop.java", ["class Cart", "field Cart.size", "method Cart.add", "class Shop",
                       "method Shop.checkout"]),
        ("script.js", ["function run", "constant quick"]),
    ],
)  # fmt: skip
async def test_the_symbols_of_a_file_stand_in_its_order(
    folder: Path, path: str, named: list[str]
) -> None:
    ran = await found(folder, "symbols", path=path)
    assert not ran.failed, ran.text
    assert [line.split(" ", 1)[1].split(":")[0] for line in ran.text.splitlines()] == named


async def test_a_definition_is_found_by_its_name_and_by_what_it_stands_in(folder: Path) -> None:
    ran = await found(folder, "definitions", name="Cart.add")
    assert [line.split(" ")[0] for line in ran.text.splitlines()] == [
        "Shop.java:3",
        "shop.py:7-8",
        "shop.rs:3",
        "shop.ts:5",
    ]
    assert (await found(folder, "definitions", name="checkout", path="shop.py")).text == (
        "shop.py:11-13 function checkout: def checkout(cart: Cart) -> None:"
    )


async def test_uses_are_found_and_neither_strings_nor_definitions(folder: Path) -> None:
    ran = await found(folder, "references", name="Cart")
    assert ran.text.splitlines() == [
        "Shop.java:6 in Shop.checkout: void checkout(Cart cart) { cart.add(\"x\"); }",
        "script.js:1 in run: function run() { return new Cart(); }",
        "shop.go:7 in Add: func (c *Cart) Add(item string) { c.items = append(c.items, item) }",
        "shop.go:9 in Checkout: func Checkout(c *Cart) { c.Add(\"x\") }",
        "shop.py:11 in checkout: def checkout(cart: Cart) -> None:",
        "shop.rs:2: impl Cart {",
        "shop.rs:5 in checkout: pub fn checkout(cart: &mut Cart) { cart.add(String::new()) }",
        "shop.ts:7 in checkout: export function checkout(cart: Cart) { cart.add({ price: LIMIT }); }",  # noqa: E501
        "view.tsx:1 in View: export function View() { return <Cart size={LIMIT} />; }",
    ]  # fmt: skip


async def test_the_search_is_bounded_and_says_what_it_left_out(folder: Path) -> None:
    (folder / "many.py").write_text("use(x)\n" * 50)
    ran = await found(folder, "references", name="use", limit=5)
    assert ran.text.splitlines()[5:] == ["[there are more than 5; look in a narrower path]"]
    nothing = await found(folder, "definitions", name="nowhere")
    assert nothing.text == "No definitions of nowhere in 8 files of code."


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"find": "symbols", "path": "../shop.py"}, "'..'"),
        ({"find": "symbols", "path": "link.py"}, "leads out of the working folder"),
        ({"find": "definitions", "name": "x", "path": "linked"}, "no file of code"),
        ({"find": "symbols", "path": "notes.txt"}, "use read_file"),
        ({"find": "symbols", "path": "gone.py"}, "does not exist"),
        ({"find": "definitions"}, "give one"),
    ],
)
async def test_what_cannot_be_looked_at_is_told_the_model(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, asked: dict[str, str], why: str
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.py").write_text("x = 1")
    (folder / "link.py").symlink_to(outside / "secret.py")
    (folder / "linked").symlink_to(outside)
    ran = await found(folder, **asked)
    assert ran.failed
    assert why in ran.text


async def test_code_that_is_broken_or_very_deep_ends_nothing(folder: Path) -> None:
    (folder / "deep.py").write_text("(" * 50_000 + "name" + ")" * 50_000)
    (folder / "broken.py").write_text("def half(:\n  class\n\ndef whole(): pass\n")
    began = time.monotonic()
    assert "deep.py:1" in (await found(folder, "references", name="name")).text
    assert "function whole" in (await found(folder, "symbols", path="broken.py")).text
    assert time.monotonic() - began < 20
