# SPDX-License-Identifier: Apache-2.0
"""Logs of a service to standard error: an object of JSON in each line, or lines for a reader at a terminal.

The formatters are the standard library's: a library of structured logs took 4 MB and 0.2 s in each process
(docs/decisions/0104-logs-by-the-standard-library.md). Local variables stay out of tracebacks: they may hold a token.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

import grpc

_CHATTY = "httpx2"
"""It logs each request to Kubernetes at level info: a line for each renewal of the lease."""
_COLOURS = {"debug": "36", "info": "32", "warning": "33", "error": "31", "critical": "31;1"}


def is_console(log_format: str) -> bool:
    """Return whether the log is for a reader at a terminal."""
    return log_format == "console" or (log_format == "auto" and sys.stderr.isatty())


def set_up_logging(service: str, level: str, log_format: str) -> None:
    """Send all records of the process to standard error, as lines for a terminal or as objects of JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ConsoleLines(service) if is_console(log_format) else JsonLines(service))
    handler.addFilter(_is_no_departure)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    logging.getLogger(_CHATTY).setLevel(max(root.level, logging.WARNING))


class JsonLines(logging.Formatter):
    """An object in each line: `event`, `level`, `timestamp` in UTC and `service`.

    Where there are any: the fields of a record (`extra={"fields": {...}}`), `trace_id`,
    `audit` (the fields of an audited call) and `exception` (a traceback).
    """

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        fields: dict[str, Any] = {
            "event": record.getMessage(),
            "level": record.levelname.lower(),
            "timestamp": _timestamp(record),
            "service": self._service,
        }
        fields |= getattr(record, "fields", {})
        if trace_id := _trace_id():
            fields["trace_id"] = trace_id
        if audit := getattr(record, "audit", None):
            fields["audit"] = audit
        if record.exc_info and record.exc_info[0]:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=repr)


class ConsoleLines(logging.Formatter):
    """A line for a terminal, with colours if standard error is one. A traceback follows in lines of its own."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service
        self._has_colours = sys.stderr.isatty()

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record."""
        level = f"{record.levelname.lower():8}"
        if self._has_colours:
            level = f"\x1b[{_COLOURS.get(level.strip(), '0')}m{level}\x1b[0m"
        fields = {**getattr(record, "fields", {}), "trace_id": _trace_id()}
        message = " ".join([record.getMessage(), *(f"{name}={value}" for name, value in fields.items() if value != "")])
        line = f"{_timestamp(record)} {level} {self._service}: {_printable(message)}"
        if record.exc_info and record.exc_info[0]:
            line += "\n" + self.formatException(record.exc_info)
        return line


def _timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _printable(text: str) -> str:
    """Escape what could steer a terminal or look like a line of its own."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def _trace_id() -> str:
    if "opentelemetry.trace" not in sys.modules:  # then no call is traced
        return ""
    from opentelemetry import trace

    span = trace.get_current_span().get_span_context()
    return trace.format_trace_id(span.trace_id) if span.is_valid else ""


def _is_no_departure(record: logging.LogRecord) -> bool:
    """Return False for gRPC's traceback of an answer whose caller has left. This is no error."""
    error = record.exc_info[1] if record.exc_info else None
    return not (isinstance(error, grpc.aio.InternalError) and record.name.startswith("grpc."))
