# SPDX-License-Identifier: Apache-2.0
"""AuditConfig: the audit file and its size. Values only; they are settings of every service."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from libs.importance import Advanced


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditConfig:
    """The settings of the audit. docs/audit.md describes the lines."""

    audit_file: Advanced[Path | None] = None
    """File for a JSON line of each administrative call and each refusal; each service needs a file of its own. Without
    it these lines are in the service's log alone."""

    audit_file_size_bytes_max: Advanced[Annotated[int, Meta(ge=64 << 10)]] = 16 << 20
    """Size at which the audit file is renamed to audit_file.1 and a new file begins."""

    audit_file_count_max: Advanced[Annotated[int, Meta(ge=1, le=1000)]] = 10
    """Number of renamed audit files that are kept; the oldest file is deleted."""
