// SPDX-License-Identifier: Apache-2.0
// Client: the door to a store.

import { readFileSync } from "node:fs";
import { Channels, type Method, type RunOptions } from "./channels.js";
import { closed } from "./core/errors.js";
import { type ClientOptions, clientSettings, type ProducerOptions, producerSettings } from "./core/options.js";
import { Consumer, type ConsumerOptions } from "./consumer.js";
import { Producer } from "./producer.js";
import { pull, type PullOptions, type PullResult, Queries } from "./queries.js";

/**
 * A connection to a store. Made by `connect`; close it when it is done. Calls that failed for a passing reason are
 * repeated within the time-out. What fails in the end is a ReputError.
 */
export class Client implements AsyncDisposable {
  /** Finds messages by key, time or id. */
  readonly query: Queries;
  readonly #channels: Channels;
  readonly #parts = new Set<Producer | Consumer>();
  #isClosed = false;

  constructor(channels: Channels) {
    this.#channels = channels;
    this.query = new Queries(channels);
  }

  /** Returns a new producer. The client closes it if you do not. Throws RangeError for options that can't be meant. */
  producer(options: ProducerOptions = {}): Producer {
    const settings = producerSettings(options, this.#channels.settings.retry);
    return this.#keep((onClosed) => new Producer(this.#channels, settings, onClosed));
  }

  /** Returns a new consumer of a topic. The client closes it if you do not. Throws RangeError for a wrong `start`. */
  consumer(topic: string, options: ConsumerOptions = {}): Consumer {
    return this.#keep((onClosed) => new Consumer(this.#channels, topic, options, onClosed));
  }

  /** Reads messages of a queue, from a queue offset on, once. An offset outside of the queue is a status, no error. */
  pull(topic: string, queueId: number, queueOffset: number, options: PullOptions = {}): Promise<PullResult> {
    return pull(this.#channels, topic, queueId, queueOffset, options);
  }

  /**
   * Calls any method of the CommitLog or the Indexer that has one request and one answer, with retries. Methods and
   * requests are those of `reput-client/stubs`: `client.call(TopicServiceService.getTopic, { name: "orders" })`.
   */
  call<Request, Answer>(method: Method<Request, Answer>, request: Request, options?: RunOptions): Promise<Answer> {
    return this.#channels.run(method, request, options);
  }

  /** Closes producers, which waits for their messages, consumers and connections. May be repeated. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all([...this.#parts].map((part) => part.close()));
    this.#channels.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Makes a part, and remembers to close it until it is closed. */
  #keep<Part extends Producer | Consumer>(make: (onClosed: () => void) => Part): Part {
    if (this.#isClosed) throw closed("client");
    const part = make(() => this.#parts.delete(part));
    this.#parts.add(part);
    return part;
  }
}

/**
 * Returns a client for the services at these addresses. Connections are made when they are first used. Throws
 * RangeError for options that can't be meant, and the error of a file that can't be read.
 */
export function connect(options: ClientOptions = {}): Client {
  return new Client(new Channels(clientSettings(options, process.env, (file) => readFileSync(file, "utf8"))));
}
