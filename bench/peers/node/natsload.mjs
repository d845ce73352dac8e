// SPDX-License-Identifier: Apache-2.0
// NATS JetStream by its own client for Node.js: each message has an acknowledgement, and many are on their way.

import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { main, QUEUE_COUNT, TOPIC } from "./load.mjs";

/** Most messages on their way, as the load generator in Go has it. */
const PENDING_MAX = 4_000;
const TIMEOUT_MS = 30_000;

await main(async (given) => {
  const connection = await connect({ servers: given.target, reconnect: false });
  const manager = await jetstreamManager(connection);
  await manager.streams.add({ name: TOPIC, subjects: [`${TOPIC}.*`], storage: "file" });
  const js = jetstream(connection, { timeout: TIMEOUT_MS });
  const body = Buffer.alloc(given.body, "x");
  const subjects = Array.from({ length: QUEUE_COUNT }, (_, number) => `${TOPIC}.q${number}`);
  const windowCount = Math.max(1, Math.min(PENDING_MAX, Math.floor(given.batch / given.body)));

  async function sendUntil(endMs) {
    let sent = 0;
    let stored = 0;
    let failure;
    let wake = () => {};
    const onStored = () => {
      stored++;
      wake();
    };
    const onFailed = (error) => {
      failure ??= error;
      wake();
    };
    const below = async (count) => {
      while (sent - stored >= count && failure === undefined) await new Promise((resolve) => (wake = resolve));
    };
    while (performance.now() < endMs && failure === undefined) {
      await below(windowCount);
      js.publish(subjects[sent++ % QUEUE_COUNT], body).then(onStored, onFailed);
    }
    await below(1);
    if (failure !== undefined) throw failure;
    return stored;
  }

  return { sendUntil, close: () => connection.close() };
});
