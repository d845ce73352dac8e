# SPDX-License-Identifier: Apache-2.0
"""Sender: sends batches as a writer of Reput's, and asks which messages the store has."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import reput_client
from reput_client import Client, NotFoundError, RetryPolicy, UnavailableError

from reput_outbox.core.rows import Row

if TYPE_CHECKING:
    from reput_client import Writer

TIMER_TOPIC = "rmq_sys_wheel_timer"
"""The topic where a delayed message waits for its time."""
LOOK_UP_S = 30.0
TIMEOUT_S = 10.0


def connect() -> Client:
    """Return a client for the store that the environment names. The relay itself repeats what fails."""
    return reput_client.connect(timeout_s=TIMEOUT_S, retry=RetryPolicy(retries=1))


class Sender:
    """A client and its writer. Both are made anew after a failure, so that no batch of before is sent again."""

    def __init__(self, make_client: Callable[[], Client] = connect) -> None:
        self._make_client = make_client
        self._client: Client | None = None
        self._writer: Writer | None = None
        self._writer_id = ""

    def send(self, writer_id: str, number: int, rows: Sequence[Row]) -> None:
        """Store the rows as this batch, or learn that it is stored. Raises ReputError, ValueError or TypeError."""
        try:
            writer = self._writer
            if writer is None or self._writer_id != writer_id or writer.next_sequence != number:
                self._drop()
                writer = self._connected().writer(writer_id, first_sequence=number)
                self._writer, self._writer_id = writer, writer_id
            writer.append([row.message() for row in rows])
            writer.flush()
        except BaseException:
            self._drop()
            raise

    def stored(self, rows: Sequence[Row]) -> set[str]:
        """Return the unique ids of the rows that the store has. Raises ReputError."""
        client = self._connected()
        try:
            _wait_indexed(client)
            by_topic: dict[str, set[str]] = defaultdict(set)
            for row in rows:
                by_topic[row.topic].add(row.uid)
                if row.deliver_at_ms is not None:
                    by_topic[TIMER_TOPIC].add(row.uid)
            return {uid for topic, uids in by_topic.items() for uid in _found(client, topic, uids)}
        except BaseException:
            self._drop()
            raise

    def close(self) -> None:
        """Close the connections. What is under way is not waited for."""
        self._drop()

    def _connected(self) -> Client:
        if self._client is None:
            try:
                self._client = self._make_client()
            except (ValueError, TypeError, OSError) as error:  # an option or a file, and no fault of the rows
                raise UnavailableError(f"no client for the store can be made: {error}") from error
        return self._client

    def _drop(self) -> None:
        """Drop client and writer, with the batches that have no outcome."""
        client, self._client, self._writer = self._client, None, None
        if client is not None:
            given_up = UnavailableError("given up")
            client.__exit__(UnavailableError, given_up, None)


def _found(client: Client, topic: str, uids: set[str]) -> Iterator[str]:
    """Yield the unique ids that a topic has. Raises ReputError, also for a message that can't be read."""
    with contextlib.suppress(NotFoundError):  # no such topic: it has no such message
        for one in client.query.by_keys(topic, sorted(uids)):
            if one.error is not None:
                raise one.error
            if one.messages:
                yield one.key


def _wait_indexed(client: Client) -> None:
    """Wait until the indexes have all that the log has now. Raises UnavailableError."""
    end = client.admin.commitlog_status().confirmed_physical_offset
    until_s = time.monotonic() + LOOK_UP_S
    while client.admin.indexer_status().indexed_physical_offset < end:
        if time.monotonic() > until_s:
            raise UnavailableError("the indexes do not reach the end of the log")
        time.sleep(0.05)
