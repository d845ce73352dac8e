# SPDX-License-Identifier: Apache-2.0
"""Identity metrics: the build of a process, and the ends of its certificates."""

import logging
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from libs.runtime.version import VERSION

if TYPE_CHECKING:
    from prometheus_client import Metric

_log = logging.getLogger(__name__)


class Build:
    """`reput_build_info`: the version of a service and of Python, as labels of a 1."""

    def __init__(self, service: str) -> None:
        self._service = service

    def collect(self) -> "Iterator[Metric]":
        """Yield the family."""
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(
            "reput_build_info", "The version of the service and of Python.", labels=("service", "version", "python")
        )
        family.add_metric((self._service, VERSION, platform.python_version()), 1)
        yield family


class Certificates:
    """`reput_certificate_not_after_seconds`: the end of each certificate file, in seconds since the epoch.

    The files are read at each collection, because they are replaced while the service runs. A file with several
    certificates has the end of the certificate that ends first. A file that can't be read has no sample.
    """

    def __init__(self, files: Sequence[tuple[str, Path]]) -> None:
        self._files = files
        self._told: set[str] = set()

    def collect(self) -> "Iterator[Metric]":
        """Yield the family."""
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(
            "reput_certificate_not_after_seconds",
            "The end of the certificates of a file, in seconds since the epoch.",
            labels=("setting",),
        )
        if self._files:
            from libs.runtime.trust.certificates import file_end_s  # 11 MB, which a process without certificates saves
        for setting, file in self._files:
            try:
                end_s = file_end_s(file)
            except (OSError, ValueError) as error:
                self._tell(f"{setting} {file}: the end of the certificate can't be read: {error}")
                continue
            family.add_metric((setting,), end_s)
        yield family

    def _tell(self, sentence: str) -> None:
        """Log a sentence once."""
        if sentence not in self._told:
            self._told.add(sentence)
            _log.warning(sentence)
