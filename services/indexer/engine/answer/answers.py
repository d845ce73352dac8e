# SPDX-License-Identifier: Apache-2.0
"""Answers: the objects that answer pulls, queries and scans from the indexes. Built once. Changes nothing itself."""

from libs.requests.errors import TopicNotFound, TopicSetApart
from services.indexer.config import IndexerConfig
from services.indexer.engine.answer.damage import NotedDamage
from services.indexer.engine.answer.many_keys import ManyKeysEngine
from services.indexer.engine.answer.plan import ScanPlanner
from services.indexer.engine.answer.pull import Puller
from services.indexer.engine.answer.pulled import Pulled
from services.indexer.engine.answer.query import QueryEngine
from services.indexer.engine.answer.scan import Scanner
from services.indexer.engine.follow.indexes import Indexes
from services.indexer.engine.follow.live_end import LiveEnd
from services.indexer.engine.follow.long_poll import LongPolls
from services.indexer.engine.log.source import RecordSource


class Answers:
    """The puller, the query engine and the scanner, with the indexes and records that they read."""

    def __init__(
        self, config: IndexerConfig, indexes: Indexes, records: RecordSource, polls: LongPolls, live: LiveEnd
    ) -> None:
        self.indexes = indexes
        self.records = records
        self.damage = records = NotedDamage(records)
        queues = indexes.queues
        self.queries = QueryEngine(queues, indexes.index, records, page_size_bytes_max=config.query_size_bytes_max)
        self.many_keys = ManyKeysEngine(queues, indexes.index, records, self.queries)
        self.pulled = Pulled(topic_count_max=config.metrics_topic_count_max)
        self.puller = Puller(queues, records, polls, live, self.pulled)
        self.scanner = Scanner(queues, records, self.many_keys, count_max=config.scan_count_max)
        self.planner = ScanPlanner(queues, records, partition_key_count=config.scan_partition_key_count)

    async def check_known(self, topic: str) -> None:
        """Raise TopicNotFound for a topic that has no queue and that the log does not know, as the planner of scans."""
        if not self.indexes.queues.queue_ids(topic) and not await self.records.has_topic(topic):
            raise TopicNotFound(topic, is_empty=True)

    def served(self, topic: str, field: str = "topic") -> str:
        """Return the topic, if it is served. Raises TopicSetApart."""
        if why := self.indexes.queues.set_apart.why(topic):
            raise TopicSetApart(topic, why=why, field=field)
        return topic
