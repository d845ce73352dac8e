// SPDX-License-Identifier: Apache-2.0
// Answers with records: the cases of all clients, and changed bytes.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { inspect } from "node:util";

import { Message } from "../dist/core/message.js";
import { messagesIn } from "../dist/core/records.js";
import { StoredMessage } from "../dist/gen/reput/common/v1/message.js";
import { PullResponse } from "../dist/gen/reput/indexer/v1/queue_service.js";

const { accepted, refused } = JSON.parse(readFileSync(new URL("../../../tests/clients/records.json", import.meta.url)));

const LONGS = ["queueOffset", "physicalOffset", "bornTimeMs", "storeTimeMs", "preparedTransactionOffset"];
const bytes = (text) => Buffer.from(text, "hex");
const answer = ({ records, record_count: recordCount }) =>
  // as from the wire
  PullResponse.decode(PullResponse.encode(PullResponse.fromPartial({ records: bytes(records), recordCount })).finish());

/** The message that the server makes of a record. */
function expectedOf(fields) {
  const host = ({ address, port }) => ({ address: bytes(address), port });
  const longs = Object.fromEntries(LONGS.map((name) => [name, Number(fields[name])]));
  const bodies = { body: bytes(fields.body), rawProperties: bytes(fields.rawProperties) };
  return StoredMessage.fromPartial({
    ...fields, ...longs, ...bodies, bornHost: host(fields.bornHost), storeHost: host(fields.storeHost),
  });
}

test("the messages of records are the server's messages", () => {
  for (const one of accepted) {
    const found = messagesIn(answer(one));
    assert.equal(found.length, one.messages.length);
    for (const [index, message] of found.entries()) {
      const expected = expectedOf(one.messages[index]);
      const same = new Message(expected);
      assert.ok(message instanceof Message);
      for (const name of Object.keys(expected)) assert.deepEqual(message[name], expected[name], `${one.name}: ${name}`);
      assert.deepEqual(message.toJSON(), expected);
      for (const name of ["tag", "keys", "uniqueId", "bornTime", "storeTime"]) {
        assert.deepEqual(message[name], same[name], `${one.name}: ${name}`);
      }
      assert.equal(JSON.stringify(message), JSON.stringify(message.toJSON()));
      assert.match(inspect(message), /offsetMessageId/);
    }
  }
});

test("answers that are not sound are refused", () => {
  for (const one of refused) {
    assert.throws(
      () => messagesIn(answer(one)),
      (error) => error.code === "INTERNAL" && /the server's answer makes no sense: record \d+ of/.test(error.message),
      one.name,
    );
  }
});

test("changed bytes are refused or decoded, and nothing else happens", () => {
  const all = accepted.at(-1);
  for (let round = 0; round < 3_000; round++) {
    let records = bytes(all.records);
    if (round % 2 === 0) records = records.subarray(0, Math.floor(Math.random() * records.length));
    for (let change = 0; change <= round % 4; change++) {
      if (records.length > 0) records[Math.floor(Math.random() * records.length)] = Math.floor(Math.random() * 256);
    }
    let found;
    try {
      found = messagesIn({ messages: [], records, recordCount: all.record_count });
    } catch (error) {
      assert.equal(error.code, "INTERNAL");
      continue;
    }
    assert.equal(found.length, all.record_count);
    for (const message of found) {
      assert.ok(Number.isSafeInteger(message.queueOffset) && Number.isSafeInteger(message.physicalOffset));
      try {
        message.toJSON();
      } catch (error) {
        assert.ok(error instanceof RangeError); // a time beyond 2^53
      }
    }
  }
});

test("an offset beyond 2^53 is an error, and so is a time when it is read", () => {
  const [one] = accepted;
  const changed = (at, high) => {
    const records = bytes(one.records);
    records.writeInt32BE(high, at);
    return messagesIn({ messages: [], records, recordCount: 1 })[0];
  };
  for (const at of [20, 28]) {
    for (const high of [2 ** 21, -(2 ** 21) - 1, 2 ** 31 - 1]) assert.throws(() => changed(at, high), /beyond 2\^53/);
    assert.ok(changed(at, 2 ** 21 - 1));
  }
  const message = changed(40, 2 ** 21);
  assert.equal(message.queueOffset, 7);
  assert.throws(() => message.bornTimeMs, RangeError);
});

test("a property may have any name", () => {
  const [record] = accepted;
  const name = Buffer.from("TAGS\x01TagA\x02KEYS\x01order-1001\x02");
  const at = bytes(record.records).indexOf(name);
  const records = bytes(record.records);
  records.write("__proto__\x01polluted\x02a\x01bcde\x02".padEnd(name.length, "z"), at);
  const [message] = messagesIn({ messages: [], records, recordCount: 1 });
  assert.equal({}.polluted, undefined);
  assert.equal(Object.getPrototypeOf(message.properties), Object.prototype);
  assert.deepEqual(Object.keys(message.properties), ["__proto__", "a"]);
});

test("an older server answers with messages", () => {
  const messages = [StoredMessage.fromPartial({ queueOffset: 7 })];
  const [message] = messagesIn({ messages, records: Buffer.alloc(0), recordCount: 0 });
  assert.equal(message.queueOffset, 7);
});
