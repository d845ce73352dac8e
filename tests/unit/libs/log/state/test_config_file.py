# SPDX-License-Identifier: Apache-2.0
"""A file of `config/` and its copy: a damaged file is never taken for a missing file."""

import json
from pathlib import Path

import pytest

from libs.formats.errors import BadField
from libs.log.errors import ConfigFileDamaged
from libs.log.state import config_file
from libs.machine.testing.memory_fs import MemoryFs

PATH = Path("/config/f.json")
CONTENTS = {"missing": None, "empty": b" \n", "damaged": b"{", "not_utf8": b"\xff", "good": b'{"a": 1}'}


def loads(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadField(position=0, reason=str(error), field="f") from error


@pytest.mark.parametrize("copy", CONTENTS)
@pytest.mark.parametrize("file", CONTENTS)
def test_a_file_and_its_copy(file: str, copy: str) -> None:
    """The first good content counts. Without a good content, damage of either raises; else there is no content."""
    fs = MemoryFs()
    fs.make_directory(PATH.parent)
    for path, name in ((PATH, file), (config_file.backup_of(PATH), copy)):
        if (data := CONTENTS[name]) is not None:
            fs.write_atomic(path, data)
    if "good" in (file, copy):
        assert config_file.read(fs, PATH, loads) == {"a": 1}
    elif {file, copy} & {"damaged", "not_utf8"}:
        with pytest.raises(ConfigFileDamaged, match=str(PATH)):
            config_file.read(fs, PATH, loads)
    else:
        assert config_file.read(fs, PATH, loads) is None
