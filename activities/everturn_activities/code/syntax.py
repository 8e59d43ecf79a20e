"""The symbols of one file, by tree-sitter."""

from collections.abc import Iterable, Iterator
from typing import Any

from everturn_activities.code import Symbol
from everturn_activities.code.languages import Language, compiled

NODES_MAX = 2_000_000
LEVELS_MAX = 100
"""How far up from a name its definitions are looked for: each level costs as much as all
above it, and a file can have any number."""


def definitions(language: Language, content: bytes) -> Iterator[Symbol]:
    """What the file defines, in its order."""
    import tree_sitter

    made, query = compiled(language)
    tree = tree_sitter.Parser(made).parse(content)
    captures: dict[str, list[Any]] = tree_sitter.QueryCursor(query).captures(tree.root_node)
    found = {node.id: (what, node) for what, nodes in captures.items() for node in nodes}
    for what, node in sorted(found.values(), key=lambda each: each[1].start_byte):
        owners = list(_owners(node, found))
        in_class = bool(owners) and owners[0][0] in ("class", "trait")
        whole = node.parent or node
        yield Symbol(
            name=_text(node),
            kind="definition",
            what="method" if what == "function" and in_class else what,
            line=node.start_point[0] + 1,
            last=whole.end_point[0] + 1,
            within=_joined(owners),
        )


def references(language: Language, content: bytes, name: str) -> Iterator[Symbol]:
    """Where the file uses `name` and does not define it. Strings and comments are no use."""
    import tree_sitter

    made, query = compiled(language)
    tree = tree_sitter.Parser(made).parse(content)
    captures: dict[str, list[Any]] = tree_sitter.QueryCursor(query).captures(tree.root_node)
    found = {node.id: (what, node) for what, nodes in captures.items() for node in nodes}
    wanted = name.encode("utf-8", "replace")
    for node in _named(tree, language, wanted):
        if node.id not in found:
            yield Symbol(
                name=name,
                kind="reference",
                what="use",
                line=node.start_point[0] + 1,
                last=node.end_point[0] + 1,
                within=_joined(_owners(node, found)),
            )


def _named(tree: Any, language: Language, wanted: bytes) -> Iterator[Any]:
    """The nodes that are the wanted name. Walks by a cursor: recursion would end at a depth
    that a file can choose."""
    cursor = tree.walk()
    for _ in range(NODES_MAX):
        node = cursor.node
        if node.type in language.names and node.text == wanted:
            yield node
        if cursor.goto_first_child() or cursor.goto_next_sibling():
            continue
        while cursor.goto_parent():
            if cursor.goto_next_sibling():
                break
        else:
            return


def _owners(node: Any, found: dict[int, tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The definitions around a name, the innermost first."""
    around = node.parent.parent if node.parent is not None else None
    for _ in range(LEVELS_MAX):
        if around is None:
            return
        name = around.child_by_field_name("name")
        if name is not None and name.id in found and name.id != node.id:
            yield found[name.id]
        elif around.type == "impl_item" and (of := around.child_by_field_name("type")) is not None:
            yield "class", of
        around = around.parent


def _joined(owners: Iterable[tuple[str, Any]]) -> str:
    return ".".join(reversed([_text(owner) for _, owner in owners]))


def _text(node: Any) -> str:
    text: bytes = node.text
    return text.decode("utf-8", "replace")
