# SPDX-License-Identifier: Apache-2.0
"""The list of the log's directories. Spec: docs/formats/reput_files.md section 5."""

from collections.abc import Sequence

import msgspec

from libs.formats.state import checksummed

KIND = "log-directories"


class _Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    directories: Sequence[str]


def encode(directories: Sequence[str]) -> bytes:
    """Return the file. Paths below the data directory are relative to it."""
    return checksummed.wrap_json(KIND, _Content(directories))


def decode(data: bytes) -> Sequence[str]:
    """Return the paths. Raises FormatError."""
    return checksummed.unwrap_json(KIND, data, _Content).directories
