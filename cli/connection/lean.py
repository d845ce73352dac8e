# SPDX-License-Identifier: Apache-2.0
"""Modules that a command imports and hardly ever uses: a module is loaded when an attribute is first read.

grpc imports its asyncio side, protobuf its implementation in Python beside the compiled implementation, and the
standard library modules that print errors, compress and start processes. Together they take longer than all else in a
command. `importlib.util.LazyLoader` is not suitable: a second import of a module loads it there.
Callers: `cli.main`, before anything else is imported.
"""

import importlib.machinery
import sys
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any

LATER = frozenset(
    {
        "asyncio", "google.protobuf.descriptor_database", "google.protobuf.internal.python_message",
        "google.protobuf.text_encoding", "google.protobuf.text_format", "grpc.aio", "shellingham",
        "base64", "bz2", "calendar", "ipaddress", "json", "linecache", "lzma", "numbers", "pkgutil",
        "selectors", "stringprep", "subprocess", "textwrap", "tokenize",
    }
)  # fmt: skip
"""Modules that are loaded late. When a submodule is imported, its package is loaded before, as usual. A thread must not
import a submodule while another thread may use the package for the first time: each would wait for the other."""


class LaterModule(ModuleType):
    """A module that has not run yet. The first access to an attribute runs it."""

    def __getattribute__(self, name: str) -> Any:
        """Return an attribute, after the module has run. The import system's own attributes are there before."""
        if not name.startswith("__"):
            _run(self)
        return object.__getattribute__(self, name)

    def __getattr__(self, name: str) -> Any:
        """Run the module, and return an attribute that the import system has not set."""
        _run(self)
        return object.__getattribute__(self, name)


def _run(module: ModuleType) -> None:
    """Run a module that has not run, once. Other threads wait for it. If it fails, the next thread runs it."""
    own = object.__getattribute__(module, "__dict__")
    if (lock := own.get("_lock_of_later")) is None:
        return
    with lock:
        loader = own.pop("_loader_of_later", None)
        if loader is None:  # it has run by now, or it runs in this thread and reads an attribute of its own
            return
        try:
            loader.exec_module(module)
        except BaseException:
            own["_loader_of_later"] = loader
            raise
        module.__class__ = ModuleType
        own.pop("_lock_of_later", None)


class LaterLoader:
    """Makes a module that is loaded later by its own loader.

    It has the methods of importlib.abc.Loader, which takes a while to import itself.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Make the module as its own loader does."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Defer the run of the module."""
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        module.__dict__.update(_lock_of_later=threading.RLock(), _loader_of_later=self._loader)
        module.__class__ = LaterModule


class LaterFinder:
    """Finds the modules of LATER."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a module of LATER, None for any other. The package of a submodule runs before."""
        package = fullname.rpartition(".")[0]
        if package in LATER:
            _run(sys.modules[package])
        if fullname not in LATER:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = LaterLoader(spec.loader)  # type: ignore[assignment]  # it has the methods
        return spec


def install() -> None:
    """Put the finder before the others, once. Modules that are loaded already stay as they are."""
    if not any(isinstance(finder, LaterFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, LaterFinder())
