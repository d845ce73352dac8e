# SPDX-License-Identifier: Apache-2.0
"""Writes generated files or, with `--check`, compares them with the files in the repository."""

import difflib
import sys
from collections.abc import Collection, Mapping
from pathlib import Path


def write_or_check(files: Mapping[Path, str], surplus: Collection[Path] = ()) -> int:
    """Write the files and remove surplus files or, with `--check`, print how they differ. Returns the exit code."""
    wanted = {**files, **dict.fromkeys(surplus, "")}
    before = {path: path.read_text(encoding="utf-8") if path.is_file() else "" for path in wanted}
    old = [path for path, text in wanted.items() if text != before[path]]
    if "--check" not in sys.argv[1:]:
        for path in old:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path], encoding="utf-8")
        for path in surplus:
            path.unlink()
        return 0
    for path in old:
        was, new = (text.splitlines(keepends=True) for text in (before[path], wanted[path]))
        sys.stdout.writelines(difflib.unified_diff(was, new, str(path), "new", n=1))
        print(f"{path} is not up to date: run `make gen`")
    return int(bool(old))
