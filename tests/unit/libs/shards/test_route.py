# SPDX-License-Identifier: Apache-2.0
"""Routes: each hash has a single queue at most, for any shares of the shards."""

from hypothesis import given
from hypothesis import strategies as st

from libs.formats.config.topic_share import HASH_MAX, Place, QueueShare, TopicShare, key_hash
from libs.shards.change import first_shares
from libs.shards.route import Route

SHARDS = ("a", "b", "c")


@given(st.integers(1, 5), st.integers(1, 40))
def test_first_shares_have_all_hashes(shard_count: int, queue_count: int) -> None:
    """A new topic has each queue once, in equal ranges that cover all hashes, as evenly over shards as possible."""
    shares = first_shares([f"shard-{at}" for at in range(shard_count)], queue_count)
    route = Route(shares)
    assert sorted(place.queue_id for place in route.places) == list(range(queue_count))
    sizes = [len(share.queues) for share in shares.values()]
    assert max(sizes) - min(sizes) <= 1
    assert all(share.fault(write_queue_count=queue_count) == "" for share in shares.values())
    queues = [queue for share in shares.values() for queue in share.queues]
    widths = [queue.last_hash - queue.first_hash + 1 for queue in queues]
    assert (max(widths) - min(widths) <= 1, sum(widths)) == (True, HASH_MAX + 1)


@given(st.integers(1, 40), st.text())
def test_a_key_has_the_queue_of_its_hash(queue_count: int, key: str) -> None:
    """The queue of a key is the queue whose range has its hash."""
    shares = first_shares(SHARDS, queue_count)
    found = Route(shares).place_of_key(key)
    assert found is not None
    (queue,) = (queue for queue in shares[found.shard].queues if queue.queue_id == found.queue_id)
    assert queue.first_hash <= key_hash(key) <= queue.last_hash


def test_a_shard_that_is_not_known_leaves_a_gap() -> None:
    """Keys of a shard that is away have no queue, and other keys keep theirs."""
    whole = first_shares(SHARDS, 6)
    route = Route({shard: share for shard, share in whole.items() if shard != "b"})
    first, last = whole["b"].queues[0].first_hash, whole["b"].queues[-1].last_hash
    found = [route.place_of_hash(value) for value in (first - 1, first, last, last + 1)]
    assert found == [Place("a", 1), None, None, Place("c", 4)]
    assert Route({}).place_of_hash(0) is None


def _share(version: int, *queues: tuple[int, int, int]) -> TopicShare:
    return TopicShare(version, tuple(QueueShare(*queue) for queue in queues))


def test_the_larger_version_is_right() -> None:
    """Where two shards claim a hash, the share with the larger version has it, and the rest stays with the other."""
    route = Route({"a": _share(3, (0, 0, HASH_MAX)), "b": _share(4, (1, 10, 19), (2, 30, 39))})
    found = [route.place_of_hash(value) for value in (9, 10, 19, 20, 30, 40)]
    assert found == [Place("a", 0), Place("b", 1), Place("b", 1), Place("a", 0), Place("b", 2), Place("a", 0)]
    assert set(route.places) == {Place("a", 0), Place("b", 1), Place("b", 2)}


claims = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=4)


@given(st.lists(st.tuples(st.integers(1, 3), claims), min_size=1, max_size=4))
def test_any_claims_give_each_hash_to_one_queue_at_most(found: list[tuple[int, list[tuple[int, int]]]]) -> None:
    """For any claimed ranges a hash has the queue that a search over all claims finds."""
    shares: dict[str, TopicShare] = {}
    for at, (version, ranges) in enumerate(found):
        queues = tuple(QueueShare(10 * at + n, min(one), max(one)) for n, one in enumerate(ranges))
        shares[f"shard-{at}"] = TopicShare(version, queues)
    route = Route(shares)
    for value in range(52):
        claimed = [
            (-share.version, shard, n, queue.queue_id)
            for shard, share in shares.items()
            for n, queue in enumerate(share.queues)
            if queue.first_hash <= value <= queue.last_hash
        ]
        place = route.place_of_hash(value)
        assert (place is None) == (not claimed)
        assert place is None or (place.shard, place.queue_id) == (min(claimed)[1], min(claimed)[3])


def test_a_sealed_queue_has_no_keys() -> None:
    """A sealed queue takes no messages, also while no other queue has its keys."""
    sealed = QueueShare(0, 0, 99, is_sealed=True)
    route = Route({"a": TopicShare(9, (sealed, QueueShare(1, 100, HASH_MAX))), "b": _share(8, (2, 0, 49))})
    found = [route.place_of_hash(value) for value in (0, 49, 50, 99, 100)]
    assert found == [Place("b", 2), Place("b", 2), None, None, Place("a", 1)]
    assert route.places == (Place("b", 2), Place("a", 1))
