// SPDX-License-Identifier: Apache-2.0
// The producer over simulated channels: when it writes, when it opens a stream anew, and how it ends.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { ReputError } from "../dist/core/errors.js";
import { producerSettings } from "../dist/core/options.js";
import { RetryPolicy } from "../dist/core/retry.js";
import { AppendStreamRequest } from "../dist/gen/reput/commitlog/v1/append_service.js";
import { Producer } from "../dist/producer.js";
import { LINE_CUT, refused, storedOutcome, until } from "./support.mjs";

/** Channels whose streams the test answers. */
class Line {
  settings = { timeoutMs: 100 };
  streams = [];
  moved = [];
  closedCount = 0;

  openAppends(listener) {
    const stream = { target: "a:1", requests: [], isCancelled: false, ...listener };
    stream.write = (request, onWritten) => {
      stream.requests.push(AppendStreamRequest.decode(request).messages.map((message) => message.body.toString()));
      stream.written = onWritten;
      if (!this.isSlow) setImmediate(onWritten);
    };
    stream.cancel = () => {
      stream.isCancelled = true;
    };
    stream.store = (count) => stream.onAnswer({ outcomes: [storedOutcome(count)] });
    this.streams.push(stream);
    return stream;
  }

  onMoved(stream, error) {
    this.moved.push(error.reason);
  }

  producer(options = {}) {
    const retry = new RetryPolicy({ retries: 2, delayMinMs: 2, delayMaxMs: 2 });
    return new Producer(this, producerSettings({ lingerMs: 1, ...options }, retry), () => this.closedCount++);
  }
}

const send = (producer, ...bodies) => bodies.map((body) => producer.send({ topic: "t", body, bornTimeMs: 1 }));

test("messages travel together, and each promise has its own result", async () => {
  const line = new Line();
  const producer = line.producer({ lingerMs: 1000 });
  const sent = send(producer, "a", "b");
  const flushed = producer.flush();
  assert.deepEqual(line.streams[0].requests, [["a", "b"]]);
  line.streams[0].store(2);
  const results = await Promise.all(sent);
  assert.deepEqual(results.map((result) => result.queueOffset), [0, 1]);
  assert.match(results[0].uniqueId, /^[0-9A-F]{32}$/);
  await flushed;
  await producer.close();
  assert.equal(line.streams[0].isCancelled, true);
  assert.equal(line.closedCount, 1);
});

test("callers that wait share a batch without lingering, and `catch` alone lingers", async () => {
  const line = new Line();
  const producer = line.producer({ lingerMs: 1_000_000 });
  const [dropped] = send(producer, "x");
  dropped.catch(() => {});
  await pause(5);
  assert.equal(line.streams.length, 0);
  const call = async (body) => (await producer.send({ topic: "t", body })).queueOffset;
  const called = ["a", "b"].map(call);
  const all = Promise.all([...send(producer, "c"), ...called]);
  await until(() => line.streams.length === 1);
  assert.deepEqual(line.streams[0].requests.map((bodies) => bodies.toSorted()), [["a", "b", "c", "x"]]);
  line.streams[0].store(4);
  assert.equal((await all).length, 3);
  assert.equal((await dropped).queueOffset, 0);
  assert.equal(dropped.then(() => 0).constructor, Promise);
  await producer.close();
});

test("one request at a time is given to the connection, and none before the linger time is over", async () => {
  const line = new Line();
  line.isSlow = true;
  const producer = line.producer({ lingerMs: 20 });
  const sent = send(producer, "a");
  assert.equal(line.streams.length, 0);
  await until(() => line.streams.length === 1);
  const [stream] = line.streams;
  sent.push(...send(producer, "b"));
  const flushed = producer.flush();
  assert.deepEqual(stream.requests, [["a"]]);
  stream.written();
  assert.deepEqual(stream.requests, [["a"], ["b"]]);
  stream.store(1);
  stream.store(1);
  await Promise.all([...sent, flushed]);
  await producer.close();
});

