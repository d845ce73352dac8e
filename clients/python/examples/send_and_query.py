# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: INP001, T201 - a program to read and run
"""Send a few messages and find them again. Needs a running store: `reput up`."""

import time

from reput_client import connect

with connect() as client:
    with client.producer() as producer:
        futures = [
            producer.send("orders", f"order {number}".encode(), tag="created", keys=f"order-{number}")
            for number in range(10)
        ]
    results = [future.result() for future in futures]
    print("stored up to", max(result.physical_offset for result in results))

    end_physical_offset = client.admin.commitlog_status().max_physical_offset
    while client.admin.indexer_status().indexed_physical_offset < end_physical_offset:
        time.sleep(0.05)

    for message in client.query.by_key("orders", "order-7"):
        print(message, message.body.decode(), message.store_time)
    same = client.query.by_id(results[7].offset_message_id)
    print(same.keys, same.tag, same.unique_id == results[7].unique_id)
