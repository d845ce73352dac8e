# SPDX-License-Identifier: Apache-2.0
"""The rules of names, each with accepted and refused names."""

import pytest

from libs.formats.names import is_appendable_topic, is_group, is_topic, queue_id_of
from libs.formats.state.system_topics import is_made_by_store, is_system_group, is_system_topic
from tests.unit.libs.kernel.builds import SOURCES


@pytest.mark.parametrize(
    ("name", "appendable", "stored"),
    [
        ("orders", True, True),
        ("%RETRY%g|a_b-C9", True, True),
        ("a" * 127, True, True),
        ("a" * 128, False, True),
        ("a" * 255, False, True),
        ("a" * 256, False, False),
        ("%RETRY%g+t", False, True),
        ("", False, False),
        ("..", False, False),
        ("a/b", False, False),
        ("a\n", False, False),
        ("ä", False, False),
    ],
)
def test_topics(name: str, appendable: bool, stored: bool) -> None:
    """Fewer names are appendable topics than valid topics of records.

    The kernel has the same rule for bytes.
    """
    assert (is_appendable_topic(name), is_topic(name)) == (appendable, stored)
    data = memoryview(name.encode())
    assert SOURCES.message_cy.is_topic_name(data, 0, len(data)) is appendable


def test_groups_and_queue_ids() -> None:
    """A group has no separator of the file in it, and a queue id is a number as RocketMQ writes it."""
    assert is_group("g" * 255)
    assert not any(map(is_group, ("g" * 256, "a@b", "")))
    assert [queue_id_of(name) for name in ("0", "65536", "2147483647")] == [0, 65_536, 2_147_483_647]
    assert [queue_id_of(name) for name in ("00", "2147483648", "-1", "", "٣")] == [None] * 5


def test_topics_of_the_store_itself() -> None:
    """The system topics, to which only the store appends, are among the topics that the store makes."""
    system = ("RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "rmq_sys_x")
    assert all(is_system_topic(name) and is_made_by_store(name) for name in system)
    made = ("TBW102", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "%RETRY%g", "RMQ_SYS_x")
    assert all(is_made_by_store(name) and not is_system_topic(name) for name in made)
    assert not is_made_by_store("orders")


def test_groups_of_the_store_and_of_rocketmq_itself() -> None:
    """Groups whose positions are of no reader are told from those of users."""
    own = ("CID_RMQ_SYS_TRANS", "TOOLS_CONSUMER", "rmq_sys_reput_delivery", "rmq_sys_reput_levels", "CID_ONSAPI_PULL")
    assert all(map(is_system_group, own))
    assert not any(map(is_system_group, ("billing", "CID_shop", "DEFAULT_CONSUMER")))