test("a full window makes `ready` wait, and messages outside go when there is room", async () => {
  const line = new Line();
  const producer = line.producer({ windowBytes: 60, uniqueIds: false });
  await producer.ready;
  const sent = send(producer, "a".repeat(50), "b", "c");
  let isReady = false;
  const ready = producer.ready.then(() => {
    isReady = true;
  });
  await pause(5);
  assert.deepEqual(line.streams[0].requests, [["a".repeat(50)]]);
  assert.equal(isReady, false);
  line.streams[0].store(1);
  await ready;
  await until(() => line.streams[0].requests.length === 2);
  line.streams[0].store(2);
  await Promise.all(sent);
  await producer.close();
});

test("while it flushes, nothing lingers, not even what waited outside of the window", async () => {
  const line = new Line();
  const producer = line.producer({ windowBytes: 60, lingerMs: 60_000, uniqueIds: false });
  const sent = send(producer, "a".repeat(50), "b", "c");
  const flushed = producer.flush();
  line.streams[0].store(1);
  await until(() => line.streams[0].requests.length === 2);
  line.streams[0].store(2);
  await Promise.all([...sent, flushed]);
  await producer.close();
});

test("what has no outcome when the stream breaks is sent again over another one, before younger messages", async () => {
  const line = new Line();
  const producer = line.producer();
  const sent = send(producer, "a");
  const flushed = producer.flush();
  line.streams[0].onEnd(LINE_CUT);
  sent.push(...send(producer, "b"));
  line.streams[0].store(1); // on a stream that is over: the answer is ignored
  await until(() => line.streams[1]?.requests.length === 1);
  line.streams[1].store(1); // until then a single batch is in flight
  await until(() => line.streams[1].requests.length === 2);
  assert.deepEqual(line.streams[1].requests, [["a"], ["b"]]);
  line.streams[1].store(1);
  await Promise.all([...sent, flushed]);
  await producer.close();
});

test("a stream that ends while nothing is to be sent is opened again when something is", async () => {
  const line = new Line();
  const producer = line.producer();
  const first = send(producer, "a");
  const flushed = producer.flush();
  line.streams[0].store(1);
  await Promise.all([...first, flushed]);
  line.streams[0].onEnd(LINE_CUT);
  await pause(5);
  assert.equal(line.streams.length, 1);
  const second = send(producer, "b");
  await until(() => line.streams.length === 2);
  line.streams[1].store(1);
  await Promise.all(second);
  await producer.close();
});

test("appends follow the leader: the stream ends, and the batch goes again over another one", async () => {
  const line = new Line();
  const producer = line.producer();
  const sent = send(producer, "a");
  const flushed = producer.flush();
  line.streams[0].onAnswer({ outcomes: [{ error: refused("UNAVAILABLE", "NOT_LEADER") }] });
  assert.equal(line.streams[0].isCancelled, true);
  assert.deepEqual(line.moved, ["NOT_LEADER"]);
  await until(() => line.streams.length === 2);
  line.streams[1].store(1);
  await Promise.all([...sent, flushed]);
  await producer.close();
});

test("an answer that can't be right breaks the stream, and its messages are unknown", async () => {
  const line = new Line();
  const producer = line.producer();
  const [sent] = send(producer, "a");
  const flushed = producer.flush();
  line.streams[0].store(2);
  await assert.rejects(sent, (error) => error.isOutcomeUnknown && /makes no sense/.test(error.message));
  assert.equal(line.streams[0].isCancelled, true);
  await flushed;
  await producer.close();
});

test("what breaks a rule is refused by itself, and nothing is sent", async () => {
  const line = new Line();
  const producer = line.producer();
  await assert.rejects(producer.send({ topic: "t", body: "", keys: [""] }), RangeError);
  await producer.close();
  assert.equal(line.streams.length, 0);
});

test("closing waits at most for the time-out; what has no outcome by then fails, and so does `send`", async () => {
  const line = new Line();
  const producer = line.producer({ windowBytes: 60, uniqueIds: false });
  const sent = send(producer, "a".repeat(50), "b");
  const outcomes = Promise.allSettled(sent);
  const closing = producer.close();
  assert.equal(producer.close(), closing);
  await assert.rejects(producer.send({ topic: "t", body: "" }), { code: "CANCELLED" });
  await closing;
  const errors = (await outcomes).map((outcome) => outcome.reason);
  assert.ok(errors.every((error) => error instanceof ReputError && error.code === "CANCELLED"));
  assert.deepEqual(errors.map((error) => error.isOutcomeUnknown), [true, false]);
  await producer.ready;
});
