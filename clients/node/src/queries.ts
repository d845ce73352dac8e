// SPDX-License-Identifier: Apache-2.0
// Single reads of a store: queries by key, time and id, and pull.

import type { Channels, Method } from "./channels.js";
import { ReputError } from "./core/errors.js";
import { Message, type SendResult, type Time, toDate } from "./core/message.js";
import { messagesIn } from "./core/records.js";
import { IndexServiceService } from "./gen/reput/indexer/v1/index_service.js";
import {
  PullRequest,
  PullStatus as PullStatusNumber,
  QueueServiceService,
} from "./gen/reput/indexer/v1/queue_service.js";
import {
  QueryByKeyRequest,
  QueryByKeysRequest,
  QueryByTimeRequest,
  QueryServiceService,
} from "./gen/reput/indexer/v1/query_service.js";

/** The options of a query. */
export interface QueryOptions {
  /** Earliest store time, inclusive. From the oldest message on unless given. */
  start?: Time;
  /** Latest store time, exclusive. Up to the newest message unless given. */
  end?: Time;
  /** Messages per page, 1 to 1,024. 64 unless given. */
  pageSize?: number;
}

/** A key and all its messages, newest first. */
export interface KeyMessages {
  key: string;
  messages: Message[];
  /** Set if the messages of this key can't be read: it is unknown whether there are any. */
  error: ReputError | undefined;
}

/** As in query_service.proto. */
const KEY_COUNT_MAX = 1024;

/** The options of a pull. */
export interface PullOptions {
  /** Most messages, 1 to 4,096. 32 unless given. */
  messageCountMax?: number;
  /** Most bytes of records, up to 8 MiB; the first message always fits. 256 KiB unless given. */
  sizeBytesMax?: number;
  /** `*` for all messages, or tags separated by `||`. `*` unless given. */
  tags?: string;
  /** Milliseconds to wait for the first message, 0 to 30,000. 0 unless given. */
  waitMs?: number;
}

/** The status of a pull, with the names of RocketMQ's store; see `reput.indexer.v1.PullStatus`. */
export type PullStatus = Exclude<keyof typeof PullStatusNumber, "UNRECOGNIZED">;

/** The result of a pull, and the queue offset to continue at. */
export interface PullResult {
  status: PullStatus;
  messages: Message[];
  nextQueueOffset: number;
  minQueueOffset: number;
  /** Exclusive. */
  maxQueueOffset: number;
}

/** Finds messages by key, time or id. The iterators fetch pages as needed, and throw ReputError. */
export class Queries {
  readonly #channels: Channels;

  constructor(channels: Channels) {
    this.#channels = channels;
  }

  /** Yields the messages of a topic that have a key, newest first. */
  byKey(topic: string, key: string, options: QueryOptions = {}): AsyncGenerator<Message, void> {
    const request = QueryByKeyRequest.create({ topic, key, wantsRecords: true, ...rangeOf(options) });
    return pages(this.#channels, QueryServiceService.queryByKey, request, messagesIn);
  }

  /**
   * Yields each of many keys once, in their order, with the messages of the topic that have it: a call asks for 1,024
   * keys. A key of no message has no messages; a key whose messages can't be read has an error.
   */
  async *byKeys(
    topic: string,
    keys: Iterable<string>,
    options: Omit<QueryOptions, "pageSize"> = {},
  ): AsyncGenerator<KeyMessages, void> {
    const range = rangeOf(options);
    let rest = [...new Set(keys)];
    while (rest.length > 0) {
      const asked = rest.slice(0, KEY_COUNT_MAX);
      const request = QueryByKeysRequest.create({ topic, keys: asked, wantsRecords: true, ...range });
      const { matches } = await this.#channels.run(QueryServiceService.queryByKeys, request);
      if (matches.length === 0 || matches.length > asked.length) {
        throw new ReputError("the answer does not fit the keys", { code: "INTERNAL" });
      }
      for (const [number, found] of matches.entries()) {
        const key = asked[number]!;
        const messages = messagesIn(found);
        if (found.nextPageToken !== "") {
          const { nextPageToken: pageToken } = found;
          const page = QueryByKeyRequest.create({ topic, key, pageToken, wantsRecords: true, ...range });
          for await (const message of pages(this.#channels, QueryServiceService.queryByKey, page, messagesIn)) {
            messages.push(message);
          }
        }
        const { errorReason: reason, errorText: text } = found;
        const error = reason === "" ? undefined : new ReputError(text, { code: "DATA_LOSS", reason });
        yield { key, messages, error };
      }
      rest = rest.slice(matches.length);
    }
  }

  /** Yields the messages of a topic, or of a single queue, by queue id and queue offset. */
  byTime(topic: string, options: QueryOptions & { queueId?: number } = {}): AsyncGenerator<Message, void> {
    const { queueId } = options;
    const request = QueryByTimeRequest.create({ topic, queueId, wantsRecords: true, ...rangeOf(options) });
    return pages(this.#channels, QueryServiceService.queryByTime, request, messagesIn);
  }

  /** Resolves to the message with an offset message id, or with a unique id if a topic is given. */
  async byId(messageId: string, options: { topic?: string } = {}): Promise<Message> {
    const request = { messageId, topic: options.topic ?? "" };
    const answer = await this.#channels.run(QueryServiceService.queryById, request);
    return new Message(answer.message!);
  }

  /**
   * Resolves when a message that was just sent is indexed, so that queries find it: some milliseconds after it was
   * stored. After that a delayed message still waits for its time. For several messages, wait for the message with the
   * largest physical offset. Throws ReputError with RECOVERING if the indexes do not reach it within the client's
   * time-out.
   */
  async waitIndexed(sent: Pick<SendResult, "physicalOffset">): Promise<void> {
    await this.#channels.run(IndexServiceService.waitIndexed, { physicalOffset: sent.physicalOffset });
  }
}

/** Reads a queue once. */
export async function pull(
  channels: Channels,
  topic: string,
  queueId: number,
  queueOffset: number,
  options: PullOptions,
): Promise<PullResult> {
  const { messageCountMax = 0, sizeBytesMax = 0, tags = "*", waitMs = 0 } = options;
  const wait = { seconds: Math.floor(waitMs / 1000), nanos: Math.floor((waitMs % 1000) * 1e6) };
  const asked = { topic, queueId, queueOffset, messageCountMax, sizeBytesMax, tagExpression: tags, wait };
  const request = PullRequest.create({ ...asked, wantsRecords: true });
  const answer = await channels.run(QueueServiceService.pull, request, { extraTimeoutMs: waitMs });
  const { nextQueueOffset, minQueueOffset, maxQueueOffset } = answer;
  const status = (PullStatusNumber[answer.status] ?? "UNSPECIFIED") as PullStatus;
  return { status, messages: messagesIn(answer), nextQueueOffset, minQueueOffset, maxQueueOffset };
}

/** Yields all items of a list, and fetches pages as needed. `itemsOf` returns the items of a page. */
export async function* pages<Request extends { pageToken: string }, Page extends { nextPageToken: string }, Item>(
  channels: Channels,
  method: Method<Request, Page>,
  request: Request,
  itemsOf: (page: Page) => Item[],
): AsyncGenerator<Item, void> {
  let pageToken = request.pageToken;
  do {
    const page = await channels.run(method, { ...request, pageToken });
    yield* itemsOf(page);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
}

function rangeOf({ start, end, pageSize }: QueryOptions) {
  return {
    startTime: start === undefined ? undefined : toDate(start),
    endTime: end === undefined ? undefined : toDate(end),
    pageSize: pageSize ?? 0,
  };
}
