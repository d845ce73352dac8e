# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PTH118 - paths of the import system are texts
"""The server's packages inside another program's process, for tests that run services themselves.

`load` imports a module whose imports of `cli`, `libs` and `services` are ours, also where the program has packages of
these names: in `sys.modules` ours are below `reput_server.app`, where an installed server has them (decision 0036).
A module that is loaded so imports with a function of its own, which puts that prefix before our names. Compiled modules
know only their short names: while one is loaded, the short names lead to ours.
Where `import libs` is ours anyway, as in a checkout, the short names are used: a compiled module is loaded once in a
process, and a second copy of the modules around it would not fit to it.
Callers: any thread; modules that the program imports by our names at that moment in another thread may be ours.
"""

import builtins
import contextlib
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from reput_server import ROOT

PREFIX = "reput_server.app"
OURS = ("cli", "libs", "services")
_BELOW_OURS, _BELOW_PREFIX = tuple(f"{name}." for name in OURS), f"{PREFIX}."

_lock = threading.RLock()
_depth = 0
"""Number of compiled modules that are being loaded, each for the one before."""


def load(name: str) -> ModuleType:
    """Import a module, which may import the server's packages. It is one of ours, or another program's."""
    with _lock, _no_collections():
        if _are_short_names_ours():
            return importlib.import_module(name)
        _install()
        if is_ours(name):
            return importlib.import_module(f"{PREFIX}.{name}")
        if name in sys.modules:
            return sys.modules[name]
        spec = importlib.util.find_spec(name)
        if spec is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        spec.loader = _OurLoader(spec.loader)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        package, _, own = name.rpartition(".")
        if package:
            setattr(sys.modules[package], own, module)
        return module


def is_ours(name: str) -> bool:
    """Return whether a module's name begins with one of our names."""
    return name.startswith(_BELOW_OURS) or name in OURS


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """Pause the collector of garbage: it would look for any among modules, which stay, for a tenth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _are_short_names_ours() -> bool:
    """Return whether a program finds our packages by their short names."""
    spec = importlib.util.find_spec(OURS[0])
    return spec is not None and os.path.join(ROOT, OURS[0]) in (spec.submodule_search_locations or ())


def _install() -> None:
    """Make the package that has ours, and put the finders before the others, once."""
    if any(isinstance(finder, _OurFinder) for finder in sys.meta_path):
        return
    sys.meta_path[:0] = [_ShortFinder(), _OurFinder()]
    if PREFIX not in sys.modules:
        package = ModuleType(PREFIX)
        package.__path__ = [ROOT]
        sys.modules[PREFIX] = package


def _import(
    name: str,
    of: Mapping[str, Any] | None = None,
    local: Mapping[str, Any] | None = None,
    wanted: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    """Import as Python does, with our prefix before our names."""
    if level or not is_ours(name):
        return builtins.__import__(name, of, local, wanted or (), level)
    module = importlib.import_module(f"{PREFIX}.{name}")
    if not wanted:  # `import libs.machine` binds `libs`
        return sys.modules[f"{PREFIX}.{name.partition('.')[0]}"]
    for part in wanted:
        if not hasattr(module, part):
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(f"{module.__name__}.{part}")
    return module


class _OurLoader(importlib.abc.Loader):
    """Runs a module, which imports with our function."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Make the module as its own loader does."""
        with _short_names(spec):
            made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Run the module."""
        module.__dict__["__builtins__"] = {**builtins.__dict__, "__import__": _import}
        with _short_names(module.__spec__):
            self._loader.exec_module(module)


class _OurFinder(importlib.abc.MetaPathFinder):
    """Finds modules below the prefix."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of one of our modules, None for any other."""
        if not fullname.startswith(f"{PREFIX}."):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _OurLoader(spec.loader)
        return spec


class _ShortFinder(importlib.abc.MetaPathFinder):
    """Finds our modules by their short names while a compiled module is loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a spec that gives the module with the prefix."""
        del path, target
        if not _depth or not is_ours(fullname):
            return None
        return importlib.machinery.ModuleSpec(fullname, _Alias())


class _Alias(importlib.abc.Loader):
    """Gives the module with the prefix for its short name."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Import it."""
        return importlib.import_module(f"{PREFIX}.{spec.name}")

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: it has run."""


@contextlib.contextmanager
def _short_names(spec: importlib.machinery.ModuleSpec | None) -> Iterator[None]:
    """Let the short names lead to ours within the block, if it loads a compiled module."""
    global _depth  # noqa: PLW0603 - the import system is the process's own
    if spec is None or not (spec.origin or "").endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES)):
        yield
        return
    with _lock:
        before = {name: sys.modules.pop(name) for name in _loaded()}
        for name in [name for name in sys.modules if name.startswith(_BELOW_PREFIX)]:
            sys.modules[name.removeprefix(_BELOW_PREFIX)] = sys.modules[name]
        _depth += 1
        try:
            yield
        finally:
            _depth -= 1
            for name in _loaded():
                del sys.modules[name]
            sys.modules.update(before)


def _loaded() -> list[str]:
    """Return the names of our modules that are loaded by their short names."""
    return [name for name in OURS if name in sys.modules] + [
        name for name in sys.modules if name.startswith(_BELOW_OURS)
    ]
