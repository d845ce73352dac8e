// SPDX-License-Identifier: Apache-2.0
// Prints the processor time of an answer in both forms, from its bytes to bodies, tags and keys of its messages.
// `npm run build && node conformance/answer-cost.mjs`

import { messagesIn } from "../dist/core/records.js";
import { PullResponse } from "../dist/gen/reput/indexer/v1/queue_service.js";

const COUNT = 1_000;
const ROUNDS = 300;
const properties = Buffer.from(
  "UNIQ_KEY\x01C0A8010A1F9018B4AAC2000000000001\x02TAGS\x01tag1\x02KEYS\x01order-1 user-1\x02",
);

/** A record in version 1 with IPv4 hosts. */
function recordOf(bodySize) {
  const head = Buffer.alloc(88);
  const topic = Buffer.from("\x05bench");
  const sizeOfProperties = Buffer.alloc(2);
  sizeOfProperties.writeInt16BE(properties.length);
  const record = Buffer.concat([head, Buffer.alloc(bodySize), topic, sizeOfProperties, properties]);
  record.writeInt32BE(record.length, 0);
  record.writeInt32BE(0xdaa320a7 | 0, 4);
  record.writeInt32BE(bodySize, 84);
  return record;
}

/** Returns ns a message. */
function cost(answer, read) {
  let [least, sum] = [Infinity, 0];
  for (let round = 0; round < ROUNDS; round++) {
    const start = process.cpuUsage();
    for (const message of messagesIn(PullResponse.decode(answer))) sum += read(message);
    const { user, system } = process.cpuUsage(start);
    least = Math.min(least, user + system);
  }
  if (sum === 0) throw new Error("nothing was read");
  return Math.round((least * 1000) / COUNT);
}

const reads = {
  body: (message) => message.body.length,
  "body, tag and keys": (message) => message.body.length + message.tag.length + message.keys.length,
};
for (const size of [100, 1024]) {
  const records = Buffer.concat(Array(COUNT).fill(recordOf(size)));
  const asRecords = PullResponse.encode(PullResponse.fromPartial({ records, recordCount: COUNT })).finish();
  const messages = messagesIn({ messages: [], records, recordCount: COUNT }).map((message) => message.toJSON());
  const asMessages = PullResponse.encode(PullResponse.fromPartial({ messages })).finish();
  for (const [name, read] of Object.entries(reads)) {
    console.log(`${size} B, ${name}: messages ${cost(asMessages, read)} ns, records ${cost(asRecords, read)} ns`);
  }
}
