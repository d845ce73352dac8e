# SPDX-License-Identifier: Apache-2.0
"""Whether a service may begin a store in its data directory."""

from pathlib import Path

import pytest

from libs.log.state.data_dir import NoStore, check
from libs.machine.testing.memory_fs import MemoryFs

DATA_DIR = Path("/mnt/disk")


@pytest.mark.parametrize("has_directory", [False, True], ids=["missing", "empty"])
@pytest.mark.parametrize("has_lost_and_found", [False, True], ids=["", "new file system"])
def test_a_directory_without_a_store(*, has_directory: bool, has_lost_and_found: bool) -> None:
    """It is refused where no store may be made, with what to look at; where one may be made nothing happens."""
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
    """Whatever is in it, it is there."""
    fs = MemoryFs()
    fs.make_directory(DATA_DIR / "commitlog")
    check(fs, DATA_DIR, may_create=False)
