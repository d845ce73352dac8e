# SPDX-License-Identifier: Apache-2.0
"""The error tables of all services, the registry of reasons and docs/errors.md agree."""

import base64
from collections import defaultdict
from pathlib import Path
from urllib.parse import quote

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo
from reput.common.v1.error_reason_pb2 import ErrorReason

from libs.runtime.rpc.errors import BASE_TABLE, ErrorRow, code_of, status_of
from services.commitlog.rpc.error_table import ERROR_TABLE as COMMITLOG_TABLE
from services.delivery.rpc.error_table import ERROR_TABLE as DELIVERY_TABLE
from services.indexer.rpc.error_table import ERROR_TABLE as INDEXER_TABLE
from services.janitor.rpc.error_table import ERROR_TABLE as JANITOR_TABLE

DOCUMENT = Path(__file__).parents[4] / "docs" / "errors.md"
PREFIX = "ERROR_REASON_"
ROWS = [
    row
    for table in (BASE_TABLE, COMMITLOG_TABLE, DELIVERY_TABLE, INDEXER_TABLE, JANITOR_TABLE)
    for row in table.values()
] + [ErrorRow(grpc.StatusCode.INTERNAL, "INTERNAL")]
ACTIONS = {"fix", "retry", "decide", "alarm"}


def documented() -> dict[str, tuple[set[str], set[str], str]]:
    """Codes, metadata and action of each reason on the page."""
    rows = {}
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            reason, codes, metadata, action, meaning = (
                cell.strip() for cell in line.replace("\\|", "/")[1:-1].split("|")
            )
            assert meaning, reason
            keys = {key.strip(" `") for key in metadata.split(",") if key.strip()}
            rows[reason.strip("`")] = ({code.strip() for code in codes.split(",")}, keys, action)
    return rows


def test_every_reason_has_one_row_on_the_page() -> None:
    """The page has each reason of the registry, in the registry's order, so that clients can look it up."""
    reasons = [name.removeprefix(PREFIX) for name in ErrorReason.keys() if not name.endswith("UNSPECIFIED")]  # noqa: SIM118
    assert list(documented()) == reasons


def test_the_page_tells_the_codes_and_metadata_of_the_tables() -> None:
    """The page has the codes and metadata that the services send, for every service."""
    codes: dict[str, set[str]] = defaultdict(set)
    metadata: dict[str, set[str]] = defaultdict(set)
    for row in ROWS:
        codes[row.reason].add(row.code.name)
        metadata[row.reason].update(row.metadata)
    for reason, (documented_codes, documented_metadata, action) in documented().items():
        assert documented_codes == (codes[reason] or {"not sent yet"}), reason
        if codes[reason]:
            assert documented_metadata == metadata[reason], reason
        assert action in ACTIONS, reason


def test_a_delay_is_promised_only_for_what_passes() -> None:
    """Each row with RetryInfo has the action `retry` on the page."""
    actions = {reason: action for reason, (_, _, action) in documented().items()}
    assert {row.reason for row in ROWS if row.retry_after_ms is not None} <= {
        reason for reason, action in actions.items() if action == "retry"
    }


@pytest.mark.parametrize("text", ["x" * 100_000, "ä" * 100_000, "\N{GRINNING FACE}" * 100_000, "\ud800" * 100_000])
def test_what_is_repeated_of_a_request_is_bounded(text: str) -> None:
    """Reason and text fit into gRPC's 8 KiB of metadata, with texts of any length and any characters."""

    class Odd(Exception):
        """Repeats all that it was given."""

        def __init__(self) -> None:
            super().__init__(f"begins {text} ends")
            self.field = self.value = self.limit = self.topic = self.group = text

    names = ("field", "value", "limit", "topic", "group")
    status = status_of(Odd(), {Odd: ErrorRow(grpc.StatusCode.INVALID_ARGUMENT, "BAD_ARGUMENT", names, 100)})
    assert status.message.startswith("begins ")
    assert status.message.endswith(" ends")
    trailers = quote(status.message) + base64.b64encode(status.SerializeToString()).decode()
    assert len(trailers) < 8_000
    info = ErrorInfo.FromString(status.details[0].value)
    assert (info.reason, set(info.metadata)) == ("BAD_ARGUMENT", set(names))


def test_a_short_text_is_repeated_as_it_is() -> None:
    """A text that fits is sent whole."""
    text = "ä" * 300

    class Odd(Exception):
        """A text of the most bytes."""

    row = ErrorRow(grpc.StatusCode.INVALID_ARGUMENT, "BAD_ARGUMENT")
    assert status_of(Odd(text), {Odd: row}).message == text


def test_a_row_needs_a_reason_of_the_registry() -> None:
    """A misspelt reason fails when the table is made, not when the error happens."""
    with pytest.raises(AssertionError, match="BAD_ARGUMNET is not in the ErrorReason proto"):
        ErrorRow(grpc.StatusCode.INVALID_ARGUMENT, "BAD_ARGUMNET")


def test_a_service_may_override_the_shell() -> None:
    """The service's own table takes precedence over the table of the process shell."""

    class Missing(KeyError):
        """Some error."""

    table = {KeyError: ErrorRow(grpc.StatusCode.NOT_FOUND, "TOPIC_NOT_FOUND")}
    status = status_of(Missing("x"), table)
    assert code_of(status) is grpc.StatusCode.NOT_FOUND
    assert len(status.details) == 1
