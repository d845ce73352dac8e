# SPDX-License-Identifier: Apache-2.0
"""LogExport: a handler of the standard library's logging that sends records by OTLP.

The event is the body of a record, and the other fields of a structured line are its attributes. Records wait in a
bounded queue; when the collector is away, they are dropped, and standard error still has each line.
"""

import logging

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter
from opentelemetry.sdk.resources import Resource

SEVERITIES = (
    (logging.CRITICAL, SeverityNumber.FATAL),
    (logging.ERROR, SeverityNumber.ERROR),
    (logging.WARNING, SeverityNumber.WARN),
    (logging.INFO, SeverityNumber.INFO),
)
OWN = "opentelemetry"
"""The exporter's own lines go to standard error alone: a line about a failed export must not cause an export."""
LEFT_OUT = ("event", "level", "timestamp", "exc_info")


class LogExport(logging.Handler):
    """Sends records until `close`, which waits a second at most."""

    def __init__(self, exporter: LogRecordExporter, resource: Resource) -> None:
        super().__init__()
        self._provider = LoggerProvider(resource, shutdown_on_exit=False)
        self._provider.add_log_record_processor(BatchLogRecordProcessor(exporter, export_timeout_millis=1_000))
        self._logger = self._provider.get_logger("reput")

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record."""
        if record.name.startswith(OWN):
            return
        fields = record.msg if isinstance(record.msg, dict) else {"event": record.getMessage()}
        self._logger.emit(
            LogRecord(
                timestamp=int(record.created * 1e9),
                severity_text=record.levelname,
                severity_number=_severity(record.levelno),
                body=str(fields.get("event", "")),
                attributes={name: str(value) for name, value in fields.items() if name not in LEFT_OUT},
                exception=record.exc_info[1] if record.exc_info else None,
            )
        )

    def close(self) -> None:
        """Send the last records, and end."""
        self._provider.shutdown()
        super().close()


def _severity(level: int) -> SeverityNumber:
    return next((number for least, number in SEVERITIES if level >= least), SeverityNumber.DEBUG)
