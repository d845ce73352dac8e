// SPDX-License-Identifier: Apache-2.0
// What the load generators in Node.js share: their command line, their clock, and the line that they print.
//
//   node LOAD.mjs append --target HOST:PORT --body BYTES --batch BYTES --seconds S

const WARM_UP_MS = 1_000;
export const TOPIC = "bench";
export const QUEUE_COUNT = 4;

/** Runs a load: `connect(arguments)` gives `sendUntil(endMs)`, which returns the acknowledged messages, and `close()`. */
export async function main(connect) {
  const given = parse(process.argv.slice(2));
  const load = await connect(given);
  await load.sendUntil(performance.now() + WARM_UP_MS);
  const startMs = performance.now();
  const messages = await load.sendUntil(startMs + given.seconds * 1_000);
  const seconds = (performance.now() - startMs) / 1_000;
  console.log(JSON.stringify({ messages, bytes: messages * given.body, seconds }));
  await load.close();
}

function parse([operation, ...words]) {
  if (operation !== "append" || words.length % 2 !== 0) throw new Error("usage: LOAD append --name value ...");
  const values = {};
  for (let at = 0; at < words.length; at += 2) values[words[at].replace(/^--/, "")] = words[at + 1];
  if (values.producers !== undefined && values.producers !== "1") throw new Error("one producer is all there is here");
  return { ...values, body: Number(values.body), batch: Number(values.batch), seconds: Number(values.seconds) };
}
