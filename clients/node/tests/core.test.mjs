// SPDX-License-Identifier: Apache-2.0
// The other pure parts: routes, retries, errors, options, encoding, unique ids, positions, the gate.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Metadata, status } from "@grpc/grpc-js";
import { encode, propertyString } from "../dist/core/encode.js";
import { fromCall, fromStatus, ReputError } from "../dist/core/errors.js";
import { Gate } from "../dist/core/gate.js";
import { Message, toDate } from "../dist/core/message.js";
import { clientSettings, isLocal, producerSettings } from "../dist/core/options.js";
import { Positions } from "../dist/core/positions.js";
import { RetryPolicy } from "../dist/core/retry.js";
import { Route } from "../dist/core/route.js";
import { UniqueIds } from "../dist/core/unique-ids.js";
import { Status } from "../dist/gen/google/rpc/status.js";
import { AppendStreamRequest } from "../dist/gen/reput/commitlog/v1/append_service.js";
import { StoredMessage } from "../dist/gen/reput/common/v1/message.js";
import { LINE_CUT, refused } from "./support.mjs";

const unavailable = (reason, metadata) => new ReputError("no", { code: "UNAVAILABLE", reason, metadata });

test("the leader is followed, also out of the list, and from there back to its first", () => {
  const route = new Route(["a:1", "b:1"]);
  route.onFailure("a:1", unavailable("NOT_LEADER", { leader: "c:1" }));
  assert.equal(route.target, "c:1");
  route.onFailure("a:1", unavailable("NOT_LEADER", { leader: "b:1" })); // of a call that began before
  assert.equal(route.target, "c:1");
  route.onFailure("c:1", unavailable("NOT_LEADER"));
  assert.equal(route.target, "a:1");
});

for (const error of [
  LINE_CUT,
  new ReputError("silent", { code: "DEADLINE_EXCEEDED" }),
  ...["NOT_LEADER", "STOPPING", "LEASE_OVER", "DEPENDENCY_UNAVAILABLE"].map((reason) => unavailable(reason)),
]) {
  test(`the next of the list takes over, in turn: ${error.message}`, () => {
    const route = new Route(["a:1", "b:1", "c:1"]);
    for (const target of ["a:1", "b:1", "c:1"]) {
      assert.equal(route.target, target);
      route.onFailure(target, error);
    }
    assert.equal(route.target, "a:1");
    const alone = new Route(["a:1"]);
    alone.onFailure("a:1", error);
    assert.equal(alone.target, "a:1");
  });
}

test("a service that answers is where calls belong", () => {
  const route = new Route(["a:1", "b:1"]);
  for (const error of [unavailable("RECOVERING"), unavailable("NOT_ENOUGH_REPLICAS"), new ReputError("bug")]) {
    route.onFailure("a:1", error);
  }
  assert.equal(route.target, "a:1");
});

test("delays grow from a half to all of delayMin * 2**n, up to delayMax", () => {
  for (const [chance, delays] of [
    [() => 0, [50, 100, 200, 400, 500, 500]],
    [() => 0.999999, [25, 50, 100, 200, 250, 250]],
  ]) {
    const retry = new RetryPolicy({ retries: 6, delayMaxMs: 500 }, chance);
    assert.deepEqual(delays.map((_, attempt) => Math.round(retry.delayMs(attempt, LINE_CUT))), delays);
    assert.equal(retry.delayMs(6, LINE_CUT), undefined);
  }
});

