# SPDX-License-Identifier: Apache-2.0
"""Why groups make no progress: the message that blocks, and offsets that do not move."""

from reput_client import ShareGroup, SharePolicy, ShareQueue

from services.console.pages.groups import (
    NO_MEMBER,
    PAUSED,
    GroupFacts,
    GroupQueue,
    Reason,
    groups_page,
    held_reasons,
    shared_queue,
    still_reasons,
    with_members,
)
from services.console.pages.message import states_of
from services.console.pages.stills import PLACES_MAX, STILL_MS, Stills
from services.console.pages.topics import groups_of
from services.console.web.rendering import Renderer

NOW_MS = 1_800_000_000_000


def blocked(queue_id: int, text: str, queue_offset: int | None) -> GroupQueue:
    queue = ShareQueue(
        "orders", queue_id, 0, 0, 9, 9, 0, 0, 5.0, 900, standstills=(text,), standstill_queue_offsets=(queue_offset,)
    )
    return shared_queue(queue)


def test_a_reason_leads_to_its_message() -> None:
    """A reason with a message names its place; without a message it is told once for all queues."""
    queues = (
        blocked(0, "blocked", 17),
        blocked(1, "blocked", 4),
        blocked(2, "paused", None),
        blocked(3, "paused", None),
    )
    share = ShareGroup("g", SharePolicy(is_paused=True), (), 0)
    page = groups_page([GroupFacts("g", queues, share)], "", ())
    assert page.rows[0].reasons == (
        Reason("blocked", "orders", 0, 17), Reason("blocked", "orders", 1, 4), Reason("paused"), PAUSED
    )  # fmt: skip
    html = Renderer().page(page, path="/groups", twin="/groups.json", can_log_out=False)
    assert 'href="/topics/orders?queue=0&amp;offset=17#look"' in html
    old = ShareQueue("orders", 0, 0, 0, 9, 9, 0, 0, 5.0, 900, standstills=("of an older client",))
    assert shared_queue(old).reasons == (Reason("of an older client"),)


def kept(position: int, end: int) -> tuple[GroupQueue, ...]:
    return (GroupQueue("orders", 0, position, end, end - position), GroupQueue("orders", 1, 5, 5, 0))


def put(stills: Stills, now_ms: int, queues: tuple[GroupQueue, ...]) -> None:
    position, end = (sum(getattr(one, name) for one in queues) for name in ("queue_offset", "end_queue_offset"))
    stills.put(now_ms, {("g", "orders"): (position, end)})


def test_offsets_that_do_not_move() -> None:
    """A group that stops has its reason after a minute: since when, and how many messages came meanwhile."""
    stills = Stills()
    put(stills, NOW_MS - 10_000, kept(10, 20))
    put(stills, NOW_MS, kept(12, 20))
    now_ms = NOW_MS + STILL_MS
    put(stills, now_ms, kept(12, 60))
    assert still_reasons("g", kept(12, 60), stills, now_ms - 1) == ()
    (reason,) = still_reasons("g", kept(12, 61), stills, now_ms)
    assert reason.text == "its offsets in orders have not moved: 49 messages unread, 41 arrived meanwhile"
    assert (reason.topic, reason.since_ms, reason.is_longer) == ("orders", NOW_MS, False)
    assert still_reasons("g", kept(13, 61), stills, now_ms) == ()
    assert still_reasons("g", kept(12, 12), stills, now_ms) == ()
    assert still_reasons("other", kept(12, 60), stills, now_ms) == ()


def test_offsets_that_never_moved() -> None:
    """A stop that began before the console watched is told as longer; a clock that goes back forgets."""
    stills = Stills()
    put(stills, NOW_MS, kept(10, 20))
    put(stills, NOW_MS + STILL_MS, kept(10, 20))
    (reason,) = still_reasons("g", kept(10, 20), stills, NOW_MS + STILL_MS)
    assert (reason.is_longer, reason.text) == (
        True, "its offsets in orders have not moved: 10 messages unread, none arrived meanwhile"
    )  # fmt: skip
    put(stills, NOW_MS - 10 * STILL_MS, kept(10, 20))
    assert still_reasons("g", kept(10, 20), stills, NOW_MS - 10 * STILL_MS + 1) == ()


def shared(committed: int, *, in_flight_count: int, standstills: tuple[str, ...] = ()) -> tuple[GroupQueue, ...]:
    queue = ShareQueue(
        "orders", 3, committed, 5, 9, 9 - committed, in_flight_count, 0, 5.0, 900, standstills=standstills
    )
    return (shared_queue(queue),)


