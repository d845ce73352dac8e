# SPDX-License-Identifier: Apache-2.0
"""Run the compiled session of the front under the sanitizers of addresses and of undefined behaviour.

python -m tools.sanitize_session [SECONDS [SEED]]: compiles the session again with gcc, and gives it and the session in
Python the same hostile bytes. Needs the C source that `setup.py build_ext --inplace` leaves beside the module.
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "libs/runtime/http2/session/session_cy.c"
RUN = """
import importlib.util, random, sys, time
name = "libs.runtime.http2.session.session_cy"
spec = importlib.util.spec_from_file_location(name, sys.argv[1])
module = importlib.util.module_from_spec(spec)
sys.modules[name] = module
spec.loader.exec_module(module)
from tests.attack.frames import Frames
from tests.exhaustive.http2 import test_session_builds as builds
chance, end_s, count = random.Random(int(sys.argv[3])), time.monotonic() + float(sys.argv[2]), 0
while time.monotonic() < end_s:
    builds.same(chance, builds.cut(builds.harmed(builds.session(chance), chance), chance))
    builds.same(chance, [piece for piece in Frames(chance, [*builds.UNARY, "/s/Each"]).pieces() if piece])
    count += 2
print(f"{count} connections, seed {sys.argv[3]}: no fault")
"""


def main() -> None:
    """Compile and run. Raises CalledProcessError for a fault."""
    chance = str(int.from_bytes(os.urandom(4), "big"))
    seconds, seed = (*sys.argv[1:3], *("60", chance)[len(sys.argv[1:3]) :])
    with tempfile.TemporaryDirectory() as folder:
        module = f"{folder}/session_cy{sysconfig.get_config_var('EXT_SUFFIX')}"
        flags = ["-shared", "-fPIC", "-O1", "-g", "-fsanitize=address,undefined", "-fno-omit-frame-pointer"]
        include = f"-I{sysconfig.get_path('include')}"
        subprocess.run(["gcc", *flags, include, str(SOURCE), "-o", module, "-ldl"], check=True)
        libraries = [
            subprocess.run(["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True).stdout
            for name in ("libasan.so", "libubsan.so")
        ]
        options = {"ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1", "UBSAN_OPTIONS": "halt_on_error=1"}
        preload = {"LD_PRELOAD": " ".join(one.strip() for one in libraries), "PYTHONMALLOC": "malloc"}
        environment = {**os.environ, **options, **preload, "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "-c", RUN, module, seconds, seed], check=True, env=environment, cwd=ROOT)


if __name__ == "__main__":
    main()
