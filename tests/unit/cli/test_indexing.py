# SPDX-License-Identifier: Apache-2.0
"""What somebody is asked before queues go."""

import pytest
from reput.indexer.v1.index_service_pb2 import RemovedQueue, RemoveQueuesResponse

from cli.commands.index import _question


@pytest.mark.parametrize(
    ("topic_count", "queue_count", "text"),
    [
        (1, 1, "Remove 1 queues of t00?"),
        (2, 2, "Remove 2 queues of t00, t01?"),
        (2, 3, "Remove 3 queues of t00, t01 and others?"),
        (11, 11, "Remove 11 queues of t00, t01, t02, t03, t04, t05, t06, t07, t08, t09 and others?"),
    ],
)
def test_the_question(topic_count: int, queue_count: int, text: str) -> None:
    """It names ten topics, and says that there are more."""
    queues = [RemovedQueue(topic=f"t{number:02}") for number in range(topic_count)]
    assert _question(RemoveQueuesResponse(removed_queue_count=queue_count, queues=queues)) == text
