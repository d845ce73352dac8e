# SPDX-License-Identifier: Apache-2.0
"""Shards in the console: the queues of a topic over all of them, their page, addresses, commands, and signatures."""

import re
from pathlib import Path
from typing import Any

import pytest
from reput_client import ChildQueue, Queue, QueuePlace, QueueRange, ShareChange, Topic, TopicShare
from starlette.exceptions import HTTPException
from starlette.requests import Request

from services.console.ask.shards import first_store
from services.console.ask.store import Asking, Store
from services.console.config import ConsoleConfig
from services.console.pages.find import FindPage, More, NameAt, Outcome
from services.console.pages.operate.store import Answers, page_of
from services.console.pages.page import SHARD_OPTIONS, Gap, command
from services.console.pages.rows import MessageRow
from services.console.pages.shards.found import over_shards
from services.console.pages.shards.layout import Layout, Place, PlacedQueue, Seen, layout_of
from services.console.pages.shards.overview import Contents, shard_row, shards_page
from services.console.pages.topics import TopicPage, no_topic
from services.console.web.forms import Signer
from services.console.web.proxies import CALLER, Caller
from services.console.web.rendering import TEMPLATES, Renderer
from services.console.web.shards import LINKS_MAX, links_of, named, options_of, store_of

HALF, LAST = 2**31, 2**32 - 1
FILE = """
[shards.a]
commitlog = "a:1"
indexer = "a:2"
delivery = "a:3"
janitor = "a:4"
[shards.b]
commitlog = "b:1"
indexer = "b:2"
delivery = "b:3"
"""


@pytest.fixture
async def store(tmp_path: Path) -> Store:
    path = tmp_path / "shards.toml"
    path.write_text(FILE)
    return first_store(ConsoleConfig(shards_file=path, gateway_target="door:1"))


def seen(share: TopicShare | None, *counts: tuple[int, int], are_all: bool = True) -> Seen:
    topic = Topic("orders", 8, 8, is_readable=True, is_writable=True, is_system=False, share=share)
    return Seen(topic, [Queue("orders", number, 0, count, None, None) for number, count in counts], are_all=are_all)


def test_queues_over_all_shards() -> None:
    """Open queues come first; each has its shard, part of the keys, parents and messages; a change has its command."""
    parent = QueuePlace("a", 0)
    change = ShareChange(4, (parent,), (ChildQueue(QueuePlace("b", 2), 0, HALF - 1),))
    shares = {
        "a": TopicShare(5, (QueueRange(0, 0, HALF - 1, is_sealed=True), QueueRange(1, HALF, LAST)), change),
        "b": TopicShare(6, (QueueRange(2, 0, HALF - 1, parents=(parent,)),)),
    }
    layout = layout_of("orders", {"a": seen(shares["a"], (0, 7), (1, 3)), "b": seen(shares["b"])})
    assert [(one.shard, one.queue_id, one.is_sealed, one.message_count) for one in layout.queues] == [
        ("a", 1, False, 3), ("b", 2, False, 0), ("a", 0, True, 7),
    ]  # fmt: skip
    assert layout.queues[1].parents == (Place("a", 0),)
    assert [one.keys_percent for one in layout.queues] == [50, 50, 50]
    assert layout.change is not None
    assert (layout.change.text, layout.change.command) == ("0 at a → 2 at b", "reput shards finish orders")
    away = layout_of("orders", {"a": Seen(None, None), "b": seen(shares["b"], are_all=False)})
    assert (away.shards, away.change, away.queues[0].message_count) == (("b",), None, None)
    whole = layout_of("orders", {"a": seen(None, (0, 9)), "b": Seen(None, None)})
    assert whole.queues == (PlacedQueue("a", 0, 9),)
    assert whole.queues[0].keys_percent is None
    assert layout_of("orders", {}) == Layout()


def test_a_topic_at_other_shards_is_found() -> None:
    """A topic that another shard has is no missing topic; without any shard it is, or could not be looked for."""
    elsewhere = Layout(("b",), (PlacedQueue("b", 0, 1),))
    gap = Gap("the topic at shard b", "away")
    pages = [no_topic("orders", (), elsewhere), no_topic("orders", (), Layout()), no_topic("orders", (gap,), Layout())]
    assert [page.status for page in pages] == [200, 404, 503]
    html = Renderer().page(pages[0], path="/topics/orders", twin="/x.json", can_log_out=False)
    assert 'This shard has no queues of the topic. These have: <a href="/shards/b/topics/orders">b</a>.' in html


