# SPDX-License-Identifier: Apache-2.0
"""Taste that matters, as tests: what review would otherwise have to say again and again."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

import pytest

from libs.formats import store_layout

ROOT = Path(__file__).resolve().parent.parent
CODE_ROOTS = ("libs", "services", "cli", "clients", "tools", "demo", "bench", "tests")
DOCUMENTED_ROOTS = ("libs", "services", "cli", "clients/python/src", "clients/spark/src")
# rooms whose docstrings begin with one plain sentence each; the list grows
PLAIN_ROOTS = (
    "bench",
    "cli",
    "clients/python/src",
    "clients/spark/src",
    "demo",
    "libs/filters",
    "libs/formats",
    "libs/kernel",
    "libs/log",
    "libs/machine",
    "libs/requests",
    "libs/runtime",
    "libs/segments",
    "services/commitlog",
    "services/gateway",
    "services/indexer",
    "services/janitor",
    "tools",
)
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
# file name parts that say nothing about what is inside
EMPTY_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "handler", "impl", "misc"}
# call -> (where it is at home, what to use instead)
BANNED_CALLS = {
    "time.time": ("libs/machine/clock.py", "take a Clock"),
    "datetime.now": ("libs/machine/clock.py", "take a Clock"),
    "os.fsync": ("libs/machine/posix_fs.py", "take an Fs"),
    "os.fdatasync": ("libs/machine/posix_fs.py", "take an Fs"),
    "mmap.mmap": ("libs/machine/memory.py", "take an Fs"),
    "ThreadPoolExecutor": ("libs/machine/workers.py", "ask workers() for one"),
    "threading.RLock": ("libs/machine/workers.py", "ask workers() for one"),
    "threading.Condition": ("libs/machine/workers.py", "ask workers() for one"),
}
BANNED_ROOTS = ("libs", "services")


def python_files(*roots: str) -> list[Path]:
    """All hand-written Python files below the roots."""
    found = [path for root in roots for path in sorted((ROOT / root).rglob("*.py"))]
    return [path for path in found if not {".venv", "build", "node_modules"} & set(path.relative_to(ROOT).parts)]


def relative(path: Path) -> str:
    """The path as messages show it."""
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", python_files(*CODE_ROOTS), ids=relative)
def test_file_is_one_tidy_room(path: Path) -> None:
    """A file starts with its licence and says what it is; neither it nor its functions are too long."""
    text = path.read_text()
    lines = text.splitlines()
    assert lines, "empty file"
    assert lines[0] == "# SPDX-License-Identifier: Apache-2.0"
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "no module docstring"
    assert len(lines) <= FILE_LINES_MAX, f"{len(lines)} lines"
    assert path.stem not in EMPTY_NAMES, f"the name {path.stem} says nothing"
    assert "FIX" + "ME" not in text
    long = [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert path.stem.endswith("_cy") or not long, long


@pytest.mark.parametrize("path", python_files(*BANNED_ROOTS), ids=relative)
def test_time_and_disk_arrive_as_arguments(path: Path) -> None:
    """Engines ask their Clock and Fs, so that tests can lie to them."""
    found = [
        f"line {node.lineno}: {ast.unparse(node.func)}: {BANNED_CALLS[ast.unparse(node.func)][1]}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in BANNED_CALLS
        and relative(path) != BANNED_CALLS[ast.unparse(node.func)][0]
    ]
    assert not found, found


def test_a_file_of_the_store_has_its_name_from_store_layout() -> None:
    """A name that is said twice can differ; one that is a word besides counts where a path is made of it."""
    values = [value for key, value in vars(store_layout).items() if key.isupper() and isinstance(value, str)]
    names = {name for value in values for name in (value, PurePath(value).name)}
    telling = {name for name in names if not name.replace("_", "a").isalpha() or not name.islower()}
    found = []
    for path in set(python_files("libs", "services", "cli")) - {Path(store_layout.__file__)}:
        tree = ast.parse(path.read_text())
        parts = set(parts_of_paths(tree))
        found += [
            f"{relative(path)}:{node.lineno}: {node.value}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and node.value in (names if node in parts else telling)
        ]
    assert not found, found


def parts_of_paths(tree: ast.AST) -> Iterator[ast.expr]:
    """What a file makes paths of."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            yield node.right
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in {"Path", "with_name"}:
            yield from node.args


