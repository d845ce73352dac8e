# SPDX-License-Identifier: Apache-2.0

"""Write a table, and read it back as Arrow with its bodies as columns. Needs a running store: `reput up`."""

import time

import pyarrow as pa
from reput_client import connect, frames

TABLE = pa.table(
    {
        "order": [f"order-{number}" for number in range(1_000)],
        "state": ["new", "paid"] * 500,
        "json": [f'{{"amount": {number}, "city": "Bonn"}}' for number in range(999)] + ["no JSON"],
    }
)

with connect() as client:
    written = frames.write(client, "sales", TABLE, body="json", key="order", tag="state", writer_id="import-1")
    print("written:", written.message_count)
    while client.admin.indexer_status().indexed_physical_offset < client.admin.commitlog_status().max_physical_offset:
        time.sleep(0.05)

    schema = pa.schema({"amount": pa.int64(), "city": pa.string()})
    with frames.read(client, "sales", columns=["key", "offset"], decode=frames.Json(schema)) as sales:
        table = sales.to_arrow()
        print("sum of amounts:", sum(table["amount"].drop_null().to_pylist()))
        print("bad bodies:", table["bad_body"].drop_null().to_pylist())

    paid = frames.read(client, "sales", tags="paid", columns=["key"])
    print("paid:", sum(batch.num_rows for batch in paid), "of", paid.planned_row_count)
    one = frames.read(client, "sales", key="order-7", columns=["value"])
    print("order-7:", one.to_arrow()["value"].to_pylist())
