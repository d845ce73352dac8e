# SPDX-License-Identifier: Apache-2.0
"""The file of shards: its content both ways, and the error of each wrong file."""

import pytest

from libs.formats.errors import BadField
from libs.shards import shards_file
from libs.shards.shards_file import Shard

SHARD = Shard(commitlog="a:1,b:1", indexer="a:2", delivery="a:3", janitor="a:4")
ADDRESSES = 'commitlog = "a:1"\nindexer = "a:2"\ndelivery = "a:3"\n'


def test_a_file_comes_back() -> None:
    """A written file is read as the same shards, in the same order."""
    shards = {"b": SHARD, "a-1": Shard(commitlog="c:1", indexer="c:2", delivery="c:3", takes_topics=False)}
    found = shards_file.loads(shards_file.dumps(shards))
    assert list(found.items()) == list(shards.items())
    assert shards_file.dumps(shards).count("takes_topics") == 1, "the default is not written"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("shards", "Expected"),
        ("", "missing required field `shards`"),
        ("[shards]", "0 shards, and there must be 1 to 256"),
        (f'[shards."a b"]\n{ADDRESSES}', "the name 'a b' must be"),
        (f"[shards.a]\n{ADDRESSES}port = 1", "unknown field `port`"),
        (f"[shards.a]\n{ADDRESSES}".replace('"a:2"', "2"), "Expected `str`"),
        ('[shards.a]\ncommitlog = "a:1"\nindexer = "a:2"', "missing required field `delivery`"),
        (f"[shards.a]\n{ADDRESSES}".replace("a:1", "a:1,,b:1"), "must be host:port"),
        (f"[shards.a]\n{ADDRESSES}".replace("a:3", ""), "must be host:port"),
        (f"[shards.a]\n{ADDRESSES}takes_topics = 0", "Expected `bool`"),
        (f"[shards.a]\n{ADDRESSES}takes_topics = false", "no shard takes topics"),
    ],
)
def test_wrong_files(text: str, reason: str) -> None:
    """Each wrong file is refused, and the error names the fault."""
    with pytest.raises(BadField) as caught:
        shards_file.loads(text)
    assert reason in caught.value.reason
    assert caught.value.field.startswith("shards")
