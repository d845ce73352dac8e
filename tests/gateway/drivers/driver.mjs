// SPDX-License-Identifier: Apache-2.0
// The official client for Node.js as a driver of the table.
import { createInterface } from 'node:readline';
import { createRequire } from 'node:module';

const require = createRequire(process.env.NODE_CLIENT + '/package.json');
const { ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');
const { FilterType, TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const quiet = { debug() {}, info() {}, warn() {}, error(...words) { console.error(...words); }, close() {} };
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));
let options = {};
let producers = new Map();
let consumers = new Map();
let messages = [];

// Returns the end of a transaction that its producer has forgotten: the end that is named in the message's body.
const checker = {
  async check(message) {
    const isCommitted = message.body.toString() === 'commit when asked';
    return isCommitted ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK;
  },
};

function filterOf(ask) {
  return ask.sql ? new FilterExpression(ask.sql, FilterType.SQL) : new FilterExpression(ask.tags ?? '*');
}

function described(message) {
  return {
    body: message.body.toString(),
    tag: message.tag ?? '',
    keys: [ ...message.keys ].sort(),
    properties: Object.fromEntries(message.properties),
    group: message.messageGroup ?? '',
    attempt: message.deliveryAttempt,
    id: message.messageId,
  };
}

const verbs = {
  async connect(ask) {
    for (const client of [ ...producers.values(), ...consumers.values() ]) await client.shutdown();
    producers = new Map();
    consumers = new Map();
    messages = [];
    options = { endpoints: ask.endpoints, namespace: '', logger: quiet, sslEnabled: ask.tls ?? false };
    if (ask.key) options.sessionCredentials = { accessKey: ask.key, accessSecret: ask.secret };
    return {};
  },

  async send(ask) {
    let producer = producers.get(ask.topic);
    if (!producer) {
      producer = new Producer({ ...options, topics: [ ask.topic ], checker });
      await producer.startup();
      producers.set(ask.topic, producer);
    }
    const transaction = ask.do === 'begin' ? producer.beginTransaction() : undefined;
    const receipt = await producer.send({
      topic: ask.topic,
      body: Buffer.from(ask.body),
      tag: ask.tag || undefined,
      keys: ask.keys ?? [],
      messageGroup: ask.group || undefined,
      deliveryTimestamp: ask.deliver_s ? new Date(ask.deliver_s * 1000) : undefined,
      properties: new Map(Object.entries(ask.properties ?? {})),
    }, transaction);
    if (ask.end) await transaction[ask.end]();
    return { id: receipt.messageId, recall_handle: receipt.recallHandle };
  },

  begin: ask => verbs.send(ask),

  async recall(ask) {
    const receipt = await producers.get(ask.topic).recallMessage(ask.topic, ask.recall_handle);
    return { id: receipt.messageId };
  },

  async receive(ask) {
    const name = [ ask.topic, ask.consumer_group, ask.tags ?? '*', ask.sql ?? '' ].join(' ');
    let consumer = consumers.get(name);
    if (!consumer) {
      consumer = new SimpleConsumer({
        ...options,
        consumerGroup: ask.consumer_group,
        subscriptions: new Map([[ ask.topic, filterOf(ask) ]]),
        awaitDuration: 5000,
      });
      await consumer.startup();
      consumers.set(name, consumer);
    }
    const found = await consumer.receive(ask.count, ask.invisible_s * 1000);
    const start = messages.length;
    messages.push(...found.map(message => ({ consumer, message })));
    return { messages: found.map((message, index) => ({ ...described(message), number: start + index })) };
  },

  async ack(ask) {
    const { consumer, message } = messages[ask.number];
    await consumer.ack(message);
    return {};
  },

  async change(ask) {
    const { consumer, message } = messages[ask.number];
    await consumer.changeInvisibleDuration(message, ask.invisible_s * 1000);
    return {};
  },

  async push(ask) {
    const fail = new Map(Object.entries(ask.fail ?? {}));
    const events = [];
    const consumer = new PushConsumer({
      ...options,
      consumerGroup: ask.consumer_group,
      subscriptions: new Map([[ ask.topic, new FilterExpression(ask.tags ?? '*') ]]),
      messageListener: {
        async consume(message) {
          const told = described(message);
          const left = fail.get(told.body) ?? 0;
          fail.set(told.body, left - 1);
          events.push({ ...told, failed: left > 0, time_ms: Date.now() });
          return left > 0 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        },
      },
    });
    await consumer.startup();
    const end = Date.now() + ask.seconds * 1000;
    while (Date.now() < end && events.filter(event => !event.failed).length < ask.count) await sleep(100);
    await sleep((ask.linger_s ?? 1) * 1000);
    await consumer.shutdown();
    return { events };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const ask = JSON.parse(line);
  let answer;
  try {
    answer = { ok: await verbs[ask.do](ask) };
  } catch (error) {
    answer = { error: `${error.name}: ${error.message}` };
  }
  process.stdout.write(JSON.stringify(answer) + '\n');
}
process.exit(0);
