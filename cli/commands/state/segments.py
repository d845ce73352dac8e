# SPDX-License-Identifier: Apache-2.0
"""`reput segments`."""

import typer

from cli.connection.client import client_of
from cli.output.lines import JsonOption
from cli.output.tables import print_rows

COLUMNS = (
    "base_physical_offset", "size_bytes", "wrote_bytes", "first_store_time", "last_store_time",
    "is_active", "is_indexed", "reader_count",
)  # fmt: skip


def segments(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the segments of the log, oldest first.

    Example: reput segments
    """
    with client_of(context, "commitlog") as client:
        from cli.output.protos import plain

        print_rows(map(plain, client.admin.segments()), COLUMNS, as_json=as_json, spare=("reader_count", "size_bytes"))
