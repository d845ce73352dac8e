# SPDX-License-Identifier: Apache-2.0
"""FakeSink: the front of a FakeLog, which accepts records of the shared state as the CommitLog would."""

from collections.abc import Sequence

from libs.formats.records.state_record import StateRecord
from libs.formats.state.system_topics import STATE_QUEUE_ID, STATE_TOPIC
from libs.requests.errors import DependencyUnavailable
from tests.support.fake_log import FakeLog


class FakeSink:
    """A LogSink that appends to a FakeLog."""

    def __init__(self, log: FakeLog) -> None:
        self.log = log
        self.shared: list[StateRecord] = []
        """The records that were shared, copies included, oldest first."""
        self.is_leaderless = False

    async def share(self, records: Sequence[StateRecord]) -> None:
        """See LogSink."""
        if not self.log.is_up or self.is_leaderless:
            raise DependencyUnavailable("commitlog", "nobody leads")
        for record in records:
            self.shared.append(record)
            self.log.append(STATE_TOPIC, STATE_QUEUE_ID, body=record.encode())