def test_the_page_of_a_topic_with_many_queues_is_light() -> None:
    """A topic of as many queues as a topic may have, at shards with long names, has a page of less than 100 kB."""
    queues = tuple(
        PlacedQueue("s" * 100, number, 2**40, False, 0, LAST, tuple(Place("s" * 100, at) for at in range(9)))
        for number in range(1_024)
    )
    page = TopicPage(commands=(), name="orders", layout=Layout(("s",), queues), shard="s")
    assert len(Renderer().page(page, path="/topics/orders", twin="/x.json", can_log_out=False)) < 100_000


def test_the_page_of_all_shards() -> None:
    """A shard whose CommitLog is away says why; its figures are unknown, never 0."""
    gap = Gap("CommitLog", "the CommitLog at b:1 does not answer")
    targets = {"commitlog": "b:1", "indexer": "b:2", "janitor": "b:4", "delivery": "b:3", "gateway": ""}
    away = shard_row("b", "b:1", page_of(Answers(), targets, (gap,), 0), None)
    assert (away.health, away.contents, away.end_physical_offset, away.kept_bytes) == ("away", None, None, None)
    assert away.state.startswith("CommitLog: the CommitLog at b:1 does not answer")
    page = shards_page([away], (gap,))
    assert (page.is_healthy, page.verdict) == (False, "Look at b.")
    html = Renderer().page(page, path="/shards", twin="/shards.json", can_log_out=False)
    assert "away – CommitLog: the CommitLog at b:1 does not answer" in html
    assert Contents(1, 2, 3).message_count == 3


async def test_the_stores_of_a_file(store: Store) -> None:
    """Each shard has the addresses of its table, and the first is shown first; a Janitor without an address is away."""
    assert (store.shard, list(store.shards)) == ("a", ["a", "b"])
    other = store.shards["b"]
    assert other.targets == {
        "commitlog": "b:1",
        "indexer": "b:2",
        "delivery": "b:3",
        "janitor": "",
        "gateway": "door:1",
    }
    asking = Asking(other)
    assert await asking.ask("Janitor", asking.client.admin.janitor_status()) is None
    assert asking.gaps == (Gap("Janitor", "shards_file names no Janitor of this shard"),)
    await other.close()
    assert first_store(ConsoleConfig()).shards == {}


def request_of(path: str, shard: str = "", query: str = "") -> Request:
    headers = [(b"host", b"127.0.0.1:7300"), (b"cookie", b"reput_change_7300=c")]
    below = f"/shards/{shard}" if shard else ""
    return Request(
        {
            "type": "http", "scheme": "http", "server": ("127.0.0.1", 7300), "method": "GET", "headers": headers,
            "path": below + path, "raw_path": (below + path).encode(), "root_path": below,
            "query_string": query.encode(), "path_params": {"shard": shard} if shard else {},
            CALLER: Caller("127.0.0.1", "http", ""),
        }
    )  # fmt: skip


async def test_addresses_of_shards(store: Store) -> None:
    """An address names the shard of its page; the head leads to the same page of each other shard, where it has one."""
    assert store_of(store, request_of("/topics", "b")).shard == "b"
    assert store_of(store, request_of("/shards")) is store
    with pytest.raises(HTTPException):
        store_of(store, request_of("/topics", "c"))
    cases = {
        ("/topics/orders", "?span=1h"): "/shards/b/topics/orders?span=1h",
        ("/topics", "?name=o&page=2"): "/shards/b/topics?name=o",
        ("/", "?q=a%26b&topic=&after=x"): "/shards/b/?q=a%26b",
        ("/messages/00", ""): "/shards/b/",
        ("/delayed/cancel", "?topic=t&id=1"): "/shards/b/",
        ("/shards", ""): "/shards/b/",
    }
    for (path, query), address in cases.items():
        assert [one.address for one in links_of(store, path, query)][1] == address, path
    assert links_of(first_store(ConsoleConfig()), "/", "") == []
    store.shards = {f"s{at}": store for at in range(LINKS_MAX + 1)}
    assert [one.name for one in links_of(store, "/", "")] == ["a"]


