# SPDX-License-Identifier: Apache-2.0
"""The compiled parts of the client, which are built only with REPUT_CLIENT_SPEEDUPS=1; the rest is in pyproject.toml.

Without the variable the client is pure Python, needs no compiler, and its wheel is for all machines.
"""

import os
from importlib.util import find_spec

from setuptools import Extension, setup

IS_ASKED = os.environ.get("REPUT_CLIENT_SPEEDUPS") == "1"
EXTENSIONS = [
    Extension(
        f"reput_client.core.speedups.{name}",
        [f"src/reput_client/core/speedups/{name}.pyx"],
        extra_compile_args=["-O2", "-g0"],
    )
    for name in ("_pack", "_records")
]

setup(
    ext_modules=EXTENSIONS if IS_ASKED else [],
    options={"build_ext": {"cython_c_in_temp": True}} if IS_ASKED else {},
    setup_requires=["cython>=3.3,<4"] if IS_ASKED and find_spec("Cython") is None else [],
)
