# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

from typing_extensions import Buffer

from libs.kernel.append.append_columns import AppendColumns as AppendColumns
from libs.kernel.append.append_columns import AppendLimits as AppendLimits
from libs.kernel.append.topic_table import TopicTable as TopicTable

def append(
    request: Buffer,
    segment: Buffer,
    position: int,
    base_physical_offset: int,
    store_time_ms: int,
    default_born_host: bytes,
    store_host: bytes,
    table: TopicTable,
    limits: AppendLimits,
    columns: AppendColumns,
    stamp: bytes = b"",
) -> int: ...
def append_group(
    requests: Sequence[Buffer],
    default_born_hosts: Sequence[bytes],
    segment: Buffer,
    position: int,
    base_physical_offset: int,
    store_time_ms: int,
    store_host: bytes,
    table: TopicTable,
    limits: AppendLimits,
    columns: AppendColumns,
) -> list[tuple[int, int, int]]: ...
