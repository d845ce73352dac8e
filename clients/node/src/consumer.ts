// SPDX-License-Identifier: Apache-2.0
// Consumer: a stream for each queue of a topic, and their messages in the order in which they arrived.

import type { Channels } from "./channels.js";
import { ReputError } from "./core/errors.js";
import { checkedPlace, type Message, type Place, toDate } from "./core/message.js";
import { Positions } from "./core/positions.js";
import { Signal, TIMER_MS_MAX } from "./core/signal.js";
import { TopicServiceService } from "./gen/reput/commitlog/v1/topic_service.js";
import { ConsumerOffsetServiceService } from "./gen/reput/indexer/v1/consumer_offset_service.js";
import {
  Boundary,
  ListQueuesRequest,
  type Queue,
  QueueServiceService,
  SubscribeRequest,
} from "./gen/reput/indexer/v1/queue_service.js";
import { pages } from "./queries.js";
import { type Delivery, QueueReader } from "./queue-reader.js";

/** The options of a consumer: its queues, its start and its filter. */
export interface ConsumerOptions {
  /** The group whose committed offsets the consumer begins at, and to which `commit` stores its offsets. */
  group?: string;
  /** The queues to follow, by their ids from 0. All queues of the topic unless given. */
  queueIds?: Iterable<number>;
  /** The start in queues without a committed offset of the group, or without a group. `earliest` unless given. */
  start?: Place;
  /** `*` for all messages, or tags separated by `||`. `*` unless given. */
  tags?: string;
}

/** Most offsets that a commit may have. consumer_offset_service.proto. */
const COMMIT_COUNT_MAX = 1000;

/**
 * Iterates over the messages of a topic as they are stored, each queue in order: `for await (const message of
 * consumer)`. Made by `Client.consumer`; close it when it is done. Leaving a loop does not close the consumer: another
 * loop continues after it.
 */
