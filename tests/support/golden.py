# SPDX-License-Identifier: Apache-2.0
"""Golden files: bytes written by hand, with a comment per field, under tests/golden/data/<format>/v<version>/."""

from pathlib import Path

DATA = Path(__file__).parents[1] / "golden" / "data"


def golden(name: str) -> bytes:
    """Return the bytes of a golden file, such as `commit_log/v1/blank.hex`.

    A .hex file is read without its comments.
    """
    path = DATA / name
    if path.suffix != ".hex":
        return path.read_bytes()
    return bytes.fromhex("".join(line.partition("#")[0] for line in path.read_text().splitlines()))
