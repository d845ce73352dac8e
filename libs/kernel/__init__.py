# SPDX-License-Identifier: Apache-2.0
"""The hot loops over bytes: append, scan, index units, encoding. Two builds share the source (docs/decisions/0002).

Compiled by Cython, the modules `*_cy` are C that runs without the GIL. Imported as sources, they are plain Python with
the same results, some hundred times slower.
REPUT_NO_EXTENSIONS=1 imports the sources although extensions are built; REPUT_REQUIRE_EXTENSIONS=1 makes missing
extensions an ImportError. Extensions for only some of the modules are always an ImportError.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

_DIRECTORY = Path(__file__).parent
_TWINS = "cython.cimports."
sys.modules[f"{_TWINS}libs"] = module_from_spec(ModuleSpec(f"{_TWINS}libs", None, is_package=True))


class SourcesOnly:
    """Finds kernel modules only as source files, also beside extensions, and the modules that they cimport."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the source of a kernel module, the twin of a cimported module, and None for every other module."""
        del path, target
        if name.startswith(f"{_TWINS}libs."):
            return ModuleSpec(name, _TwinLoader(), is_package=True)
        package, _, module = name.rpartition(".")
        if not f"{package}.".startswith(f"{__name__}.") or not module.endswith("_cy"):
            return None
        room = _DIRECTORY.joinpath(*package.split(".")[len(__name__.split(".")) :])
        return spec_from_file_location(name, room / f"{module}.py")


class _TwinLoader(Loader):
    """Fills the module `cython.cimports.<module>` with the names of the Python module `<module>`."""

    def exec_module(self, module: ModuleType) -> None:
        found = vars(import_module(module.__name__.removeprefix(_TWINS)))
        vars(module).update({name: value for name, value in found.items() if not name.startswith("__")})


def _find_build() -> bool:
    """Return whether the kernel is compiled. Raises ImportError for an incomplete build.

    With REPUT_REQUIRE_EXTENSIONS=1, it raises ImportError also if no extensions are built.
    """
    if os.environ.get("REPUT_NO_EXTENSIONS") == "1":
        return False
    modules = sorted(_DIRECTORY.rglob("*_cy.py"))
    missing = [path.stem for path in modules if not any(path.with_suffix(end).exists() for end in EXTENSION_SUFFIXES)]
    remedy = "build them (python setup.py build_ext --inplace) or set REPUT_NO_EXTENSIONS=1 for the slow sources"
    if missing and os.environ.get("REPUT_REQUIRE_EXTENSIONS") == "1":
        raise ImportError(f"kernel extensions are missing: {', '.join(missing)}; {remedy}")
    if missing and len(missing) < len(modules):
        raise ImportError(f"the kernel is half built, extensions are missing: {', '.join(missing)}; {remedy}")
    return not missing


IS_COMPILED: bool = _find_build()
"""True if the kernel modules are C extensions."""
if not IS_COMPILED:
    sys.meta_path.insert(0, SourcesOnly)
