# SPDX-License-Identifier: Apache-2.0
"""The journal of topics: whole changes are read, an unfinished append is no damage, a wrong byte before others is."""

import random

import pytest
from msgspec.structs import replace

from libs.formats.config.config_json import DataVersion
from libs.formats.config.topics_json import TopicConfig, TopicsFile
from libs.formats.errors import BadField, FormatError, NewerVersion
from libs.formats.state import checksummed, topic_journal
from libs.formats.state.topic_journal import TopicChange

VERSIONS = [DataVersion(counter, 1_000 + counter, 3) for counter in range(5)]
ORDERS = TopicConfig("orders", 4, 8, attributes={"k": "ü"})
CHANGES = [
    TopicChange(VERSIONS[0], VERSIONS[1], {"orders": ORDERS}),
    TopicChange(VERSIONS[1], VERSIONS[2], {"a": TopicConfig("a", 1, 1), "RPUT": TopicConfig("RPUT", 1, 1)}),
    TopicChange(VERSIONS[2], VERSIONS[3], removed=("orders", "gone")),
    TopicChange(VERSIONS[3], VERSIONS[4], {"a": TopicConfig("a", 1, 9)}),
]
PARTS = [change.encode() for change in CHANGES]
DATA = b"".join(PARTS)
ENDS = [sum(map(len, PARTS[:count])) for count in range(len(PARTS) + 1)]


def test_a_journal_cut_anywhere_has_its_whole_changes() -> None:
    """A journal that is cut at any byte has all changes that end before, and its end is the last of them."""
    for size in range(len(DATA) + 1):
        count = max(number for number, end in enumerate(ENDS) if end <= size)
        assert topic_journal.decode(DATA[:size]) == (CHANGES[:count], ENDS[count])


@pytest.mark.parametrize("rest", [b"\0", bytes(4_096), b"RPUT", PARTS[3][:40] + bytes(200)])
def test_rubbish_behind_the_last_change_is_an_unfinished_append(rest: bytes) -> None:
    """Bytes that are no change, behind all changes, are left out: a power cut may leave any."""
    assert topic_journal.decode(DATA + rest) == (CHANGES, len(DATA))


def test_a_wrong_byte_before_another_change_is_damage() -> None:
    """Any changed byte in front of the last change is an error within the file; in the last change it cuts that off."""
    for position in range(len(DATA)):
        harmed = bytearray(DATA)
        harmed[position] ^= 0x20
        if position < ENDS[3]:
            with pytest.raises((FormatError, NewerVersion)) as caught:
                topic_journal.decode(bytes(harmed))
            assert 0 <= caught.value.position <= len(DATA)
        else:
            assert topic_journal.decode(bytes(harmed)) == (CHANGES[:3], ENDS[3])


def test_a_later_version_is_refused() -> None:
    """A change of a later version, at any place, is no damage: the reader refuses the file."""
    later = checksummed.wrap(topic_journal.KIND, b"{}", version=2)
    for data in (later, DATA + later, later + DATA):
        with pytest.raises(NewerVersion, match="topic-journal"):
            topic_journal.decode(data)


@pytest.mark.parametrize(
    "payload",
    [
        b"[]",
        b"{}",
        b'{"before":[1,2],"after":[1,2,3],"put":{},"removed":[]}',
        b'{"before":[1,2,3],"after":[1,2,true],"put":{},"removed":[]}',
        b'{"before":[1,2,3],"after":[1,2,3],"put":[],"removed":[]}',
        b'{"before":[1,2,3],"after":[1,2,3],"put":{"a":{"topicName":"b"}},"removed":[]}',
        b'{"before":[1,2,3],"after":[1,2,3],"put":{},"removed":[1]}',
        b'{"before":[1,2,3],"after":[1,2,3],"put":{},"removed":"a"}',
        b'{"before":[1,2,3],"after":[1,2,3],"put":{},"removed":["\xff"]}',
    ],
)
def test_a_sound_envelope_with_wrong_content_is_damage(payload: bytes) -> None:
    """A content that is no change is an error, also in the last change: its checksum says that it was written so."""
    with pytest.raises(BadField):
        topic_journal.decode(checksummed.wrap(topic_journal.KIND, payload))