async def test_commands_name_the_shard(store: Store) -> None:
    """A command reaches the shard through the gateway. Commands over all shards are as they are."""
    assert options_of(first_store(ConsoleConfig())) == ()
    token = SHARD_OPTIONS.set(options_of(store.shards["b"]))
    try:
        assert command("topics", "list") == "reput --store door:1 --shard b topics list"
        assert command("shards", "list") == "reput shards list"
    finally:
        SHARD_OPTIONS.reset(token)
    assert command("topics", "list") == "reput topics list"


def test_links_stay_at_the_shard() -> None:
    """Each link of a page below a shard leads to a page below it, to all shards, or to no page of a store."""
    page = named(no_topic("orders", (), Layout(("b",))), request_of("/topics/orders", "b"))
    html = Renderer().page(page, path="/topics/orders", twin="/shards/b/topics/orders.json", can_log_out=True)
    links = re.findall(r'(?:href|action)="(/[^"]*)"', html)
    assert len(links) > 10
    assert [link for link in links if not link.startswith(("/shards/b/", "/static/", "/logout"))] == []
    assert "<title>orders · b · Reput</title>" in html
    whole = re.compile(r'(?:href|action|data-tail)="(/[^"]*|\{\{ (?:path|action|address|page\.back) )')
    known = ("/static/", "/login", "/logout", "/shards")
    for path in TEMPLATES.glob("*.html"):
        others = [one for one in whole.findall(path.read_text()) if not one.startswith(known)]
        assert path.name == "bare.html" or others == [], path


def row_at(topic: str, at: int) -> MessageRow:
    keys = tuple(f"MQ{at}-{number:06}" for number in range(4))
    return MessageRow(
        f"{at:032X}", topic, 3, at, at, 1_795_397_076_803 + at, "MQ", keys, 4, "F" * 32, 900, '{"year":"2013"}' * 10, ""
    )


def found_page(outcome: Outcome, *rows: MessageRow, more: tuple[More, ...] = (), **fields: Any) -> FindPage:
    return FindPage(commands=(), text="k", topic="", outcome=outcome, verdict="v", messages=rows, more=more, **fields)


def test_a_search_at_several_shards() -> None:
    """Each message and each next part has its shard; the outcome is that of all shards, and a gap is never hidden."""
    own = found_page("not_found", topics=("orders",))
    other = found_page("found", row_at("orders", 1), more=(More("orders", "t"),), topics=("orders", "alone"))
    page = over_shards(own, "a", {"b": other}, ("a", "b", "c"))
    assert (page.outcome, page.verdict) == ("found", "Found at shard b.")
    assert [(row.topic, row.shard) for row in page.messages] == [("orders", "b")]
    assert page.more == (More("orders", "t", "b"),)
    assert page.names == (NameAt("topic", "alone", "b"),)
    assert [(one.shard, one.outcome) for one in page.shards] == [("a", "not_found"), ("b", "found"), ("c", "")]
    away = found_page("could_not_look", gaps=(Gap("topics", "away"),))
    page = over_shards(own, "a", {"b": away}, ("a", "b"))
    assert (page.status, page.gaps) == (503, (Gap("topics at shard b", "away"),))
    assert over_shards(own, "a", {"b": own}, ("a", "b")).verdict == "Not found at shard a, b."
    assert over_shards(own, "a", {}, ("a", "b")).verdict == "v"


@pytest.mark.parametrize("name", ["b", "s" * 100])
def test_a_search_at_several_shards_is_light(name: str) -> None:
    """The messages of all shards together are less than 100 kB; a topic without room is named, and none is cut."""
    full = [row_at(f"topic-{at // 20}", at) for at in range(100)]
    others = {f"{name}{at}"[-100:]: found_page("found", *full) for at in range(3)}
    page = over_shards(found_page("found", *full), name, others, (name, *others))
    html = Renderer().page(named(page, request_of("/", name)), path="/", twin="/find.json", can_log_out=False)
    assert 30_000 < len(html) < 100_000
    assert len(page.messages) % 20 == 0
    assert len(page.messages) + 20 * len(page.more) == 400


def test_a_confirmation_is_bound_to_its_shard() -> None:
    """The token of a preview at a shard confirms nothing at another shard, whatever the path."""
    tokens = {Signer(request_of("/x", shard)).token("/groups/g/reset", [], "1") for shard in ("", "a", "b")}
    assert len(tokens) == 3