export class Consumer implements AsyncIterable<Message>, AsyncDisposable {
  readonly topic: string;
  readonly group: string | undefined;
  readonly #channels: Channels;
  readonly #queueIds: number[] | undefined;
  readonly #start: Place;
  readonly #tags: string;
  readonly #changed = new Signal();
  readonly #positions = new Positions();
  readonly #readers = new Map<number, QueueReader>();
  #deliveries: Delivery[] = [];
  #beginning: Promise<void> | undefined;
  #isBegun = false;
  #isClosed = false;
  #stopBeginning!: () => void;
  /** Resolves, to no positions, when the consumer is closed. */
  readonly #stopped = new Promise<Map<number, number>>((resolve) => {
    this.#stopBeginning = () => resolve(new Map());
  });
  readonly #onClosed: () => void;

  /** `onClosed` is called when the consumer is closed. */
  constructor(channels: Channels, topic: string, options: ConsumerOptions, onClosed: () => void) {
    this.#channels = channels;
    this.#onClosed = onClosed;
    this.topic = topic;
    this.group = options.group;
    this.#queueIds = options.queueIds && [...options.queueIds];
    this.#start = checkedPlace(options.start ?? "earliest");
    this.#tags = options.tags ?? "*";
  }

  /**
   * Resolves to the next message; to undefined after `timeoutMs` milliseconds without a message, and when the consumer
   * is closed. Rejects with ReputError if a stream broke and could not be opened again, and if the topic does not
   * exist; the next call tries again.
   */
  async poll(timeoutMs?: number): Promise<Message | undefined> {
    if (timeoutMs !== undefined && !(timeoutMs >= 0)) throw new RangeError(`timeoutMs is ${timeoutMs}, not from 0`);
    const endMs = timeoutMs === undefined ? undefined : performance.now() + timeoutMs;
    if (!this.#isBegun && !this.#isClosed) await this.#beginWithin(timeoutMs);
    while (!this.#isClosed) {
      const message = this.#take();
      if (message !== undefined) return message;
      const leftMs = endMs === undefined ? undefined : endMs - performance.now();
      if (leftMs !== undefined && leftMs <= 0) return undefined;
      await this.#changed.wait(leftMs);
    }
    return undefined;
  }

  [Symbol.asyncIterator](): AsyncIterator<Message, undefined> {
    return {
      next: async () => {
        const value = await this.poll();
        return value === undefined ? { done: true, value } : { done: false, value };
      },
    };
  }

  /** Resolves to the next queue offset of each queue, by queue id: after the last message that was returned. */
  async positions(): Promise<Map<number, number>> {
    await this.#begin();
    return this.#positions.all();
  }

  /**
   * Stores the group's offsets: all messages returned so far are done. Durable within 5 seconds. Rejects with
   * ReputError, and with RangeError for a consumer without a group.
   */
  async commit(): Promise<void> {
    const { group, topic } = this;
    if (group === undefined) throw new RangeError("a consumer without a group has nothing to commit to");
    const positions = [...this.#positions.uncommitted()];
    for (let index = 0; index < positions.length; index += COMMIT_COUNT_MAX) {
      const part = positions.slice(index, index + COMMIT_COUNT_MAX);
      const offsets = part.map(([queueId, queueOffset]) => ({ topic, queueId, queueOffset, lag: 0 }));
      await this.#channels.run(ConsumerOffsetServiceService.commitConsumerOffset, { group, offsets });
      this.#positions.committed(new Map(part));
    }
  }

  /** Continues at another offset of a queue, from 0. Rejects with RangeError for a queue that is not followed. */
  async seek(queueId: number, queueOffset: number): Promise<void> {
    await this.#begin();
    const reader = this.#readers.get(queueId);
    if (reader === undefined) throw new RangeError(`queue ${queueId} of ${this.topic} is not followed`);
    if (!Number.isSafeInteger(queueOffset) || queueOffset < 0) {
      throw new RangeError(`${queueOffset} is no queue offset`);
    }
    reader.stop();
    this.#deliveries = this.#deliveries.filter((delivery) => delivery.reader !== reader);
    this.#positions.move(queueId, queueOffset);
    this.#follow(queueId, queueOffset);
  }

  /** Ends all streams and loops. Commits nothing. May be repeated. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#stopBeginning();
    for (const reader of this.#readers.values()) reader.stop();
    this.#deliveries = [];
    this.#changed.notify();
    this.#onClosed();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Finds the start, and begins to follow. After a failure the next call tries again. */
  #begin(): Promise<void> {
    this.#beginning ??= Promise.race([this.#findStart(), this.#stopped]).then(
      (positions) => {
        this.#isBegun = true;
        for (const [queueId, queueOffset] of positions) {
          this.#positions.move(queueId, queueOffset);
          this.#follow(queueId, queueOffset);
        }
      },
      (error: unknown) => {
        this.#beginning = undefined;
        throw error;
      },
    );
    return this.#beginning;
  }

  /** Resolves when the consumer has begun, or after a time. */
  #beginWithin(timeoutMs?: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = timeoutMs === undefined ? undefined : setTimeout(resolve, Math.min(timeoutMs, TIMER_MS_MAX));
      this.#begin().then(resolve, reject).finally(() => clearTimeout(timer));
    });
  }

  #follow(queueId: number, queueOffset: number): void {
    if (this.#isClosed) return;
    const { topic } = this;
    const asked = { topic, queueId, queueOffset, tagExpression: this.#tags };
    const request = SubscribeRequest.create({ ...asked, wantsRecords: true });
    const reader = new QueueReader(this.#channels, request, (delivery) => {
      this.#deliveries.push(delivery);
      this.#changed.notify();
    });
    this.#readers.set(queueId, reader);
  }

  /** Returns the next message that has arrived, undefined if there is none. Throws the error of a failed delivery. */
  #take(): Message | undefined {
    for (;;) {
      const message = this.#positions.pop();
      if (message !== undefined) return message;
      const delivery = this.#deliveries.shift();
      if (delivery === undefined) return undefined;
      const { reader } = delivery;
      if ("error" in delivery) {
        this.#follow(reader.queueId, reader.queueOffset);
        throw delivery.error;
      }
      reader.taken();
      this.#positions.add(reader.queueId, delivery.answer.messages, delivery.answer.nextQueueOffset);
    }
  }

  /** Returns the start offset of each queue. */
  async #findStart(): Promise<Map<number, number>> {
    const known = new Map<number, Queue>();
    const request = ListQueuesRequest.create({ topic: this.topic, pageSize: 1000 });
    for await (const queue of pages(this.#channels, QueueServiceService.listQueues, request, (page) => page.queues)) {
      known.set(queue.queueId, queue);
    }
    const positions = new Map<number, number>();
    for (const queueId of this.#queueIds ?? (await this.#allQueueIds(known.keys()))) {
      positions.set(queueId, (await this.#committed(queueId)) ?? (await this.#placeIn(known.get(queueId))));
    }
    return positions;
  }

  /** Returns the ids of all queues of the topic; `known` are the queues with messages. */
  async #allQueueIds(known: Iterable<number>): Promise<number[]> {
    const { topic } = await this.#channels.run(TopicServiceService.getTopic, { name: this.topic });
    const made = Array.from({ length: topic?.readQueueCount ?? 0 }, (_, queueId) => queueId);
    return [...new Set([...made, ...known])].sort((a, b) => a - b);
  }

  async #committed(queueId: number): Promise<number | undefined> {
    const { group, topic } = this;
    if (group === undefined) return undefined;
    try {
      const request = { group, topic, queueId };
      const { offset } = await this.#channels.run(ConsumerOffsetServiceService.getConsumerOffset, request);
      return offset?.queueOffset ?? 0;
    } catch (error) {
      if (error instanceof ReputError && error.code === "NOT_FOUND") return undefined;
      throw error;
    }
  }

  async #placeIn(queue: Queue | undefined): Promise<number> {
    if (queue === undefined) return 0;
    const { topic, queueId, minQueueOffset, maxQueueOffset } = queue;
    if (this.#start === "earliest") return minQueueOffset;
    if (this.#start === "latest") return maxQueueOffset;
    const request = { topic, queueId, time: toDate(this.#start), boundary: Boundary.LOWER };
    return (await this.#channels.run(QueueServiceService.getOffsetByTime, request)).queueOffset;
  }
}
