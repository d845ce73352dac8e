# SPDX-License-Identifier: Apache-2.0
"""Modules that a command imports and hardly ever uses: they are loaded when something of them is first asked for.

grpc imports its asyncio side, protobuf its implementation in Python beside the compiled one, and the standard library
what tells of errors, compresses and starts processes. Together they take longer than all else that a command does.
`importlib.util.LazyLoader` does not serve: a second import of a module loads it there.
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
"""Of a package whose part is imported the whole runs before, as ever. No thread may import a part of one by itself
while another may use the whole for the first time: each would wait for the other."""


class LaterModule(ModuleType):
    """A module that has not run yet. Whoever asks it for something makes it run."""

    def __getattribute__(self, name: str) -> Any:
        """Return what the module has by this name, once it has run. What the import system asks for it has before."""
        if not name.startswith("__"):
            _run(self)
        return object.__getattribute__(self, name)

    def __getattr__(self, name: str) -> Any:
        """Likewise for what the import system does not know."""
        _run(self)
        return object.__getattribute__(self, name)


def _run(module: ModuleType) -> None:
    """Run a module that has not run, once. Other threads wait until it has, and if it fails the next one runs it."""
    own = object.__getattribute__(module, "__dict__")
    if (lock := own.get("_lock_of_later")) is None:
        return
    with lock:
        loader = own.pop("_loader_of_later", None)
        if loader is None:  # it has run by now, or runs in this thread, and asks for what it has made itself
            return
        try:
            loader.exec_module(module)
        except BaseException:
            own["_loader_of_later"] = loader
            raise
        module.__class__ = ModuleType
        own.pop("_lock_of_later", None)


class LaterLoader:
    """Makes a module that loads later, by the loader that it has.

    It has the methods of importlib.abc.Loader, which takes a while to import itself.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Make the module as its own loader does."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Put off running the module."""
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        module.__dict__.update(_lock_of_later=threading.RLock(), _loader_of_later=self._loader)
        module.__class__ = LaterModule


class LaterFinder:
    """Finds the modules of LATER."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a module of LATER, None for any other. A part of a package finds it run."""
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
    """Put the finder in front, once. Modules that are loaded already stay as they are."""
    if not any(isinstance(finder, LaterFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, LaterFinder())
