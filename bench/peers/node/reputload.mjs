// SPDX-License-Identifier: Apache-2.0
// Single messages through Reput's own client for Node.js, which puts them into batches.

import { connect } from "../../../clients/node/dist/index.js";
import { main, TOPIC } from "./load.mjs";

const DURABILITIES = { async: "MEMORY", sync: "LOCAL_DISK" };
/** Messages repeat after so many: their making is not what is measured. */
const MESSAGE_COUNT = 1 << 13;

await main((given) => {
  const client = connect({ commitlog: given.target });
  const producer = client.producer({ batchSizeBytes: given.batch, durability: DURABILITIES[given.durability] });
  const body = Buffer.alloc(given.body);
  const messages = Array.from({ length: MESSAGE_COUNT }, (_, number) => ({
    topic: TOPIC,
    body,
    tag: `tag${number % 8}`,
    keys: [`order-${number}`, `user-${number % 997}`],
  }));

  async function sendUntil(endMs) {
    let stored = 0;
    let failure;
    const onStored = () => void stored++;
    const onFailed = (error) => void (failure ??= error);
    for (let number = 0; performance.now() < endMs && failure === undefined; number++) {
      await producer.ready;
      producer.send(messages[number % MESSAGE_COUNT]).then(onStored, onFailed);
    }
    await producer.flush();
    await new Promise(setImmediate); // the last ones are counted
    if (failure !== undefined) throw failure;
    return stored;
  }

  return { sendUntil, close: () => client.close() };
});
