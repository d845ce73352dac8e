# SPDX-License-Identifier: Apache-2.0
"""Sources: the hand-written Python files of the repository, each parsed once for all rules."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TESTS = ("tests", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("clients/*/tests")))
NOT_OURS = {".venv", "build", "node_modules"}


def python_files(*roots: str) -> list[Path]:
    """Return all files below these folders of the repository, sorted."""
    found = [path for root in roots for path in sorted((ROOT / root).rglob("*.py"))]
    return [path for path in found if is_ours(path)]


def is_ours(path: Path) -> bool:
    """Return whether a file belongs to the repository, not to an environment or a build."""
    return not NOT_OURS & set(path.relative_to(ROOT).parts)


def relative(path: Path) -> str:
    """Return the path as messages show it."""
    return str(path.relative_to(ROOT))


@cache
def text_of(path: Path) -> str:
    """Return the text of a file."""
    return path.read_text()


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the syntax tree of a file. Callers change nothing in it."""
    return ast.parse(text_of(path))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a file, as `ast.walk` yields them."""
    return tuple(ast.walk(tree_of(path)))


def functions_of(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return all functions and methods of a file."""
    return [node for node in nodes_of(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
