// SPDX-License-Identifier: Apache-2.0
// The consumer over simulated channels: its start, its messages, and how streams continue.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { Consumer } from "../dist/consumer.js";
import { ReputError } from "../dist/core/errors.js";
import { RetryPolicy } from "../dist/core/retry.js";
import { StoredMessage } from "../dist/gen/reput/common/v1/message.js";
import { LINE_CUT, until } from "./support.mjs";

/** A store with a topic of two queues with the entries 10 to 19, of which the group has committed 15 in queue 1. */
class Line {
  settings = { timeoutMs: 1000, retry: new RetryPolicy({ retries: 1, delayMinMs: 1, delayMaxMs: 1 }) };
  streams = [];
  commits = [];
  failures = [];

  async run(method, request) {
    const failure = this.failures.shift();
    if (failure !== undefined) throw failure;
    const name = method.path.split("/")[2];
    return this[name](request);
  }

  ListQueues() {
    const queues = [0, 1].map((queueId) => ({ topic: "t", queueId, minQueueOffset: 10, maxQueueOffset: 20 }));
    return { queues, nextPageToken: "" };
  }

  GetTopic() {
    return { topic: { readQueueCount: 2 } };
  }

  GetConsumerOffset({ queueId }) {
    if (queueId === 1) return { offset: { queueOffset: 15 } };
    throw new ReputError("none", { code: "NOT_FOUND", reason: "CONSUMER_OFFSET_NOT_FOUND" });
  }

  GetOffsetByTime({ time }) {
    return { queueOffset: time.getTime() };
  }

  CommitConsumerOffset({ group, offsets }) {
    this.commits.push([group, offsets.map(({ queueId, queueOffset }) => [queueId, queueOffset])]);
  }

  openAnswers(_, { queueId, queueOffset }, gate, listener) {
    const stream = { queueId, queueOffset, isCancelled: false, heldCount: 0, ...listener };
    stream.cancel = () => {
      stream.isCancelled = true;
    };
    stream.answer = (queueOffsets, nextQueueOffset) => {
      const messages = queueOffsets.map((offset) => StoredMessage.fromPartial({ queueId, queueOffset: offset }));
      stream.heldCount++;
      gate.enter(() => {
        stream.heldCount--;
        stream.onAnswer({ messages, records: Buffer.alloc(0), recordCount: 0, nextQueueOffset });
      });
    };
    this.streams.push(stream);
    return stream;
  }

  /** The streams that are open, as [queue id, queue offset]. */
  get open() {
    return this.streams.filter((stream) => !stream.isCancelled).map(({ queueId, queueOffset }) => [queueId, queueOffset]);
  }

  consumer(options = {}) {
    return new Consumer(this, "t", options, () => {});
  }
}

for (const [options, begins] of [
  [{}, [[0, 10], [1, 10]]],
  [{ start: "latest" }, [[0, 20], [1, 20]]],
  [{ start: new Date(12) }, [[0, 12], [1, 12]]],
  [{ start: new Date(13), queueIds: [1] }, [[1, 13]]],
  [{ group: "g" }, [[0, 10], [1, 15]]],
  [{ queueIds: [7] }, [[7, 0]]],
]) {
  test(`it begins where it should: ${JSON.stringify(options)}`, async () => {
    const line = new Line();
    const consumer = line.consumer(options);
    assert.equal(await consumer.poll(5), undefined);
    await consumer.positions();
    assert.deepEqual(line.open, begins);
    assert.deepEqual([...(await consumer.positions())], begins);
    await consumer.close();
    assert.deepEqual(line.open, []);
  });
}

test("a place that is none is refused", () => {
  for (const start of ["middle", NaN, new Date(NaN)]) assert.throws(() => new Line().consumer({ start }), RangeError);
});

