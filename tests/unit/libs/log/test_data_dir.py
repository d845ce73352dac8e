# SPDX-License-Identifier: Apache-2.0
"""Rules that decide whether a service may begin a store in its data directory."""

from pathlib import Path

import pytest

from libs.log.state.data_dir import NoStore, check
from libs.machine.testing.memory_fs import MemoryFs

DATA_DIR = Path("/mnt/disk")


@pytest.mark.parametrize("has_directory", [False, True], ids=["missing", "empty"])
@pytest.mark.parametrize("has_lost_and_found", [False, True], ids=["", "new file system"])
def test_a_directory_without_a_store(*, has_directory: bool, has_lost_and_found: bool) -> None:
    """NoStore is raised with a hint if no store may be made.

    If a store may be made, the check changes nothing.
    """
    fs = MemoryFs()
    if has_directory:
        fs.make_directory(DATA_DIR)
        if has_lost_and_found:
            fs.make_directory(DATA_DIR / "lost+found")
    with pytest.raises(NoStore, match="is the disk mounted"):
        check(fs, DATA_DIR, may_create=False)
    check(fs, DATA_DIR, may_create=True)
    assert fs.exists(DATA_DIR) is has_directory


def test_a_directory_with_a_store() -> None:
    """A directory with a store passes the check, with any content of the store."""
    fs = MemoryFs()
    fs.make_directory(DATA_DIR / "commitlog")
    check(fs, DATA_DIR, may_create=False)
