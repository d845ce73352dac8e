// SPDX-License-Identifier: Apache-2.0
// Client: the connection to a store.

import { readFileSync } from "node:fs";
import { Channels, type Method, type RunOptions } from "./channels.js";
import { closed } from "./core/errors.js";
import { type ClientOptions, clientSettings, type ProducerOptions, producerSettings } from "./core/options.js";
import { Consumer, type ConsumerOptions } from "./consumer.js";
import { Producer } from "./producer.js";
import { pull, type PullOptions, type PullResult, Queries } from "./queries.js";

/**
 * A connection to a store. Made by `connect`; close it when it is done. A call that fails for a temporary reason is
 * retried within the time-out. A call that fails for good rejects with ReputError.
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

  /** Returns a new producer. The client closes it if you do not. Throws RangeError for invalid options. */
  producer(options: ProducerOptions = {}): Producer {
    const settings = producerSettings(options, this.#channels.settings.retry);
    return this.#keep((onClosed) => new Producer(this.#channels, settings, onClosed));
  }

  /**
   * Returns a new consumer of a topic. The client closes it if you do not. Throws RangeError for an invalid `start`.
   */
  consumer(topic: string, options: ConsumerOptions = {}): Consumer {
    return this.#keep((onClosed) => new Consumer(this.#channels, topic, options, onClosed));
  }

  /** Reads messages of a queue, from a queue offset on, once. An offset outside of the queue is a status, no error. */
  pull(topic: string, queueId: number, queueOffset: number, options: PullOptions = {}): Promise<PullResult> {
    return pull(this.#channels, topic, queueId, queueOffset, options);
  }

  /**
   * Calls any method of the CommitLog or the Indexer with a single request and a single answer, with retries. Methods
   * and requests are in `reput-client/stubs`: `client.call(TopicServiceService.getTopic, { name: "orders" })`.
   */
  call<Request, Answer>(method: Method<Request, Answer>, request: Request, options?: RunOptions): Promise<Answer> {
    return this.#channels.run(method, request, options);
  }

  /** Closes producers (waits for their messages), consumers and connections. May be repeated. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all([...this.#parts].map((part) => part.close()));
    this.#channels.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Makes a part, and keeps it to close it with the client until it is closed. */
  #keep<Part extends Producer | Consumer>(make: (onClosed: () => void) => Part): Part {
    if (this.#isClosed) throw closed("client");
    const part = make(() => this.#parts.delete(part));
    this.#parts.add(part);
    return part;
  }
}

/**
 * Returns a client for the services at these addresses. Connections are made at their first use. Throws RangeError for
 * invalid options, and the error of a file that can't be read.
 */
export function connect(options: ClientOptions = {}): Client {
  return new Client(new Channels(clientSettings(options, process.env, (file) => readFileSync(file, "utf8"))));
}
