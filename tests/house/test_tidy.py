# SPDX-License-Identifier: Apache-2.0
"""Rules of style as tests, which review would otherwise repeat."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

import pytest

from libs.formats import store_layout
from tests.house.sources import NOT_OURS, ROOT, TESTS, functions_of, nodes_of, python_files, relative, text_of, tree_of

CODE_ROOTS = ("libs", "services", "cli", "clients", "tools", "demo", "bench", "tests")
DOCUMENTED_ROOTS = ("libs", "services", "cli", *(str(path.relative_to(ROOT)) for path in ROOT.glob("clients/*/src")))
# rooms where the docstring of each function begins with one plain sentence; the list grows
PLAIN_ROOTS = (
    "bench",
    "cli",
    "clients/faststream/src",
    "clients/kombu/src",
    "clients/outbox/src",
    "clients/pytest/src",
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
# parts of file names that do not tell the content of a file
EMPTY_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "handler", "impl", "misc"}
# call -> (where it is at home, the replacement)
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
# files whose tables have some ten entries at most: the methods of a turn, the groups of a connection
FEW_ENTRIES = {"libs/runtime/http2/turns.py", "libs/runtime/rpc/connection_servicer.py"}


def test_each_file_is_one_tidy_room() -> None:
    """A file starts with its licence and a module docstring, and neither the file nor its functions are too long."""
    found = [f"{relative(path)}: {fault}" for path in python_files(*CODE_ROOTS) for fault in faults_of(path)]
    assert not found, "\n".join(found)


def faults_of(path: Path) -> Iterator[str]:
    """Yield the faults of a file."""
    lines = text_of(path).splitlines()
    if not lines:
        yield "empty file"
        return
    if lines[0] != "# SPDX-License-Identifier: Apache-2.0":
        yield "no licence in the first line"
    if not ast.get_docstring(tree_of(path)):
        yield "no module docstring"
    if len(lines) > FILE_LINES_MAX:
        yield f"{len(lines)} lines"
    if path.stem in EMPTY_NAMES:
        yield "its name says nothing"
    if "FIX" + "ME" in text_of(path):
        yield "has unfinished work"
    for node in functions_of(path):
        line_count = (node.end_lineno or node.lineno) - node.lineno + 1
        if line_count > FUNCTION_LINES_MAX and not path.stem.endswith("_cy"):
            yield f"{node.name}: {line_count} lines"


def test_time_and_disk_arrive_as_arguments() -> None:
    """Engines get time and disk from their Clock and Fs, so that tests can replace both."""
    found = [
        f"{relative(path)}:{node.lineno}: {name}: {BANNED_CALLS[name][1]}"
        for path in python_files(*BANNED_ROOTS)
        for node in nodes_of(path)
        if isinstance(node, ast.Call)
        and (name := ast.unparse(node.func)) in BANNED_CALLS
        and relative(path) != BANNED_CALLS[name][0]
    ]
    assert not found, "\n".join(found)


def test_the_oldest_entry_goes_in_constant_time() -> None:
    """A table that drops its oldest entry is an OrderedDict.

    The first key of a dict is behind all entries that were removed before it, until the dict grows again: 13 to 78 us
    for each entry of a table of 20,000 to 1,000,000, where `popitem(last=False)` takes 1 us.
    """
    found = [
        f"{relative(path)}:{node.lineno}: {table}"
        for path in python_files(*BANNED_ROOTS, "clients/python/src")
        if relative(path) not in FEW_ENTRIES
        for node in functions_of(path)
        for table in first_keys_of(node)
        if f"{table}.pop(" in ast.unparse(node) or f"del {table}[" in ast.unparse(node)
    ]
    assert not found, "\n".join(found)


def first_keys_of(function: ast.AST) -> set[str]:
    """Return the expressions whose first key a function takes: `next(iter(TABLE))`."""
    return {
        ast.unparse(node.args[0].args[0])
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "next"
        and isinstance(node.args[0], ast.Call)
        and ast.unparse(node.args[0].func) == "iter"
    }


def test_a_file_of_the_store_has_its_name_from_store_layout() -> None:
    """Code takes the name of a store's file from store_layout, because a name that is written twice can differ.

    A name that is also an ordinary word is refused only where a path is made of it.
    """
    values = [value for key, value in vars(store_layout).items() if key.isupper() and isinstance(value, str)]
    names = {name for value in values for name in (value, PurePath(value).name)}
    telling = {name for name in names if not name.replace("_", "a").isalpha() or not name.islower()}
    found = []
    for path in set(python_files("libs", "services", "cli")) - {Path(store_layout.__file__)}:
        parts = set(parts_of_paths(path))
        found += [
            f"{relative(path)}:{node.lineno}: {node.value}"
            for node in nodes_of(path)
            if isinstance(node, ast.Constant) and node.value in (names if node in parts else telling)
        ]
    assert not found, found


def parts_of_paths(path: Path) -> Iterator[ast.expr]:
    """Yield the expressions from which a file makes paths."""
    for node in nodes_of(path):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            yield node.right
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in {"Path", "with_name"}:
            yield from node.args


def test_a_number_of_the_kernel_is_said_once() -> None:
    """A constant that two modules of the kernel need is in the kernel's layout, which Python and the compiler share."""
    said = Counter(
        name.id
        for path in python_files("libs/kernel")
        for node in tree_of(path).body
        if isinstance(node, ast.Assign)
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store) and name.id.isupper()
    )
    assert not [name for name, count in said.items() if count > 1]


