# SPDX-License-Identifier: Apache-2.0
"""How each of the Janitor's errors travels. The shell has its own table for the rest."""

import grpc

from libs.runtime.rpc.errors import ErrorRow, ErrorTable
from services.janitor.errors import BadArgument, BadPageToken, OwnerUnavailable, RunInProgress

_CODES = grpc.StatusCode

ERROR_TABLE: ErrorTable = {
    BadArgument: ErrorRow(_CODES.INVALID_ARGUMENT, "BAD_ARGUMENT", ("field", "value", "limit")),
    BadPageToken: ErrorRow(_CODES.INVALID_ARGUMENT, "BAD_PAGE_TOKEN", ("field",)),
    RunInProgress: ErrorRow(_CODES.FAILED_PRECONDITION, "RUN_IN_PROGRESS", ("started",)),
    OwnerUnavailable: ErrorRow(_CODES.UNAVAILABLE, "DEPENDENCY_UNAVAILABLE", ("service",), retry_after_ms=1_000),
}
