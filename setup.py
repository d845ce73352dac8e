# SPDX-License-Identifier: Apache-2.0
"""Packages and extension modules; everything else is in pyproject.toml.

An environment gets one import name, `reput_server`: the server's packages lie inside it (docs/decisions/0036).
REPUT_NO_EXTENSIONS=1 builds none. REPUT_REQUIRE_EXTENSIONS=1 makes a failed build an error, as images and CI want;
without it a failed build leaves the pure Python kernel, which gives the same answers some hundred times slower.
"""

import os
from pathlib import Path

from setuptools import Extension, find_packages, setup

SERVER = "reput_server"
APP = f"{SERVER}.app"
"""Where the packages of the checkout's root are once they are installed."""
PACKAGES = find_packages(include=["cli", "cli.*", "libs", "libs.*", "services", "services.*"])
MODULES = [*sorted(Path("libs/kernel").rglob("*_cy.py")), *sorted(Path("libs/runtime/http2").rglob("*_cy.pyx"))]


def extensions() -> list[Extension]:
    """One C extension per module of the kernel and the front, or none when they are switched off."""
    if os.environ.get("REPUT_NO_EXTENSIONS") == "1":
        return []
    from Cython.Build import cythonize

    optional = os.environ.get("REPUT_REQUIRE_EXTENSIONS") != "1"
    modules = [
        Extension(
            ".".join(path.with_suffix("").parts),
            [str(path)],
            extra_compile_args=["-O2", "-g0"],
            optional=optional,
        )
        for path in MODULES
    ]
    # one source for two builds has branches that only the uncompiled one takes
    made = cythonize(modules, language_level=3, quiet=True, compiler_directives={"warn.unreachable": False})
    for module in made:
        module.name = f"{APP}.{module.name}"
    return made


setup(
    packages=[SERVER, *(f"{APP}.{package}" for package in PACKAGES)],
    package_dir={SERVER: "deploy/server/reput_server", APP: "."},
    ext_modules=extensions(),
)