def test_a_number_of_the_kernel_is_said_once() -> None:
    """What two modules of the kernel need is in its layout, which Python and the compiler share."""
    said = Counter(
        name.id
        for path in python_files("libs/kernel")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign)
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store) and name.id.isupper()
    )
    assert not [name for name, count in said.items() if count > 1]


@pytest.mark.parametrize("path", python_files(*PLAIN_ROOTS), ids=relative)
def test_a_docstring_begins_with_one_plain_sentence(path: Path) -> None:
    """Behind a semicolon stands what a function returns or does besides, and is read as a condition."""
    joined = [
        f"line {node.lineno}: {text.splitlines()[0]}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (text := ast.get_docstring(node))
        and ";" in text.splitlines()[0]
    ]
    assert not joined, joined


@pytest.mark.parametrize("path", python_files("tests", "clients/python/tests", "clients/spark/tests"), ids=relative)
def test_every_test_states_its_promise(path: Path) -> None:
    """A test's docstring says what would be broken if it failed."""
    if not path.name.startswith("test_"):
        return
    silent = [
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]
    assert not silent, silent


def test_nothing_speaks_of_the_machine_it_was_made_on() -> None:
    """Paths of one machine have no place in a repository that others clone."""
    suspicious = re.compile(r"(?<!\w)/(w" + r"ork|r" + r"oot)/")
    text_suffixes = {".py", ".md", ".toml", ".yaml", ".yml", ".proto", ".sh", ".json", ".pyi", ".pxd"}
    found = [
        f"{relative(path)}: {match.group()}"
        for root in (*CODE_ROOTS, "docs", "deploy", "protos/reput")
        for path in (ROOT / root).rglob("*")
        if path.suffix in text_suffixes and path.is_file() and not {".venv", "build"} & set(path.parts)
        for match in suspicious.finditer(path.read_text())
    ]
    assert not found, found


def test_the_server_ships_its_own_packages_alone() -> None:
    """The wheel has the server's packages: no client's, no test's. A pattern matches as fnmatch does."""
    calls = [node for node in ast.walk(ast.parse((ROOT / "setup.py").read_text())) if isinstance(node, ast.Call)]
    (found,) = [call for call in calls if ast.unparse(call.func) == "find_packages"]
    patterns = {keyword.arg: ast.literal_eval(keyword.value) for keyword in found.keywords}
    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in python_files(*CODE_ROOTS)}
    shipped = {folder for folder in folders for pattern in patterns["include"] if fnmatchcase(folder, pattern)}
    shipped -= set(patterns["exclude"])
    assert {folder.partition(".")[0] for folder in shipped} == {"cli", "libs", "services"}
    assert not any({"tests", "testing"} & set(folder.split(".")) for folder in shipped)


@pytest.mark.parametrize(
    ("path", "name", "lines_max", "attribute_count_max"),
    [
        ("services/commitlog/engine/commit_log.py", "CommitLog", 150, 10),
        ("services/commitlog/engine/open_log.py", "OpenLog", 150, 30),
    ],
)
def test_what_holds_a_service_together_is_small(path: str, name: str, lines_max: int, attribute_count_max: int) -> None:
    """It has few lines and few attributes, and all of them from its construction on."""
    (found,) = [
        node
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, ast.ClassDef) and node.name == name
    ]
    attributes = {
        method.name: {
            node.attr
            for node in ast.walk(method)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
        }
        for method in found.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert found.end_lineno is not None
    assert found.end_lineno - found.lineno < lines_max
    assert len(attributes["__init__"]) <= attribute_count_max
    assert set().union(*attributes.values()) == attributes["__init__"]
