"""The symbols of one file, by tree-sitter."""

from collections.abc import Iterator
from typing import Any

from everturn_activities.code import Symbol
from everturn_activities.code.languages import Language, compiled

NODES_MAX = 2_000_000
DEPTH_MAX = 12
"""How many definitions around a name are told."""


def definitions(language: Language, content: bytes) -> list[Symbol]:
    """What the file defines, in its order."""
    import tree_sitter

    made, query = compiled(language)
    tree = tree_sitter.Parser(made).parse(content)
    captures: dict[str, list[Any]] = tree_sitter.QueryCursor(query).captures(tree.root_node)
    found = {node.id: (what, node) for what, nodes in captures.items() for node in nodes}
    symbols = []
    for what, node in sorted(found.values(), key=lambda each: each[1].start_byte):
        whole = _whole(node)
        symbols.append(
            Symbol(
                name=_text(node),
                kind="definition",
                what="method" if what == "function" and _in_class(node, found) else what,
                line=node.start_point[0] + 1,
                last=whole.end_point[0] + 1,
                within=_within(node, found),
            )
        )
    return symbols


def references(language: Language, content: bytes, name: str) -> list[Symbol]:
    """Where the file uses `name` and does not define it. Strings and comments are no use."""
    import tree_sitter

    made, query = compiled(language)
    tree = tree_sitter.Parser(made).parse(content)
    captures: dict[str, list[Any]] = tree_sitter.QueryCursor(query).captures(tree.root_node)
    found = {node.id: (what, node) for what, nodes in captures.items() for node in nodes}
    wanted = name.encode("utf-8", "replace")
    return [
        Symbol(
            name=name,
            kind="reference",
            what="use",
            line=node.start_point[0] + 1,
            last=node.end_point[0] + 1,
            within=_within(node, found),
        )
        for node in _named(tree, language, wanted)
        if node.id not in found
    ]


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


def _whole(name: Any) -> Any:
    """The definition that a name stands in."""
    return name.parent if name.parent is not None else name


def _owners(node: Any, found: dict[int, tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The definitions around a name, the innermost first."""
    around = node.parent.parent if node.parent is not None else None
    while around is not None:
        name = around.child_by_field_name("name")
        if name is not None and name.id in found and name.id != node.id:
            yield found[name.id]
        elif around.type == "impl_item" and (of := around.child_by_field_name("type")) is not None:
            yield "class", of
        around = around.parent


def _within(node: Any, found: dict[int, tuple[str, Any]]) -> str:
    names = [_text(owner) for _, owner in _owners(node, found)][:DEPTH_MAX]
    return ".".join(reversed(names))


def _in_class(node: Any, found: dict[int, tuple[str, Any]]) -> bool:
    owner = next(_owners(node, found), None)
    return owner is not None and owner[0] in ("class", "trait")


def _text(node: Any) -> str:
    text: bytes = node.text
    return text.decode("utf-8", "replace")
