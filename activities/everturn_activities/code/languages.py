"""The languages that are understood: their files, their grammars, and what in them is a name.

A query captures each name as `definition.<what>` or `reference`; a definition's node is the
parent that the capture `scope` names, else the name's own parent.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any


@dataclass(frozen=True)
class Language:
    """`names` are the node types that are names wherever they stand."""

    grammar: Callable[[], object]
    definitions: str
    names: tuple[str, ...]


def _python() -> object:
    import tree_sitter_python

    return tree_sitter_python.language()


def _javascript() -> object:
    import tree_sitter_javascript

    return tree_sitter_javascript.language()


def _typescript() -> object:
    import tree_sitter_typescript

    return tree_sitter_typescript.language_typescript()


def _tsx() -> object:
    import tree_sitter_typescript

    return tree_sitter_typescript.language_tsx()


def _go() -> object:
    import tree_sitter_go

    return tree_sitter_go.language()


def _rust() -> object:
    import tree_sitter_rust

    return tree_sitter_rust.language()


def _java() -> object:
    import tree_sitter_java

    return tree_sitter_java.language()


_PYTHON = """
(function_definition name: (identifier) @function)
(class_definition name: (identifier) @class)
(module (expression_statement (assignment left: (identifier) @constant)))
(class_definition body: (block (expression_statement (assignment left: (identifier) @field))))
"""
_JAVASCRIPT = """
(function_declaration name: (identifier) @function)
(generator_function_declaration name: (identifier) @function)
(class_declaration name: (_) @class)
(method_definition name: (_) @method)
(program (lexical_declaration (variable_declarator name: (identifier) @constant)))
(program (variable_declaration (variable_declarator name: (identifier) @constant)))
(export_statement (lexical_declaration (variable_declarator name: (identifier) @constant)))
"""
_TYPESCRIPT = (
    _JAVASCRIPT
    + """
(abstract_class_declaration name: (_) @class)
(interface_declaration name: (_) @interface)
(type_alias_declaration name: (_) @type)
(enum_declaration name: (_) @enum)
(function_signature name: (identifier) @function)
(method_signature name: (_) @method)
(abstract_method_signature name: (_) @method)
(public_field_definition name: (_) @field)
"""
)
_GO = """
(function_declaration name: (identifier) @function)
(method_declaration name: (field_identifier) @method)
(type_spec name: (type_identifier) @type)
(type_alias name: (type_identifier) @type)
(source_file (const_declaration (const_spec name: (identifier) @constant)))
(source_file (var_declaration (var_spec name: (identifier) @variable)))
(field_declaration name: (field_identifier) @field)
"""
_RUST = """
(function_item name: (identifier) @function)
(function_signature_item name: (identifier) @function)
(struct_item name: (type_identifier) @struct)
(enum_item name: (type_identifier) @enum)
(union_item name: (type_identifier) @union)
(trait_item name: (type_identifier) @trait)
(type_item name: (type_identifier) @type)
(mod_item name: (identifier) @module)
(macro_definition name: (identifier) @macro)
(const_item name: (identifier) @constant)
(static_item name: (identifier) @constant)
(enum_variant name: (identifier) @variant)
(field_declaration name: (field_identifier) @field)
"""
_JAVA = """
(class_declaration name: (identifier) @class)
(interface_declaration name: (identifier) @interface)
(enum_declaration name: (identifier) @enum)
(record_declaration name: (identifier) @record)
(annotation_type_declaration name: (identifier) @annotation)
(method_declaration name: (identifier) @method)
(constructor_declaration name: (identifier) @constructor)
(field_declaration declarator: (variable_declarator name: (identifier) @field))
(enum_constant name: (identifier) @constant)
"""
_SCRIPT_NAMES = (
    *("identifier", "property_identifier", "private_property_identifier"),
    *("shorthand_property_identifier", "type_identifier"),
)

_TYPESCRIPT_FILES = Language(_typescript, _TYPESCRIPT, _SCRIPT_NAMES)
_JAVASCRIPT_FILES = Language(_javascript, _JAVASCRIPT, _SCRIPT_NAMES)
LANGUAGES = {
    ".py": Language(_python, _PYTHON, ("identifier",)),
    ".pyi": Language(_python, _PYTHON, ("identifier",)),
    ".ts": _TYPESCRIPT_FILES,
    ".mts": _TYPESCRIPT_FILES,
    ".cts": _TYPESCRIPT_FILES,
    ".tsx": Language(_tsx, _TYPESCRIPT, _SCRIPT_NAMES),
    ".js": _JAVASCRIPT_FILES,
    ".mjs": _JAVASCRIPT_FILES,
    ".cjs": _JAVASCRIPT_FILES,
    ".jsx": _JAVASCRIPT_FILES,
    ".go": Language(_go, _GO, ("identifier", "type_identifier", "field_identifier")),
    ".rs": Language(_rust, _RUST, ("identifier", "type_identifier", "field_identifier")),
    ".java": Language(_java, _JAVA, ("identifier", "type_identifier")),
}
"""By the endings of their files."""


def language_of(path: str) -> Language | None:
    return LANGUAGES.get("." + path.rpartition(".")[2].lower()) if "." in path else None


@cache
def compiled(language: Language) -> tuple[Any, Any]:
    """A parser's language and the query of its definitions. Takes milliseconds."""
    import tree_sitter

    made = tree_sitter.Language(language.grammar())
    return made, tree_sitter.Query(made, language.definitions)