test("only what was not done, or may be repeated, is tried again", () => {
  const retry = new RetryPolicy();
  for (const reason of [
    "STORE_FULL", "QUEUE_OFFSETS_UNKNOWN", "WINDOW_FULL", "RECOVERING", "STOPPING", "DEPENDENCY_UNAVAILABLE",
    "NOT_LEADER", "NOT_ENOUGH_REPLICAS", "STORE_REPLACED", "QUOTA_EXCEEDED",
  ]) {
    assert.notEqual(retry.delayMs(0, new ReputError("no", { reason }), false), undefined);
  }
  assert.notEqual(retry.delayMs(0, LINE_CUT), undefined);
  assert.equal(retry.delayMs(0, LINE_CUT, false), undefined);
  for (const code of ["INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "CANCELLED", "INTERNAL"]) {
    assert.equal(retry.delayMs(0, new ReputError("no", { code })), undefined);
  }
  assert.equal(new RetryPolicy({ retries: 0 }).delayMs(0, LINE_CUT), undefined);
});

test("a server's delay counts if it is longer, and what would begin behind the time-out is not tried", () => {
  const retry = new RetryPolicy();
  const error = new ReputError("full", { reason: "STORE_FULL", retryAfterMs: 700 });
  assert.equal(retry.delayMs(0, error), 700);
  assert.equal(retry.delayWithinMs(701, 0, error), 700);
  assert.equal(retry.delayWithinMs(700, 0, error), undefined);
});

test("retry options that can't be meant are refused", () => {
  for (const options of [{ retries: -1 }, { retries: 1.5 }, { delayMinMs: -1 }, { delayMaxMs: NaN }]) {
    assert.throws(() => new RetryPolicy(options), RangeError);
  }
});

test("an error has all that the server said", () => {
  const metadata = { field: "messages[0].queue_id", value: "99", limit: "4" };
  const error = fromStatus(
    refused("INVALID_ARGUMENT", "QUEUE_OUT_OF_RANGE", { metadata, field: metadata.field, retryAfterMs: 1500 }),
  );
  const { code, reason, field, value, limit, fields, retryAfterMs, message, isOutcomeUnknown } = error;
  assert.deepEqual(
    { code, reason, field, value, limit, fields, retryAfterMs, message, isOutcomeUnknown },
    {
      code: "INVALID_ARGUMENT",
      reason: "QUEUE_OUT_OF_RANGE",
      ...metadata,
      fields: [metadata.field],
      retryAfterMs: 1500,
      message: "QUEUE_OUT_OF_RANGE: no",
      isOutcomeUnknown: false,
    },
  );
});

test("an error is read from the trailing metadata, and without details the plain code tells", () => {
  const metadata = new Metadata();
  const ended = { code: status.NOT_FOUND, details: "plain", metadata };
  assert.equal(fromCall(ended).message, "NOT_FOUND: plain");
  metadata.set("grpc-status-details-bin", Buffer.from([255]));
  assert.equal(fromCall(ended).message, "NOT_FOUND: plain");
  const bytes = Buffer.from(Status.encode(refused("NOT_FOUND", "TOPIC_NOT_FOUND")).finish());
  metadata.set("grpc-status-details-bin", bytes);
  assert.equal(fromCall(ended).reason, "TOPIC_NOT_FOUND");
  assert.equal(fromCall({ code: 77, details: "", metadata: new Metadata() }).code, "UNKNOWN");
});

test("a connection that broke is UNAVAILABLE, whatever gRPC calls it", () => {
  const details = "Received RST_STREAM with code 2 triggered by internal client error: write EPIPE";
  const code = (text) => fromCall({ code: status.INTERNAL, details: text, metadata: new Metadata() }).code;
  assert.equal(code(details), "UNAVAILABLE");
  assert.equal(code("Received RST_STREAM with code 2 (Internal server error)"), "INTERNAL");
});

const noFile = () => assert.fail("no file is to be read");

test("what is given counts before the environment, and that before the defaults", () => {
  const environment = { REPUT_CLIENT_COMMITLOG_TARGET: "e:1, f:2,", REPUT_CLIENT_TOKEN: "t", REPUT_CLIENT_CA_FILE: "ca" };
  const settings = clientSettings({ commitlog: "g:3", keyFile: "k" }, environment, noFile);
  assert.deepEqual(settings.targets, { commitlog: ["g:3"], indexer: ["127.0.0.1:7102"] });
  assert.deepEqual([settings.token, settings.caFile, settings.keyFile, settings.timeoutMs], ["t", "ca", "k", 30_000]);
  assert.deepEqual(clientSettings({}, environment, noFile).targets.commitlog, ["e:1", "f:2"]);
  assert.equal(clientSettings({}, {}, noFile).targets.commitlog[0], "127.0.0.1:7101");
  const withStore = { ...environment, REPUT_CLIENT_STORE_TARGET: "door:1" };
  assert.deepEqual(clientSettings({}, withStore, noFile).targets, { commitlog: ["e:1", "f:2"], indexer: ["door:1"] });
  const door = clientSettings({ store: "a:1,b:1", indexer: "i:2" }, withStore, noFile);
  assert.deepEqual(door.targets, { commitlog: ["a:1", "b:1"], indexer: ["i:2"] });
});

test("a token comes from its file only if none is given", () => {
  const environment = { REPUT_CLIENT_TOKEN_FILE: "file" };
  assert.equal(clientSettings({}, environment, (file) => ` word-of-${file} other\n`).token, "word-of-file");
  assert.equal(clientSettings({ token: "given" }, environment, noFile).token, "given");
  assert.equal(clientSettings({}, { ...environment, REPUT_CLIENT_TOKEN: "t" }, noFile).token, "t");
});

test("options that can't be meant are refused", () => {
  for (const options of [
    { timeoutMs: 0 },
    { timeoutMs: Infinity },
    { commitlog: "no-port" },
    { indexer: "a:1,b" },
    { certificateFile: "c", keyFile: "k" },
    { retry: { retries: -1 } },
  ]) {
    assert.throws(() => clientSettings(options, {}, noFile), RangeError);
  }
});

test("a producer's options have defaults and bounds", () => {
  const retry = new RetryPolicy();
  const settings = producerSettings({}, retry);
  assert.deepEqual(
    [settings.lingerMs, settings.batchSizeBytes, settings.windowBytes, settings.durability, settings.uniqueIds],
    [5, 512 << 10, 8 << 20, 0, true],
  );
  assert.equal(settings.retry, retry);
  assert.equal(producerSettings({ windowBytes: 1000 }, retry).batchSizeBytes, 1000);
  assert.equal(producerSettings({ durability: "REPLICATED" }, retry).durability, 3);
  for (const options of [
    { lingerMs: -1 },
    { lingerMs: NaN },
    { batchSizeBytes: 0 },
    { batchSizeBytes: (8 << 20) + 1, windowBytes: 64 << 20 },
    { batchSizeBytes: 2000, windowBytes: 1000 },
    { windowBytes: 0 },
    { durability: "SAFE" },
  ]) {
    assert.throws(() => producerSettings(options, retry), RangeError, JSON.stringify(options));
  }
});

test("addresses of this machine are told from others", () => {
  for (const target of ["localhost:1", "127.0.0.1:1", "127.1.2.3:1", "[::1]:1", "unix:/x"]) assert.ok(isLocal(target));
  for (const target of ["10.0.0.1:1", "store:1", "localhost.example.org:1"]) assert.ok(!isLocal(target));
});

const decoded = (...chunks) => AppendStreamRequest.decode(Buffer.concat(chunks)).messages;

test("chunks one behind the other are a request, as the stubs read it", () => {
  const message = { topic: "orders", body: "é", queueId: 3, tag: "created", keys: ["k1", "k2"], flag: -5, bornTimeMs: 7 };
  const [first, second] = decoded(encode(message, "ID", 0), encode({ topic: "t", body: new Uint8Array(300) }, "", 2 ** 41));
  assert.deepEqual(
    [first.topic, first.body.toString(), first.queueId, first.flag, first.bornTimeMs, first.propertyString.toString()],
    ["orders", "é", 3, -5, 7, "UNIQ_KEY\x01ID\x02TAGS\x01created\x02KEYS\x01k1 k2\x02"],
  );
  assert.deepEqual([second.queueId, second.flag, second.bornTimeMs], [undefined, 0, 2 ** 41]);
  assert.deepEqual([second.body.length, second.propertyString.length], [300, 0]);
});

test("numbers and sizes of any length are as the stubs read them", () => {
  for (const number of [0, 1, 127, 128, 16_383, 16_384, 2 ** 31 - 1]) {
    const message = { topic: "t", body: Buffer.alloc(number % 70_000), queueId: number, flag: -number, bornTimeMs: number };
    const [read] = decoded(encode(message, "", 1));
    assert.deepEqual([read.queueId, read.flag + number, read.bornTimeMs], [number, 0, number]);
    assert.equal(read.body.length, number % 70_000);
  }
  assert.equal(decoded(encode({ topic: "t", body: "", flag: -(2 ** 31) }, "", 253_402_300_799_999))[0].bornTimeMs, 253_402_300_799_999);
});

test("fields of a message stand before properties of the same name", () => {
  const message = { topic: "t", body: "", properties: { a: "1", TAGS: "x" }, tag: "y", shardingKey: "s", delayLevel: 3 };
  assert.equal(propertyString(message, ""), "a\x011\x02TAGS\x01y\x02__SHARDINGKEY\x01s\x02DELAY\x013\x02");
});

for (const [wrong, words] of [
  [{ body: Buffer.alloc(65 << 20) }, /the body has 68157440 bytes, and this client sends 6710\d{4} at most/],
  [{ keys: ["two words"] }, /key/],
  [{ keys: [""] }, /key/],
  [{ keys: "text" }, /keys/],
  [{ properties: { "": "x" } }, /property/],
  [{ properties: { "a\x01b": "x" } }, /property/],
  [{ properties: { "a\x02b": "x" } }, /property/],
  [{ properties: { x: "" } }, /property/],
  [{ properties: { x: "a\x02b" } }, /property/],
  [{ properties: { x: 5 } }, /property/],
  [{ properties: { x: "\ud800" } }, /property/],
  [{ tag: "" }, /TAGS/],
  [{ shardingKey: "" }, /__SHARDINGKEY/],
  [{ delayLevel: -1 }, /delay/],
  [{ delayLevel: 1.5 }, /delay/],
  [{ queueId: -1 }, /queueId/],
  [{ queueId: 2 ** 31 }, /queueId/],
  [{ flag: 2 ** 31 }, /flag/],
  [{ bornTimeMs: -1 }, /bornTimeMs/],
  [{ topic: undefined }, /topic/],
  [{ topic: "\udc00" }, /topic/],
  [{ body: undefined }, /body/],
  [{ body: [1] }, /body/],
]) {
  test(`what can't be meant is refused: ${JSON.stringify(wrong)}`, () => {
    assert.throws(() => encode({ topic: "t", body: "", ...wrong }, "", 1), words);
  });
}

test("a value of a property may have 0x01", () => {
  assert.equal(propertyString({ topic: "t", body: "", properties: { x: "a\x01b" } }, ""), "x\x01a\x01b\x02");
});

test("unique ids have RocketMQ's form: prefix, time in the month, counter", () => {
  const ids = new UniqueIds(Buffer.from("0a0000010102a1b2c3d4", "hex"));
  const start = new Date(2026, 10, 1).getTime();
  assert.equal(ids.next(start + 0xabc), "0A0000010102A1B2C3D400000ABC0001");
  assert.equal(ids.next(start + 0xabc), "0A0000010102A1B2C3D400000ABC0002");
  assert.equal(ids.next(new Date(2026, 11, 1).getTime() + 1), "0A0000010102A1B2C3D4000000010003");
  assert.equal(ids.next(start), "0A0000010102A1B2C3D4000000000004"); // the clock was set back
});

test("unique ids differ, also between makers", () => {
  const makers = [new UniqueIds(), new UniqueIds()];
  const made = makers.flatMap((ids) => Array.from({ length: 20_000 }, () => ids.next(Date.now())));
  assert.equal(new Set(made).size, 40_000);
  assert.ok(made.every((id) => /^[0-9A-F]{32}$/.test(id)));
});

const stored = (queueOffset, fields = {}) => StoredMessage.fromPartial({ queueOffset, ...fields });

test("positions are behind what was handed out, and at an answer's end behind what it stepped over", () => {
  const positions = new Positions();
  positions.move(1, 5);
  positions.add(1, [stored(5), stored(7)], 10);
  assert.deepEqual([...positions.all()], [[1, 5]]);
  assert.equal(positions.pop().queueOffset, 5);
  assert.deepEqual([...positions.all()], [[1, 6]]);
  assert.equal(positions.pop().queueOffset, 7);
  assert.equal(positions.pop(), undefined);
  assert.deepEqual([...positions.all()], [[1, 10]]);
  positions.add(0, [], 3);
  assert.deepEqual([...positions.all()], [[0, 3], [1, 10]]);
});

test("positions that moved since a commit are uncommitted", () => {
  const positions = new Positions();
  positions.move(0, 1);
  positions.move(1, 2);
  positions.committed(positions.uncommitted());
  assert.equal(positions.uncommitted().size, 0);
  positions.move(1, 3);
  assert.deepEqual([...positions.uncommitted()], [[1, 3]]);
});

test("moving a queue drops what waits of it, and of no other", () => {
  const positions = new Positions();
  positions.add(1, [stored(5)], 6);
  positions.move(0, 9);
  assert.equal(positions.pop().queueOffset, 5);
  positions.add(1, [stored(6)], 7);
  positions.move(1, 2);
  assert.equal(positions.pop(), undefined);
  assert.deepEqual([...positions.all()], [[0, 9], [1, 2]]);
});

test("a gate holds so many answers, the one that it keeps among them", () => {
  const gate = new Gate(4);
  const letIn = [];
  for (const name of "abc") gate.enter(() => letIn.push(name));
  assert.deepEqual(letIn, ["a", "b", "c"]);
  gate.enter(() => letIn.push("d"));
  assert.equal(letIn.length, 3);
  gate.leave();
  assert.deepEqual(letIn, ["a", "b", "c", "d"]);
  gate.leave();
  gate.enter(() => letIn.push("e"));
  assert.equal(letIn.length, 5);
});

test("numbers that look like seconds, microseconds or nanoseconds are no times", () => {
  const nowMs = 1_795_844_647_000;
  for (const time of [nowMs, 0, -1, 1e11, 253_402_300_799_999]) assert.equal(toDate(time).getTime(), time);
  for (const slip of [nowMs / 1000, 1]) assert.throws(() => toDate(slip), /looks like seconds/);
  for (const slip of [nowMs * 1e3, nowMs * 1e6]) assert.throws(() => toDate(slip), /behind the year 9999/);
  assert.equal(toDate(new Date(5)).getTime(), 5);
});

test("a message has tag, keys, unique id and times", () => {
  const message = new Message(
    stored(1, { bornTimeMs: 5, storeTimeMs: 1000, properties: { TAGS: "t", KEYS: "a b", UNIQ_KEY: "U" } }),
  );
  assert.deepEqual([message.tag, message.keys, message.uniqueId], ["t", ["a", "b"], "U"]);
  assert.deepEqual([message.bornTime, message.storeTime], [new Date(5), new Date(1000)]);
  const odd = new Message(stored(1, { properties: { KEYS: "\t 東京\u3000支店  new\nline " } }));
  assert.deepEqual(odd.keys, ["\t", "東京\u3000支店", "new\nline"]);
  const bare = new Message(stored(1));
  assert.deepEqual([bare.tag, bare.keys, bare.uniqueId, bare.queueOffset], [undefined, [], undefined, 1]);
});
