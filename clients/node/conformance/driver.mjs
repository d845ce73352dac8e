// SPDX-License-Identifier: Apache-2.0
// The driver of ../../../tests/clients/README.md: reads a JSON object per line, and writes a line of JSON for each.

import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";
import { connect, ReputError } from "../dist/index.js";

let client = connect();
let sent;

const STEPS = {
  async connect({ store, commitlog, indexer, ca_file, certificate_file, key_file, token, timeout_s, retries }) {
    await client.close();
    client = connect({
      store,
      commitlog,
      indexer,
      caFile: ca_file,
      certificateFile: certificate_file,
      keyFile: key_file,
      token,
      timeoutMs: timeout_s && timeout_s * 1000,
      retry: { retries },
    });
    return {};
  },

  async send({ topic, body, tag, keys, properties, queue_id, sharding_key, unique_id, delay_level, durability, linger_ms }) {
    const producer = client.producer({ durability, lingerMs: linger_ms });
    try {
      const result = await producer.send({
        topic,
        body,
        tag,
        keys,
        properties,
        queueId: queue_id,
        shardingKey: sharding_key,
        uniqueId: unique_id,
        delayLevel: delay_level,
      });
      sent = result;
      return {
        queue_id: result.queueId,
        queue_offset: result.queueOffset,
        physical_offset: result.physicalOffset,
        store_time_ms: result.storeTimeMs,
        durability: result.durability,
        unique_id: result.uniqueId,
        offset_message_id: result.offsetMessageId,
      };
    } finally {
      await producer.close();
    }
  },

  async send_many(step) {
    const producer = client.producer({
      lingerMs: step.linger_ms,
      batchSizeBytes: step.batch_size_bytes,
      windowBytes: step.window_bytes,
      durability: step.durability,
      retry: step.retries === undefined ? undefined : { retries: step.retries },
    });
    let count = 0;
    let storedCount = 0;
    let lastQueueOffset = -1;
    const failed = [];
    const endMs = performance.now() + (step.seconds ?? 0) * 1000;
    const isOver = () => (step.seconds === undefined ? count >= step.count : performance.now() >= endMs);
    while (!isOver()) {
      await producer.ready;
      const index = count++;
      producer
        .send({
          topic: step.bad_topics?.[index] ?? step.topic,
          body: `${step.prefix}${index}`.padEnd(step.size_bytes ?? 0, "."),
          queueId: step.queue_id,
        })
        .then(
          (result) => {
            storedCount++;
            lastQueueOffset = Math.max(lastQueueOffset, result.queueOffset);
          },
          (error) => failed.push([index, error.reason || error.code || String(error)]),
        );
      if (step.pause_ms !== undefined) await pause(step.pause_ms);
    }
    await producer.flush();
    await producer.close();
    failed.sort(([a], [b]) => a - b);
    return { count, stored_count: storedCount, failed, last_queue_offset: lastQueueOffset };
  },

  async pull({ topic, queue_id, queue_offset, message_count_max, tags, wait_ms }) {
    const options = { messageCountMax: message_count_max, tags, waitMs: wait_ms };
    const result = await client.pull(topic, queue_id, queue_offset, options);
    return {
      status: result.status,
      bodies: bodiesOf(result.messages),
      next_queue_offset: result.nextQueueOffset,
      min_queue_offset: result.minQueueOffset,
      max_queue_offset: result.maxQueueOffset,
    };
  },

  async wait_indexed() {
    await client.query.waitIndexed(sent);
    return {};
  },

  async query_by_key({ topic, key, start_ms, end_ms }) {
    return { bodies: bodiesOf(await all(client.query.byKey(topic, key, { start: start_ms, end: end_ms }))) };
  },

  async query_by_keys({ topic, keys, start_ms, end_ms }) {
    const found = await all(client.query.byKeys(topic, keys, { start: start_ms, end: end_ms }));
    for (const { error } of found) if (error) throw error;
    return { keys: found.map(({ key }) => key), bodies: found.map(({ messages }) => bodiesOf(messages)) };
  },

  async query_by_time({ topic, queue_id, start_ms, end_ms }) {
    const options = { queueId: queue_id, start: start_ms, end: end_ms };
    return { bodies: bodiesOf(await all(client.query.byTime(topic, options))) };
  },

  async query_by_id({ id, topic }) {
    const message = await client.query.byId(id, { topic });
    return {
      topic: message.topic,
      queue_id: message.queueId,
      queue_offset: message.queueOffset,
      physical_offset: message.physicalOffset,
      body: message.body.toString(),
      tag: message.tag,
      keys: message.keys,
      properties: message.properties,
      unique_id: message.uniqueId,
      store_time_ms: message.storeTimeMs,
      offset_message_id: message.offsetMessageId,
    };
  },

  async consume({ topic, count, group, queue_ids, start, tags, seek, commit, timeout_s }) {
    const consumer = client.consumer(topic, { group, queueIds: queue_ids, start, tags });
    try {
      const endMs = performance.now() + timeout_s * 1000;
      for (const [queueId, offset] of Object.entries(seek ?? {})) await consumer.seek(Number(queueId), offset);
      const messages = [];
      while (messages.length < count) {
        const message = await consumer.poll(Math.max(0, endMs - performance.now()));
        if (message === undefined) break;
        messages.push(message);
      }
      if (commit) await consumer.commit();
      return { bodies: bodiesOf(messages), positions: Object.fromEntries(await consumer.positions()) };
    } finally {
      await consumer.close();
    }
  },
};

async function all(iterator) {
  const messages = [];
  for await (const message of iterator) messages.push(message);
  return messages;
}

/** Bodies as text, without the dots behind. */
function bodiesOf(messages) {
  return messages.map((message) => message.body.toString().replace(/\.+$/, ""));
}

async function answer(step) {
  try {
    return { ok: await STEPS[step.do](step) };
  } catch (error) {
    if (!(error instanceof ReputError)) return { error: { code: "LOCAL", text: String(error) } };
    const { code, reason, metadata, fields, text } = error;
    return { error: { code, reason, metadata, fields, text } };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  if (line.trim()) process.stdout.write(`${JSON.stringify(await answer(JSON.parse(line)))}\n`);
}
await client.close();
