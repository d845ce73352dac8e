# SPDX-License-Identifier: Apache-2.0
"""The structure of the whole repository: folders of a moderate size, and imports without cycles."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.house.sources import ROOT, TESTS, nodes_of, python_files, tree_of

PRODUCTION = {
    "libs": ROOT,
    "services": ROOT,
    "cli": ROOT,
    "reput_client": ROOT / "clients/python/src",
    "reput_spark": ROOT / "clients/spark/src",
    "pytest_reput": ROOT / "clients/pytest/src",
    "reput_outbox": ROOT / "clients/outbox/src",
    "kombu_reput": ROOT / "clients/kombu/src",
    "faststream_reput": ROOT / "clients/faststream/src",
}
ENGINES = ("commitlog", "indexer", "delivery", "janitor", "gateway")
FILES_OF_A_ROOM_MAX = 16
PRIVATE_USES_MAX = 20
"""The maximum in all tests. Each use shows a missing function of production code, or a twin that a test plants."""
OF_A_LIBRARY = {"_replace", "_asdict", "_fields"}


def modules_of(package: str) -> dict[str, Path]:
    """Return the modules of a package by their dotted names. A folder has the name of its `__init__`."""
    root = PRODUCTION[package]
    found = {}
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(tree: ast.Module) -> Iterator[str]:
    """Return all imports of a module as dotted names, also those of functions and of type checkers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def resolved(name: str, modules: dict[str, Path]) -> str | None:
    """Return the module that has this name or contains it, or None if no module of these does."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name or None


@pytest.mark.parametrize("package", PRODUCTION)
def test_rooms_can_be_overlooked(package: str) -> None:
    """No folder of production code has more than sixteen files beside its `__init__`."""
    rooms = defaultdict(list)
    for path in modules_of(package).values():
        if path.name != "__init__.py":
            rooms[path.parent].append(path.name)
    assert rooms
    crowded = {
        str(room.relative_to(ROOT)): len(files) for room, files in rooms.items() if len(files) > FILES_OF_A_ROOM_MAX
    }
    assert not crowded


def import_graph(package: str) -> dict[str, set[str]]:
    """Return the modules of a package, each with the modules of the package that it imports."""
    modules = modules_of(package)
    graph = {}
    for name, path in modules.items():
        found = {resolved(imported, modules) for imported in imports_of(tree_of(path))}
        graph[name] = {other for other in found if other and other != name}
    return graph


@pytest.mark.parametrize("package", PRODUCTION)
def test_imports_have_no_circle(package: str) -> None:
    """Modules can be read from the bottom to the top."""
    graph = import_graph(package)
    assert len(list(TopologicalSorter(graph).static_order())) == len(graph)


def test_rooms_have_no_circle() -> None:
    """In each folder of the services, the folders and modules can be read from the bottom to the top."""
    graph = import_graph("services")
    for room in {name.rpartition(".")[0] for name in graph if "." in name}:
        boxes: dict[str, set[str]] = defaultdict(set)
        for name, imports in graph.items():
            if box := box_of(name, room):
                boxes[box] |= {other for found in imports if (other := box_of(found, room)) and other != box}
        assert list(TopologicalSorter(boxes).static_order()), room


def test_the_indexer_appends_positions_alone() -> None:
    """A single module of the Indexer calls the log's AppendService: it appends records of the positions of groups."""
    modules = modules_of("services")
    indexer = {name: path for name, path in modules.items() if name.startswith("services.indexer.")}
    appenders = [
        name
        for name, path in indexer.items()
        if any("append_service" in imported for imported in imports_of(tree_of(path)))
    ]
    assert appenders == ["services.indexer.rpc.log.appender"]
    fields = {
        keyword.arg
        for path in indexer.values()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "StateRecord"
        for keyword in node.keywords
    }
    assert fields == {"origin", "number", "offsets", "copy"}


def box_of(module: str, room: str) -> str:
    """Return the folder or module of a room that a module is in, "" for a module outside of the room."""
    return module[len(room) + 1 :].partition(".")[0] if module.startswith(f"{room}.") else ""


@pytest.mark.parametrize("room", [f"services/{name}/engine" for name in ENGINES] + ["libs/runtime/http2"])
def test_manuals_name_every_room(room: str) -> None:
    """The manual in a room's `__init__` names its folders; a room with less than three names its modules, too."""
    manual = ast.get_docstring(tree_of(ROOT / room / "__init__.py")) or ""
    folders = [path.name for path in sorted((ROOT / room).iterdir()) if (path / "__init__.py").exists()]
    modules = [path.stem for path in sorted((ROOT / room).glob("*.py")) if path.stem != "__init__"]
    names = folders if len(folders) >= 3 else folders + modules
    missing = [name for name in names if not re.search(rf"\b{name}\b", manual)]
    assert not missing


def private_names() -> set[str]:
    """Return the private names of production code.

    They are the functions, classes, variables and attributes that begin with a single underscore.
    """
    found = set()
    for package in PRODUCTION:
        for path in modules_of(package).values():
            for node in nodes_of(path):
                match node:
                    case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                        found.add(name)
                    case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name) | ast.Name(id=name):
                        found.add(name)
    return {name for name in found if name.startswith("_") and not name.startswith("__")} - OF_A_LIBRARY


def test_tests_use_the_doors_of_production_code() -> None:
    """Tests look at objects through their public names. Uses of private names are counted."""
    private, uses = private_names(), []
    for path in python_files(*TESTS):
        for node in nodes_of(path):
            match node:
                case ast.Attribute(value=ast.Name(id="self" | "cls")):
                    pass
                case ast.Attribute(attr=name) if name in private:
                    uses.append(f"{path.relative_to(ROOT)}:{node.lineno}: {name}")
                case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] in PRODUCTION:
                    uses += [f"{path.relative_to(ROOT)}: {alias.name}" for alias in names if alias.name in private]
    assert len(uses) <= PRIVATE_USES_MAX, "\n".join(uses)
