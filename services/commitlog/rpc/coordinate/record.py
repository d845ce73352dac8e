# SPDX-License-Identifier: Apache-2.0
"""The record as coordinators keep it: JSON of a bounded size."""

from libs.formats.errors import FormatError, NewerVersion
from libs.formats.state.leadership import LeadershipRecord
from services.commitlog.engine.elect.coordinator import CoordinatorUnavailable

RECORD_SIZE_BYTES_MAX = 64 << 10
"""A record has some hundred bytes. etcd takes 1.5 MiB at once, Kubernetes 256 KiB of annotations."""


class Refused(CoordinatorUnavailable):
    """The coordinator does not carry this out, and has not."""


def encode(record: LeadershipRecord) -> bytes:
    """Return the JSON. Raises Refused for a record that nobody would read."""
    value = record.encode()
    if len(value) > RECORD_SIZE_BYTES_MAX:
        raise Refused(_too_large(len(value)))
    return value


def decode(value: bytes) -> LeadershipRecord:
    """Return the record. Raises CoordinatorUnavailable: what is no record must be put right by a person."""
    if len(value) > RECORD_SIZE_BYTES_MAX:
        raise CoordinatorUnavailable(_too_large(len(value)))
    try:
        return LeadershipRecord.decode(value)
    except (FormatError, NewerVersion) as error:
        raise CoordinatorUnavailable(f"the record can't be read: {error}") from error


def _too_large(size_bytes: int) -> str:
    return f"the record has {size_bytes} bytes, the limit is {RECORD_SIZE_BYTES_MAX}"
