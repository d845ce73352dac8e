# SPDX-License-Identifier: Apache-2.0
"""The record in the form that coordinators store: JSON of a bounded size."""

from libs.formats.errors import FormatError, NewerVersion
from libs.formats.state.leadership import LeadershipRecord
from services.commitlog.engine.elect.coordinator import CoordinatorUnavailable

RECORD_SIZE_BYTES_MAX = 64 << 10
"""A record has some hundred bytes. etcd accepts 1.5 MiB at once, Kubernetes 256 KiB of annotations."""


class Refused(CoordinatorUnavailable):
    """The coordinator refused the request and changed nothing."""


def encode(record: LeadershipRecord) -> bytes:
    """Return the JSON. Raises Refused for a record that is too large to be read back."""
    value = record.encode()
    if len(value) > RECORD_SIZE_BYTES_MAX:
        raise Refused(_too_large(len(value)))
    return value


def decode(value: bytes) -> LeadershipRecord:
    """Return the record. Raises CoordinatorUnavailable: a person must fix an invalid record."""
    if len(value) > RECORD_SIZE_BYTES_MAX:
        raise CoordinatorUnavailable(_too_large(len(value)))
    try:
        return LeadershipRecord.decode(value)
    except (FormatError, NewerVersion) as error:
        raise CoordinatorUnavailable(f"the record can't be read: {error}") from error


def _too_large(size_bytes: int) -> str:
    return f"the record has {size_bytes} bytes, the limit is {RECORD_SIZE_BYTES_MAX}"
