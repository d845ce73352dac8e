# SPDX-License-Identifier: Apache-2.0
"""The list of the log's directories. Spec: docs/formats/reput_files.md section 5."""

from collections.abc import Sequence

from libs.formats.state.checksummed import JsonFile


class LogDirectories(JsonFile, frozen=True, forbid_unknown_fields=True):
    """The whole file. Paths below the data directory are relative to it."""

    KIND = "log-directories"

    directories: Sequence[str]
