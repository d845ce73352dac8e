# SPDX-License-Identifier: Apache-2.0
from typing_extensions import Buffer

from libs.kernel.append.append_columns import AppendColumns as AppendColumns
from libs.kernel.append.append_columns import AppendLimits as AppendLimits
from libs.kernel.append.topic_table import TopicTable as TopicTable

E_WIRE: int
E_FULL: int
E_EMPTY: int
E_TOO_MANY: int
E_TOPIC_NAME: int
E_TOPIC_UNKNOWN: int
E_TOPIC_FORBIDDEN: int
E_QUEUE: int
E_BODY_SIZE: int
E_PROPERTIES: int
E_PROPERTIES_SIZE: int
E_DELAY: int
E_HOST: int
E_FIELD: int
E_RECORD_SIZE: int
E_WRITER: int
E_LIGHT: int
E_QUEUES: int

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