test("messages are handed out in order, and a commit stores what is behind them", async () => {
  const line = new Line();
  const consumer = line.consumer({ group: "g" });
  await consumer.positions();
  line.streams[0].answer([10, 12], 14);
  line.streams[1].answer([15], 16);
  const seen = [];
  for await (const message of consumer) {
    seen.push([message.queueId, message.queueOffset]);
    await consumer.commit();
    if (seen.length === 3) break;
  }
  assert.deepEqual(seen, [[0, 10], [0, 12], [1, 15]]);
  assert.deepEqual(line.commits, [
    ["g", [[0, 11], [1, 15]]],
    ["g", [[0, 14]]],
    ["g", [[1, 16]]],
  ]);
  await consumer.commit();
  assert.equal(line.commits.length, 3);
  await consumer.close();
});

test("at most 4 answers of a queue wait, and taking one lets the next in", async () => {
  const line = new Line();
  const consumer = line.consumer({ queueIds: [0] });
  await consumer.positions();
  const [stream] = line.streams;
  for (const offset of [10, 11, 12, 13]) stream.answer([offset], offset + 1);
  assert.equal(stream.heldCount, 1); // gRPC reads no further
  for (const offset of [10, 11, 12, 13]) assert.equal((await consumer.poll()).queueOffset, offset);
  assert.equal(stream.heldCount, 0);
  await consumer.close();
});

test("a stream that ends is opened again where it was, as often as may be since its last answer", async () => {
  const line = new Line();
  const consumer = line.consumer({ queueIds: [0] });
  await consumer.positions();
  for (const attempt of [0, 1, 2]) {
    line.streams[attempt].answer([10 + attempt], 11 + attempt);
    line.streams[attempt].onEnd(LINE_CUT);
    await until(() => line.streams.length === attempt + 2);
    assert.equal(line.streams[attempt + 1].queueOffset, 11 + attempt);
  }
  line.streams[3].onEnd(LINE_CUT); // the second time without an answer: the only retry is used up
  for (const offset of [10, 11, 12]) assert.equal((await consumer.poll()).queueOffset, offset);
  await assert.rejects(consumer.poll(), { code: "UNAVAILABLE" });
  assert.equal(line.streams[4].queueOffset, 13); // the next call continues
  line.streams[4].answer([13], 14);
  assert.equal((await consumer.poll()).queueOffset, 13);
  await consumer.close();
});

test("seeking drops what was delivered from elsewhere", async () => {
  const line = new Line();
  const consumer = line.consumer({ queueIds: [0] });
  await consumer.positions();
  line.streams[0].answer([10, 11], 12);
  line.streams[0].answer([12], 13);
  assert.equal((await consumer.poll()).queueOffset, 10);
  await consumer.seek(0, 17);
  line.streams[0].answer([13], 14);
  assert.deepEqual(line.open, [[0, 17]]);
  line.streams[1].answer([17], 18);
  assert.equal((await consumer.poll()).queueOffset, 17);
  await assert.rejects(consumer.seek(5, 0), RangeError);
  await assert.rejects(consumer.seek(0, -1), RangeError);
  await consumer.close();
});

test("a failure to begin is told, and the next call tries again", async () => {
  const line = new Line();
  line.failures.push(new ReputError("no", { code: "NOT_FOUND", reason: "TOPIC_NOT_FOUND" }));
  const consumer = line.consumer();
  await assert.rejects(consumer.poll(), { reason: "TOPIC_NOT_FOUND" });
  await consumer.positions();
  assert.equal(line.open.length, 2);
  await consumer.close();
});

test("closing ends those who wait, also while it begins", async () => {
  const line = new Line();
  const consumer = line.consumer();
  await consumer.positions();
  const loop = (async () => {
    for await (const message of consumer) assert.fail(`${message.queueOffset} came`);
  })();
  await pause(2);
  await consumer.close();
  await loop;
  assert.equal(await consumer.poll(), undefined);

  line.ListQueues = () => new Promise(() => {});
  const beginning = line.consumer();
  const polled = beginning.poll();
  await beginning.close();
  assert.equal(await polled, undefined);
});

test("without a group there is nothing to commit to", async () => {
  await assert.rejects(new Line().consumer().commit(), RangeError);
});
