# SPDX-License-Identifier: Apache-2.0
"""The meaning of each failure for a batch."""

import grpc
import pytest
from reput_client import (
    AuthenticationError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ReputError,
    UnavailableError,
)
from reput_outbox.core.outcomes import Behind, Doubtful, Failure, Halved, Passing, Refused, failure_of
from reput_outbox.core.rows import Row

ROWS = [Row(number, str(number), f"t{number % 2}", None, None, "", "", b"x", 1, None, 0) for number in range(10, 15)]
T0 = [ROWS[0], ROWS[2], ROWS[4]]


def _error(kind: type[ReputError], reason: str = "", field: str = "", **metadata: str) -> ReputError:
    fields = (field,) if field else ()
    return kind("text", code=grpc.StatusCode.INTERNAL, reason=reason, fields=fields, metadata=metadata)


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (_error(InvalidArgumentError, "BODY", "messages[3].body"), Refused([ROWS[3]], "BODY: text")),
        (_error(InvalidArgumentError, "BODY", "messages[99].body"), Halved(12)),
        (_error(InvalidArgumentError, "BATCH_TOO_LARGE", "messages"), Halved(12)),
        (_error(NotFoundError, "TOPIC_NOT_FOUND", "messages[2].topic"), Refused(T0, "TOPIC_NOT_FOUND: text")),
        (_error(NotFoundError, "TOPIC_NOT_FOUND", topic="t0"), Refused(T0, "TOPIC_NOT_FOUND: text")),
        (_error(NotFoundError, "TOPIC_NOT_FOUND", topic="other"), Halved(12)),
        (_error(FailedPreconditionError, "WRITER_SEQUENCE_GAP", expected="7"), Behind(7)),
        (_error(FailedPreconditionError, "WRITER_FORGOTTEN"), Doubtful("WRITER_FORGOTTEN")),
        (_error(FailedPreconditionError, "WRITER_CONTENT_DIFFERS"), Doubtful("WRITER_CONTENT_DIFFERS")),
        (_error(UnavailableError, "STORE_FULL"), Passing("STORE_FULL: text")),
        (_error(AuthenticationError), Passing("INTERNAL: text")),
        (ValueError("keys"), Halved(12)),
    ],
)
def test_what_a_failure_means(error: Exception, wanted: Failure) -> None:
    """A refusal sets rows aside, or halves the batch until the row is found; all else leaves the batch as it is."""
    assert failure_of(error, ROWS) == wanted


def test_the_last_row_of_a_halved_batch_is_refused() -> None:
    """A batch of a single row needs no further halves."""
    assert failure_of(ValueError("keys"), ROWS[:1]) == Refused(ROWS[:1], "ValueError: keys")
