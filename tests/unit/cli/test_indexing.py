# SPDX-License-Identifier: Apache-2.0
"""The question before queues are removed."""

import pytest
from reput.indexer.v1.index_service_pb2 import RemovedQueue, RemoveQueuesResponse

from cli.commands.indexes.index import prospect


@pytest.mark.parametrize(
    ("topic_count", "queue_count", "text"),
    [
        (1, 1, "remove 1 queue (1.0 KiB) of t00"),
        (2, 2, "remove 2 queues (1.0 KiB) of t00, t01"),
        (2, 3, "remove 3 queues (1.0 KiB) of t00, t01 and others"),
        (
            11,
            11,
            "remove 11 queues (1.0 KiB) of t00, t01, t02, t03, t04, t05, t06, t07, t08, t09 and others",
        ),
    ],
)
def test_the_prospect(topic_count: int, queue_count: int, text: str) -> None:
    """The question names ten topics, and tells that there are more."""
    queues = [RemovedQueue(topic=f"t{number:02}") for number in range(topic_count)]
    assert prospect(RemoveQueuesResponse(removed_queue_count=queue_count, queues=queues, freed_bytes=1024)) == text
