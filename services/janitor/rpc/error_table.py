# SPDX-License-Identifier: Apache-2.0
"""The gRPC status of each of the Janitor's errors. The shell has its own table for other errors."""

import grpc

from libs.runtime.rpc.errors import ErrorRow, ErrorTable
from services.janitor.errors import RunInProgress

_CODES = grpc.StatusCode

ERROR_TABLE: ErrorTable = {
    RunInProgress: ErrorRow(_CODES.FAILED_PRECONDITION, "RUN_IN_PROGRESS", ("started",)),
}
