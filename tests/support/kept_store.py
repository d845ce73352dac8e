# SPDX-License-Identifier: Apache-2.0
"""A small store of an earlier revision, kept as an archive, which every later revision opens.

`python -m tests.support.kept_store NAME` fills a store with the services of this revision, stops it in order, and packs
its directories into tests/golden/stores/NAME.tar.xz. With `--follower` the log has a follower meanwhile, so that the
Indexer shares its state in the log. Make an archive when a format changes, and never change an archive.
"""

import argparse
import contextlib
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import reput_client
from reput_client import NewMessage

from libs.runtime.trust.tokens import find_local_token
from tests.support.fixed_service import FixedService
from tests.support.reput_up import Result, run_here

STORES = Path(__file__).parents[1] / "golden" / "stores"
BODIES = [b"m0", b"m1", b"m2", b"m3", b"m4"]
DELAY_S = 120.0
"""Longer than it takes to fill the store: the message waits in the archive, and is due whenever that is opened."""
RECEIVE_WAIT_S = 20.0
INDEX_SLOTS = "64"
FOLLOWS = ("--role", "slave", "--replica-id", "follower", "--leader-target")
INDEXER_FLAGS = ("--index-slot-count", INDEX_SLOTS, "--index-entry-capacity", "200")


@contextlib.contextmanager
def opened(directory: Path, *, has_follower: bool = False) -> Iterator[reput_client.Client]:
    """Run the services over the directories of a store, and yield a client with the rights of an operator."""
    with contextlib.ExitStack() as stack:

        def started(name: str, data_dir: str, *flags: str) -> FixedService:
            service = FixedService(name, directory / data_dir, *flags)
            stack.callback(service.stop)
            return service.start()

        log = started("commitlog", "log", "--segment-size-bytes", str(1 << 20))
        if has_follower:
            started("commitlog", "follower", "--segment-size-bytes", str(1 << 20), *FOLLOWS, log.target)
        indexer = started("indexer", "index", "--commitlog-target", log.target, *INDEXER_FLAGS)
        delivery = started("delivery", "delivery", "--commitlog-target", log.target, "--indexer-target", indexer.target)
        targets = {"commitlog": log.target, "indexer": indexer.target, "delivery": delivery.target}
        yield stack.enter_context(reput_client.connect(**targets, token=find_local_token(())))


def bodies(client: reput_client.Client, topic: str) -> list[bytes]:
    """Return the bodies of the first queue of a topic."""
    try:
        return [message.body for message in client.queues.pull(topic, 0, 0).messages]
    except reput_client.NotFoundError:
        return []


def append_numbered(client: reput_client.Client) -> None:
    """Append the first batch of the writer `import`. A store that has the batch does not store it again."""
    with client.writer("import", first_sequence=0) as writer:
        writer.append([NewMessage("imported", b"%d" % number, queue_id=0) for number in range(3)])


def fill(client: reput_client.Client) -> None:
    """Store messages, positions, deliveries in each state, delayed messages, an open transaction and a writer."""
    client.topics.create("later")
    with client.producer() as producer:
        producer.send("later", b"timed", queue_id=0, delay_s=DELAY_S).result()
        producer.send("later", b"level", queue_id=0, delay_level=6).result()  # two minutes
        producer.send("later", b"soon", queue_id=0, delay_level=1).result()
        results = [producer.send("kept", body, queue_id=0, keys=["k"]).result() for body in BODIES]
    client.query.wait_indexed(results[-1])
    with client.consumer("kept", group="readers", start="earliest") as consumer:
        for _ in range(2):
            assert consumer.poll(RECEIVE_WAIT_S) is not None
        consumer.commit()
    with client.share_consumer("kept", group="workers") as shared:
        received = shared.receive(count=len(BODIES), wait_s=RECEIVE_WAIT_S)
        by_body = {delivery.message.body: delivery for delivery in received}
        shared.ack(by_body[b"m0"], by_body[b"m1"])
        shared.bury(by_body[b"m3"])
        shared.nack(by_body[b"m2"], by_body[b"m4"], delay_s=0.0)
    client.transactions.begin("paid", b"paid", group="shop")
    append_numbered(client)
    while bodies(client, "later") != [b"soon"]:
        time.sleep(0.05)


def verify(directory: Path) -> Result:
    """Run `reput verify` over the directories of a store."""
    index_dir = str(directory / "index")
    return run_here("verify", str(directory / "log"), "--index-dir", index_dir, "--index-slots", INDEX_SLOTS)


def unpack(archive: Path, directory: Path) -> None:
    """Unpack a kept store."""
    with tarfile.open(archive) as tar:
        tar.extractall(directory, filter="data")


def main() -> None:
    """Fill a store, and pack it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="name of the archive: the date or the version of the revision")
    parser.add_argument("--follower", action="store_true", help="the log has a follower meanwhile")
    args = parser.parse_args()
    target = STORES / f"{args.name}.tar.xz"
    if target.exists():
        parser.error(f"{target} exists, and a kept store never changes")
    with tempfile.TemporaryDirectory() as home:
        with opened(Path(home), has_follower=args.follower) as client:
            fill(client)
        STORES.mkdir(exist_ok=True)
        with tarfile.open(target, "w:xz") as tar:
            for name in ("log", "index"):
                tar.add(Path(home) / name, name)
    print(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
