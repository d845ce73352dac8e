# SPDX-License-Identifier: Apache-2.0
"""A wrong byte anywhere in the log's records, in queues or index files is found."""

import random
from pathlib import Path

from tests.support.made_store import files_of, verified


def test_random_flips_are_found_or_harmless(store: Path, chance: random.Random) -> None:
    """A wrong byte anywhere in the log's records, in queues or index files is found."""
    files = [path for path in files_of(store) if path.parent.name == "commitlog"]
    files += [path for path in files_of(store) if path.parts[-4:-3] == ("consumequeue",) or path.parent.name == "index"]
    for _ in range(100):
        path = chance.choice(files)
        data = bytearray(path.read_bytes())
        position = chance.randrange(len(data))
        data[position] ^= 1 << chance.randrange(8)
        original = path.read_bytes()
        path.write_bytes(data)
        found = verified(store)[1]
        is_behind_blank = path.parent.name == "commitlog" and not any(original[position : position + 40])
        assert found or is_behind_blank, (path, position)
        path.write_bytes(original)