def test_messages_that_members_hold() -> None:
    """A group whose members keep a message for more than a minute has it as its reason, with the place."""
    stills = Stills()
    put(stills, NOW_MS, shared(2, in_flight_count=1))
    now_ms = NOW_MS + STILL_MS
    (reason,) = held_reasons("g", shared(2, in_flight_count=1), stills, now_ms)
    assert reason.text == "members have 1 message of orders, and the first message is not settled"
    assert (reason.topic, reason.queue_id, reason.queue_offset, reason.since_ms) == ("orders", 3, 2, NOW_MS)
    assert held_reasons("g", shared(2, in_flight_count=1), stills, now_ms - 1) == ()
    assert held_reasons("g", shared(3, in_flight_count=1), stills, now_ms) == ()
    assert held_reasons("g", shared(2, in_flight_count=0), stills, now_ms) == ()
    assert held_reasons("g", shared(2, in_flight_count=1, standstills=("paused",)), stills, now_ms) == ()


def queue_of(queue_id: int, *, in_flight_count: int = 0, is_asked: bool | None = False, lag: int = 9) -> ShareQueue:
    return ShareQueue("orders", queue_id, 0, 0, 9, lag, in_flight_count, 0, 5.0, 900, is_asked=is_asked)


def test_the_reason_leads_to_a_message_that_a_member_has() -> None:
    """Without a request of a member the reason names the first message in flight, whose receiver may be gone."""
    found = with_members(list(map(shared_queue, (queue_of(0), queue_of(1, in_flight_count=2)))), is_paused=False)
    (reason,) = {reason for queue in found for reason in queue.reasons}
    assert (reason.topic, reason.queue_id, reason.queue_offset) == ("orders", 1, 0)


def reasons_at(*queues: ShareQueue, is_paused: bool = False) -> list[tuple[str, ...]]:
    found = with_members(list(map(shared_queue, queues)), is_paused=is_paused)
    return [tuple(reason.text for reason in queue.reasons) for queue in found]


def test_queues_that_no_member_asks_for_say_so() -> None:
    """A queue with new messages has a reason while no member asks, and tells how many messages members keep."""
    held = "no member asks for further messages of orders: members have 2 messages of it"
    assert reasons_at(queue_of(0), queue_of(1, in_flight_count=2, lag=2), queue_of(2)) == [(held,), (), (held,)]
    assert reasons_at(queue_of(0)) == [(NO_MEMBER.text,)]
    assert reasons_at(queue_of(0, lag=0)) == [()]
    assert reasons_at(queue_of(0), is_paused=True) == [()]
    for is_asked in (True, None):
        assert reasons_at(queue_of(0, is_asked=is_asked)) == [()]


def test_the_page_of_a_topic_has_the_reasons_of_its_groups() -> None:
    """A group without members, a paused group and a group that stands still have the same reason on all pages."""
    behind = with_members([shared_queue(queue_of(0, is_asked=None))], is_paused=False)
    other = GroupQueue("payments", 0, 0, 0, 0)
    for policy, wanted in ((SharePolicy(), NO_MEMBER), (SharePolicy(is_paused=True), PAUSED)):
        fact = GroupFacts("g", (*behind, other), ShareGroup("g", policy, (), 0))
        (row,) = groups_page([fact], "", ()).rows
        assert (groups_of("orders", [fact])[0].reasons, row.reasons) == ((wanted,), (wanted,))
    quiet = GroupFacts("g", (*behind, other), ShareGroup("g", SharePolicy(), (), 0))
    assert groups_of("payments", [quiet])[0].reasons == ()
    paused = GroupFacts("nightly", (), ShareGroup("nightly", SharePolicy(is_paused=True), (), 0))
    assert groups_page([paused], "", ()).rows[0].reasons == (PAUSED,)


def test_a_message_that_blocks_says_so() -> None:
    """The page of a message tells the first unsettled message, and the reasons that name it, from the others."""
    queue = ShareQueue(
        "orders", 0, 4, 9, 12, 8, 1, 0, 5.0, 900, standstills=("blocked",), standstill_queue_offsets=(4,)
    )
    facts = [GroupFacts("g", (shared_queue(queue),))]
    (first,), (second,) = (states_of("orders", 0, offset, facts) for offset in (4, 5))
    assert (first.is_first, first.reasons) == (True, ("blocked",))
    assert (second.is_first, second.reasons) == (False, ())


def test_groups_are_in_the_order_of_their_lag() -> None:
    """Messages alone decide: ages of groups that keep offsets are not known on the list."""
    groups = [GroupFacts(name, kept(0, end)) for name, end in (("a", 25), ("b", 500), ("c", 380))]
    assert [row.name for row in groups_page(groups, "", ()).rows] == ["b", "c", "a"]


def test_memory_of_stills_is_bounded() -> None:
    """A bounded count of groups is remembered, and groups that are gone are forgotten."""
    stills = Stills()
    stills.put(NOW_MS, {(f"g-{at}", "t"): (0, 1) for at in range(2 * PLACES_MAX)})
    queues = (GroupQueue("t", 0, 0, 1, 1),)
    known = [still_reasons(f"g-{at}", queues, stills, NOW_MS + STILL_MS) for at in (0, 2 * PLACES_MAX - 1)]
    assert [len(one) for one in known] == [1, 0]
    stills.put(NOW_MS + 1, {})
    assert still_reasons("g-0", queues, stills, NOW_MS + STILL_MS) == ()
