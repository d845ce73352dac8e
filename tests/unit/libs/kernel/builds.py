# SPDX-License-Identifier: Apache-2.0
"""Both builds of the kernel side by side in the same process, and buffers that end at the end of readable memory.

BUILDS has the compiled kernel and its uncompiled sources; in a run without extensions only the sources.
"""

import ctypes
import importlib
import mmap
import sys
from types import ModuleType, SimpleNamespace

import libs.kernel

MODULES = (
    "text_cy",
    "append.message_cy",
    "append.place_cy",
    "append.append_cy",
    "append.request_cy",
    "append.result_cy",
    "scan.record_cy",
    "scan.scan_cy",
    "scan.index_cy",
    "scan.filter_cy",
    "scan.lookup_cy",
    "scan.tails_cy",
    "answer.encode_cy",
    "answer.reads_cy",
    "answer.values_cy",
    "answer.match_cy",
    "answer.arrow_cy",
    "answer.arrow",
)
PAGE = mmap.PAGESIZE
_PROT_NONE = 0


class Build(SimpleNamespace):
    """The kernel's modules of a build as attributes, for example `build.append_cy.append`."""


def _import_all() -> dict[str, ModuleType]:
    return {name.rpartition(".")[2]: importlib.import_module(f"libs.kernel.{name}") for name in MODULES}


def _load_sources() -> Build:
    """Import the sources under their own names, then put the compiled modules back."""
    compiled = list(_import_all().values())
    for module in compiled:
        del sys.modules[module.__name__]
    sys.meta_path.insert(0, libs.kernel.SourcesOnly)
    try:
        sources = _import_all()
    finally:
        sys.meta_path.remove(libs.kernel.SourcesOnly)
        for module in compiled:
            sys.modules[module.__name__] = module
            room, _, name = module.__name__.rpartition(".")
            setattr(sys.modules[room], name, module)
    assert all(str(module.__file__).endswith(".py") for module in sources.values())
    return Build(label="sources", **sources)


SOURCES = _load_sources() if libs.kernel.IS_COMPILED else Build(label="sources", **_import_all())
BUILDS = [Build(label="compiled", **_import_all()), SOURCES] if libs.kernel.IS_COMPILED else [SOURCES]


def label(build: Build) -> str:
    """Name of a build in test ids."""
    return str(build.label)


class Guarded:
    """Room whose last byte is the last readable byte of its page: reading or writing past it ends the process."""

    def __init__(self, size_bytes_max: int) -> None:
        self._room = -(-size_bytes_max // PAGE) * PAGE
        self._map = mmap.mmap(-1, self._room + PAGE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + self._room), PAGE, _PROT_NONE) == 0
        self._view = memoryview(self._map)

    def hold(self, data: bytes) -> memoryview:
        """The data, ending where the room ends."""
        view = self._view[self._room - len(data) : self._room]
        view[:] = data
        return view
