# SPDX-License-Identifier: Apache-2.0
"""Keys and certificates for tests, by the openssl command."""

import shutil
import subprocess
from pathlib import Path

OPENSSL = shutil.which("openssl")


def self_signed(directory: Path, *names: str, days: int = 2) -> dict[str, Path]:
    """Make a key and a self-signed certificate for localhost for each name: `NAME.key` and `NAME.pem`."""
    for name in names:
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
                *("-keyout", directory / f"{name}.key", "-out", directory / f"{name}.pem", "-days", str(days)),
                *("-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost"),
            ],
            check=True,
            capture_output=True,
        )
    return {f"{name}.{kind}": directory / f"{name}.{kind}" for name in names for kind in ("key", "pem")}