def test_a_change_that_does_not_continue_is_damage() -> None:
    """A change must begin with the version at which the change before it ends."""
    with pytest.raises(BadField, match="version 3 behind version 1"):
        topic_journal.decode(PARTS[0] + PARTS[3])


def test_a_file_gets_the_changes_that_it_lacks() -> None:
    """For the file at each version the changes behind that version are missing, and all end in the same topics."""
    file = TopicsFile({"old": TopicConfig("old", 1, 1)}, VERSIONS[0])
    whole = topic_journal.applied(file, CHANGES)
    assert (sorted(whole.topics), whole.topics["a"].write_queue_count) == (["RPUT", "a", "old"], 9)
    for count in range(len(CHANGES) + 1):
        at = topic_journal.applied(file, CHANGES[:count])
        assert at.data_version == VERSIONS[count]
        assert topic_journal.missing(at, CHANGES) == CHANGES[count:]
        assert topic_journal.applied(at, CHANGES[count:]) == whole
    assert topic_journal.missing(file, []) == []


def test_the_file_of_another_program_decides() -> None:
    """RocketMQ's file after an unclean stop gets the topics that it lacks; its own topics and versions stay."""
    mine = {"a": TopicConfig("a", 3, 3), "orders": ORDERS, "new": TopicConfig("new", 1, 1)}
    file = TopicsFile(mine, replace(VERSIONS[2], timestamp_ms=7, state_version=0))
    (change,) = topic_journal.missing(file, CHANGES)
    assert change == TopicChange(file.data_version, DataVersion(3, VERSIONS[4].timestamp_ms, 0), change.put)
    assert list(change.put) == ["RPUT"]
    merged = topic_journal.applied(file, [change])
    assert merged.topics == mine | {"RPUT": TopicConfig("RPUT", 1, 1)}
    assert topic_journal.missing(merged, CHANGES) == []


def test_a_version_without_its_third_number_is_the_same() -> None:
    """RocketMQ 4.9 writes the file without `stateVersion`: the journal continues the file all the same."""
    file = TopicsFile({}, replace(VERSIONS[1], state_version=0))
    assert topic_journal.missing(file, CHANGES) == CHANGES[1:]


def test_changes_as_one() -> None:
    """A merged change leads to the same topics and version, whatever order topics come and go in."""
    chance = random.Random(5)
    for _ in range(200):
        file = TopicsFile({name: TopicConfig(name, 1, 1) for name in "ab"}, DataVersion(1, 1))
        changes = []
        for counter in range(2, chance.randint(3, 9)):
            names = chance.sample("abcd", chance.randint(0, 3))
            split = chance.randint(0, len(names))
            put = {name: TopicConfig(name, counter, counter) for name in names[:split]}
            before = changes[-1].after if changes else file.data_version
            changes.append(TopicChange(before, DataVersion(counter, counter), put, tuple(names[split:])))
        whole = topic_journal.decode_whole(b"".join(change.encode() for change in changes))
        assert topic_journal.applied(file, [topic_journal.merged(whole)]) == topic_journal.applied(file, changes)


@pytest.mark.parametrize("cut", [1, 20, -1])
def test_changes_that_are_not_whole(cut: int) -> None:
    """Changes that are cut anywhere are refused, and so are no changes."""
    change = TopicChange(DataVersion(1, 1), DataVersion(2, 2), {"a": TopicConfig("a", 1, 1)}).encode()
    with pytest.raises(FormatError):
        topic_journal.decode_whole(change[:cut])
    with pytest.raises(FormatError):
        topic_journal.decode_whole(change + change[:cut])
    for data in (b"", change + change):
        with pytest.raises(FormatError):
            topic_journal.decode_whole(data)
