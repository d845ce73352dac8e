# SPDX-License-Identifier: Apache-2.0
"""Lint protos/ with buf, settings in protos/buf.yaml.

buf reads a descriptor image made by protoc, so that Google's own protos come from the installed package and buf needs
no network.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from tools.gen_stubs import PROTOS, find_sources, include_flags, run_protoc


def main() -> None:
    """Exit 1 with buf's findings, if there are any."""
    sources = [str(path) for path in find_sources()]
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder, "image.binpb")
        run_protoc(
            [*include_flags(), "--include_imports", "--include_source_info", f"--descriptor_set_out={image}", *sources]
        )
        buf = Path(sys.executable).parent / "buf"
        done = subprocess.run([buf, "lint", image, "--config", PROTOS / "buf.yaml"], check=False)
    raise SystemExit(done.returncode)


if __name__ == "__main__":
    main()
