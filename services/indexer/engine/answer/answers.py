# SPDX-License-Identifier: Apache-2.0
"""Answers: what questions about the indexes are answered with. Built once; changes nothing by itself."""

from dataclasses import dataclass

from libs.requests.errors import TopicSetApart
from services.indexer.engine.answer.plan import ScanPlanner
from services.indexer.engine.answer.pull import Puller
from services.indexer.engine.answer.query import QueryEngine
from services.indexer.engine.answer.scan import Scanner
from services.indexer.engine.follow.indexes import Indexes
from services.indexer.engine.log.source import RecordSource


@dataclass(frozen=True, slots=True)
class Answers:
    """The ways to ask, and what they look at."""

    indexes: Indexes
    records: RecordSource
    queries: QueryEngine
    puller: Puller
    scanner: Scanner
    planner: ScanPlanner

    def served(self, topic: str, field: str = "topic") -> str:
        """Return the topic, if it is served. Raises TopicSetApart."""
        if why := self.indexes.queues.set_apart.why(topic):
            raise TopicSetApart(topic, why=why, field=field)
        return topic
