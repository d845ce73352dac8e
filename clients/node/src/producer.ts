// SPDX-License-Identifier: Apache-2.0
// Producer: sends messages over a single AppendStream, which is opened when there are messages to send.

import type { AppendStream, Channels } from "./channels.js";
import { encode } from "./core/encode.js";
import { closed, nonsense, type ReputError } from "./core/errors.js";
import type { NewMessage, SendResult } from "./core/message.js";
import type { ProducerSettings } from "./core/options.js";
import { type Entry, SendQueue } from "./core/send-queue.js";
import { SendPromise } from "./core/send-promise.js";
import { Signal } from "./core/signal.js";
import { UniqueIds } from "./core/unique-ids.js";
import type { AppendStreamResponse } from "./gen/reput/commitlog/v1/append_service.js";

/**
 * Sends messages. Made by `Client.producer`; close it when it is done.
 *
 * Messages are stored in the order of the calls, also when some are refused or sent again. Delivery is at least once:
 * when the connection breaks, messages without an outcome are sent again, and may then be stored twice with the same
 * unique id; the second copy comes behind the first.
 */
export class Producer implements AsyncDisposable {
  readonly #channels: Channels;
  readonly #queue: SendQueue;
  readonly #durability: ProducerSettings["durability"];
  readonly #uniqueIds: UniqueIds | undefined;
  readonly #changed = new Signal();
  readonly #onClosed: () => void;
  #stream: AppendStream | undefined;
  #isWriting = false;
  #timer: NodeJS.Timeout | undefined;
  #closing: Promise<void> | undefined;

  /** `onClosed` is called when the producer is closed. */
  constructor(channels: Channels, settings: ProducerSettings, onClosed: () => void) {
    this.#channels = channels;
    this.#onClosed = onClosed;
    this.#queue = new SendQueue(settings);
    this.#durability = settings.durability;
    this.#uniqueIds = settings.uniqueIds ? new UniqueIds() : undefined;
  }

  /**
   * Sends a message. The promise resolves when the message is stored. It rejects with RangeError or TypeError for a
   * message that breaks a rule, which is not sent, and with ReputError for a message that is refused or lost, and after
   * `close`.
   *
   * `await`, `Promise.all` and `then` with a handler for the result end the linger of the message's batch, so callers
   * that wait for each message share the stream without an option. `catch` alone does not.
   *
   * While more than `windowBytes` bytes have no outcome, the message waits here. To send very many messages, await
   * `ready` before each.
   */
  send(message: NewMessage): Promise<SendResult> {
    let added: Entry | undefined;
    const promise = new SendPromise((resolve, reject) => {
      if (this.#closing !== undefined) throw closed("producer");
      const bornTimeMs = Date.now();
      const uniqueId = message.uniqueId ?? message.properties?.UNIQ_KEY ?? this.#uniqueIds?.next(bornTimeMs) ?? "";
      const chunk = encode(message, uniqueId, bornTimeMs);
      added = { chunk, topic: message.topic, uniqueId, resolve, reject };
      if (this.#queue.add(added, performance.now())) this.#pump();
    });
    if (added !== undefined) {
      const entry: Entry = added;
      promise.onAwaited(() => this.#hurry(entry));
    }
    return promise;
  }

  /** Ends the linger of a message's batch, after the callers of this turn have sent their messages. */
  #hurry(entry: Entry): void {
    if (this.#queue.hurry(entry)) process.nextTick(() => this.#pump());
  }

  /** Resolves when the window has room. Never rejects. */
  get ready(): Promise<void> {
    return this.#queue.hasRoom ? READY : this.#until(() => this.#queue.hasRoom || this.#closing !== undefined);
  }

  /** Sends the collected messages, and resolves when every message has its outcome, success or failure. */
  async flush(): Promise<void> {
    await this.#until(() => {
      if (this.#queue.closeBatch()) this.#pump(); // messages that enter the window later do not linger, either
      return this.#queue.isIdle;
    });
  }

  /**
   * Flushes, at most for the client's time-out; messages without an outcome by then fail. Then ends the stream. `send`
   * fails from now on. Never rejects, and may be repeated.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    const timer = setTimeout(() => {
      this.#queue.failAll(closed("producer"));
      this.#changed.notify();
    }, this.#channels.settings.timeoutMs);
    await this.flush();
    clearTimeout(timer);
    clearTimeout(this.#timer);
    this.#stream?.cancel();
    this.#stream = undefined;
    this.#changed.notify();
    this.#onClosed();
  }

  async #until(isTrue: () => boolean): Promise<void> {
    while (!isTrue()) await this.#changed.wait();
  }

  /** Sends the next batch if a batch is due and the connection accepts it; else sets the timer for it. */
  #pump(): void {
    clearTimeout(this.#timer);
    if (this.#isWriting) return;
    const nowMs = performance.now();
    const batch = this.#queue.pop(nowMs);
    if (batch === undefined) {
      const waitMs = this.#queue.waitMs(nowMs);
      if (waitMs !== undefined) this.#timer = setTimeout(() => this.#pump(), waitMs);
      return;
    }
    const stream = (this.#stream ??= this.#open());
    this.#isWriting = true;
    stream.write(batch.toRequest(this.#durability), () => {
      if (stream !== this.#stream) return;
      this.#isWriting = false;
      this.#pump();
    });
  }

  #open(): AppendStream {
    const stream = this.#channels.openAppends({
      onAnswer: (answer) => this.#onAnswer(stream, answer),
      onEnd: (error) => this.#onEnd(stream, error),
    });
    return stream;
  }

  #onAnswer(stream: AppendStream, answer: AppendStreamResponse): void {
    if (stream !== this.#stream) return;
    let failure: ReputError | undefined;
    try {
      this.#queue.onOutcomes(answer.outcomes, performance.now());
      failure = this.#queue.takeMoved();
      if (failure !== undefined) this.#channels.onMoved(stream, failure);
    } catch (error) {
      failure = nonsense(error);
    }
    if (failure !== undefined) {
      stream.cancel();
      this.#onEnd(stream, failure);
    } else {
      this.#changed.notify();
      this.#pump();
    }
  }

  #onEnd(stream: AppendStream, error: ReputError): void {
    if (stream !== this.#stream) return;
    this.#stream = undefined;
    this.#isWriting = false;
    this.#queue.onBroken(error, performance.now());
    this.#changed.notify();
    this.#pump();
  }
}

const READY = Promise.resolve();
