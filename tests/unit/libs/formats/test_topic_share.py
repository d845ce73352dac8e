# SPDX-License-Identifier: Apache-2.0
"""Shares of topics: their text, the hashes of keys, and what is refused."""

import pytest
from msgspec.structs import replace

from libs.formats.config import topic_share
from libs.formats.config.topic_share import HASH_MAX, Child, Place, QueueShare, ShareChange, TopicShare, key_hash
from libs.formats.errors import BadField
from libs.formats.state.set_apart import why_by_attributes

SHARE = TopicShare(7, (QueueShare(4, 0, 9), QueueShare(6, 100, HASH_MAX)))
TEXT = "[1,7,[[4,0,9],[6,100,4294967295]]]"
CHANGED = TopicShare(
    9,
    (QueueShare(4, 0, 9, is_sealed=True), QueueShare(7, 0, 4, parents=(Place("a", 4),))),
    ShareChange(7, (Place("a", 4),), (Child(Place("a", 7), 0, 4), Child(Place("b", 8), 5, 9))),
)
CHANGED_TEXT = '[2,9,[[4,0,9,true,[]],[7,0,4,false,[["a",4]]]],[7,[["a",4]],[[["a",7],0,4],[["b",8],5,9]]]]'


def test_the_text_of_a_share() -> None:
    """The text is the documented form, both ways."""
    assert topic_share.dumps(SHARE) == TEXT
    assert topic_share.loads(TEXT) == SHARE
    assert topic_share.dumps(CHANGED) == CHANGED_TEXT
    assert topic_share.loads(CHANGED_TEXT) == CHANGED


def test_hashes_of_keys() -> None:
    """The hash is the first four bytes of the SHA-256 of the key's UTF-8 text, as other programs compute it."""
    assert [key_hash(key) for key in ("", "a", "order-42", "ä")] == [0xE3B0C442, 0xCA978112, 0x3BF8B157, 0x33E6D73F]


HOSTILE = {
    "no json": "share",
    "an object": "{}",
    "too short": "[1,7]",
    "too long": "[1,7,[[4,0,9]],0]",
    "a queue of the first format in the second": "[2,7,[[4,0,9]],null]",
    "no queue": "[1,7,[]]",
    "version 0": "[1,0,[[4,0,9]]]",
    "a huge version": f"[1,{2**62 + 1},[[4,0,9]]]",
    "a negative queue": "[1,7,[[-1,0,9]]]",
    "a queue above all": "[1,7,[[65536,0,9]]]",
    "a queue twice": "[1,7,[[4,0,9],[4,10,19]]]",
    "queues in disorder": "[1,7,[[5,0,9],[4,10,19]]]",
    "hashes in disorder": "[1,7,[[4,9,0]]]",
    "a hash above all": "[1,7,[[4,0,4294967296]]]",
    "common hashes": "[1,7,[[4,0,9],[5,9,19]]]",
    "a number that is none": "[1,7,[[4,0,9.5]]]",
    "deep": "[" * 10_000,
    "deep at the end": "[1,7," + "[" * 10_000,
    "a format of a later release": "[3,7,[]]",
    "no format": "[]",
    "a parent without a name": '[2,7,[[4,0,9,false,[["",0]]]],null]',
    "a parent below 0": '[2,7,[[4,0,9,false,[["a",-1]]]],null]',
    "sealed by a number": "[2,7,[[4,0,9,1,[]]],null]",
    "open queues with common hashes": "[2,7,[[4,0,9,false,[]],[5,9,19,false,[]]],null]",
    "a change without parents": '[2,7,[[4,0,9,false,[]]],[7,[],[[["a",5],0,9]]]]',
    "a change without children": '[2,7,[[4,0,9,false,[]]],[7,[["a",4]],[]]]',
    "a change with a queue twice": '[2,7,[[4,0,9,false,[]]],[7,[["a",4]],[[["a",4],0,9]]]]',
    "children with common hashes": '[2,7,[[4,0,9,false,[]]],[7,[["a",4]],[[["a",5],0,9],[["a",6],9,9]]]]',
    "a change of version 0": '[2,7,[[4,0,9,false,[]]],[0,[["a",4]],[[["a",5],0,9]]]]',
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts(text: str) -> None:
    """A text that is no share is refused with the attribute's name, and sets its topic apart."""
    with pytest.raises(BadField) as caught:
        topic_share.loads(text)
    assert caught.value.field == topic_share.SHARE
    assert topic_share.SHARE in why_by_attributes({topic_share.SHARE: text})


def test_a_good_share_sets_no_topic_apart() -> None:
    """A topic with a share that can be read is served."""
    assert why_by_attributes({topic_share.SHARE: TEXT}) == ""


def test_what_may_follow_a_share() -> None:
    """A later share may have further queues. No queue goes, and none gets other hashes."""
    first, second = SHARE.queues
    assert replace(SHARE, queues=(*SHARE.queues, QueueShare(9, 10, 99))).fault_after(SHARE) == ""
    assert "queue 6 is missing" in replace(SHARE, queues=(first,)).fault_after(SHARE)
    assert "queue 4 has other hashes" in replace(SHARE, queues=(QueueShare(4, 0, 8), second)).fault_after(SHARE)
    assert "below the write queue count" in SHARE.fault(write_queue_count=6)
