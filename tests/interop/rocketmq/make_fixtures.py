# SPDX-License-Identifier: Apache-2.0
"""Makes the stores in tests/interop/data: `python -m tests.interop.rocketmq.make_fixtures`.

Each archive holds `store/`, as RocketMQ left it, and `messages.json`: every message of its log as RocketMQ reads it.
"""

import asyncio
import functools
import shutil
import tarfile
import tempfile
from pathlib import Path

from tests.interop.rocketmq.drafts import Drafts
from tests.interop.rocketmq.history import History, check_equal
from tests.interop.rocketmq.rocketmq_store import RELEASES, RocketMqStore
from tests.interop.rocketmq.stored import Sizes, encoder, without_size
from tests.interop.rocketmq.writing import killed, write_rocketmq

DATA_DIRECTORY = Path(__file__).resolve().parents[1] / "data"
SIZES = Sizes(64 << 10, 20 * 25, 53, 150)
COUNT = 200
ENDS = ("clean", "killed")


async def make(major: str, end: str, work: Path) -> None:
    """Make an archive."""
    store, copy = work / "store", work / "copy"
    history, drafts = History(), Drafts(8, large_body_bytes=3_000)
    async with await RocketMqStore.open(major, store, SIZES, crc_property=end == "killed") as rocketmq:
        write = functools.partial(write_rocketmq, rocketmq, history, drafts, has_v2=major == "5")
        if end == "killed":
            await killed(history, write, COUNT, rocketmq.kill())
        else:
            await write(COUNT)
            await rocketmq.stop()
    shutil.copytree(store, copy)
    async with await RocketMqStore.open(major, copy, SIZES) as rocketmq:
        messages = await rocketmq.walk()
    history.adopt(messages)
    check_equal(history.messages, without_size(messages), "the log")
    (work / "messages.json").write_bytes(encoder.encode(messages))
    with tarfile.open(DATA_DIRECTORY / f"rocketmq-{RELEASES[major]}-{end}.tar.xz", "w:xz", preset=9) as archive:
        for name in ("messages.json", "store"):
            archive.add(work / name, name, filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


async def main() -> None:
    """Make all."""
    for major in RELEASES:
        for end in ENDS:
            with tempfile.TemporaryDirectory() as work:
                await make(major, end, Path(work))


if __name__ == "__main__":
    asyncio.run(main())