def test_a_docstring_begins_with_one_plain_sentence() -> None:
    """A docstring's first line has no semicolon: text behind a semicolon is read as a condition."""
    joined = [
        f"{relative(path)}:{node.lineno}: {text.splitlines()[0]}"
        for path in python_files(*PLAIN_ROOTS)
        for node in functions_of(path)
        if (text := ast.get_docstring(node)) and ";" in text.splitlines()[0]
    ]
    assert not joined, "\n".join(joined)


def test_every_test_states_its_promise() -> None:
    """Each test has a docstring, which names the promise that would be broken if the test failed."""
    silent = [
        f"{relative(path)}:{node.lineno}: {node.name}"
        for path in python_files(*TESTS)
        if path.name.startswith("test_")
        for node in functions_of(path)
        if node.name.startswith("test_") and not ast.get_docstring(node)
    ]
    assert not silent, "\n".join(silent)


def test_nothing_speaks_of_the_machine_it_was_made_on() -> None:
    """No file has a path of the machine where it was written."""
    suspicious = re.compile(r"(?<!\w)/(w" + r"ork|r" + r"oot)/")
    text_suffixes = {".py", ".md", ".toml", ".yaml", ".yml", ".proto", ".sh", ".json", ".pyi", ".pxd"}
    found = [
        f"{relative(path)}: {match.group()}"
        for root in (*CODE_ROOTS, "docs", "deploy", "protos/reput")
        for path in (ROOT / root).rglob("*")
        if path.suffix in text_suffixes and path.is_file() and not NOT_OURS & set(path.parts)
        for match in suspicious.finditer(path.read_text())
    ]
    assert not found, found


def test_the_server_ships_its_own_packages_alone() -> None:
    """The wheel has the server's packages, with the twins for pytest-reput: no client's, no test's.

    A pattern matches as fnmatch does.
    """
    calls = [node for node in ast.walk(ast.parse((ROOT / "setup.py").read_text())) if isinstance(node, ast.Call)]
    (found,) = [call for call in calls if ast.unparse(call.func) == "find_packages"]
    patterns = {keyword.arg: ast.literal_eval(keyword.value) for keyword in found.keywords}
    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in python_files(*CODE_ROOTS)}
    shipped = {folder for folder in folders for pattern in patterns["include"] if fnmatchcase(folder, pattern)}
    assert {folder.partition(".")[0] for folder in shipped} == {"cli", "libs", "services"}
    assert {folder for folder in shipped if {"tests", "testing"} & set(folder.split("."))} == {"libs.machine.testing"}


@pytest.mark.parametrize(
    ("path", "name", "lines_max", "attribute_count_max"),
    [
        ("services/commitlog/engine/commit_log.py", "CommitLog", 150, 10),
        ("services/commitlog/engine/open_log.py", "OpenLog", 150, 30),
    ],
)
def test_what_holds_a_service_together_is_small(path: str, name: str, lines_max: int, attribute_count_max: int) -> None:
    """The class has few lines and few attributes, and its constructor sets all of them."""
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
