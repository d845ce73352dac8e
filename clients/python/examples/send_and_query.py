# SPDX-License-Identifier: Apache-2.0

"""Send a few messages and find them again. Needs a running store: `reput up`."""

from reput_client import connect

with connect() as client:
    with client.producer() as producer:
        futures = [
            producer.send("orders", f"order {number}".encode(), tag="created", keys=f"order-{number}")
            for number in range(10)
        ]
    results = [future.result() for future in futures]
    last = max(results, key=lambda result: result.physical_offset)
    print("stored up to", last.physical_offset)

    client.query.wait_indexed(last)
    for message in client.query.by_key("orders", "order-7"):
        print(message, message.body.decode(), message.store_time)
    same = client.query.by_id(results[7].offset_message_id)
    print(same.keys, same.tag, same.unique_id == results[7].unique_id)
