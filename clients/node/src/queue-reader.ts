// SPDX-License-Identifier: Apache-2.0
// QueueReader: follows a queue, and opens its stream again at the same position when it ends.

import type { Channels, Stream } from "./channels.js";
import type { ReputError } from "./core/errors.js";
import { Gate } from "./core/gate.js";
import type { Message } from "./core/message.js";
import { messagesIn } from "./core/records.js";
import { QueueServiceService, SubscribeRequest, type SubscribeResponse } from "./gen/reput/indexer/v1/queue_service.js";

/** An answer of a stream. */
export interface Answer {
  messages: Message[];
  nextQueueOffset: number;
}

/** An answer of a reader, or the error with which the reader ended. */
export type Delivery = { reader: QueueReader; answer: Answer } | { reader: QueueReader; error: ReputError };

/**
 * Most answers, up to 1 MiB each, that wait for the caller; further answers wait in the connection and in the server.
 */
const ANSWER_COUNT_MAX = 4;

export class QueueReader {
  readonly queueId: number;
  readonly #channels: Channels;
  readonly #request: SubscribeRequest;
  readonly #deliver: (delivery: Delivery) => void;
  readonly #gate = new Gate(ANSWER_COUNT_MAX);
  #attempt = 0;
  /** The error of an answer because of which the stream was cancelled here. */
  #refusal: ReputError | undefined;
  #isStopped = false;
  #stream: Stream | undefined;
  #timer: NodeJS.Timeout | undefined;

  /** Begins to read. `deliver` is called for each answer; call `taken` when the answer is used up. */
  constructor(channels: Channels, request: SubscribeRequest, deliver: (delivery: Delivery) => void) {
    this.#channels = channels;
    this.queueId = request.queueId;
    this.#request = { ...request };
    this.#deliver = deliver;
    this.#open();
  }

  /** The queue offset at which the stream continues. */
  get queueOffset(): number {
    return this.#request.queueOffset;
  }

  /** Records that an answer was taken, which makes room for another answer. */
  taken(): void {
    this.#gate.leave();
  }

  /** Ends the stream. No answer is delivered after it. */
  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    this.#stream?.cancel();
    this.#gate.leave(); // releases the waiting answer
  }

  #open(): void {
    this.#refusal = undefined;
    this.#stream = this.#channels.openAnswers(QueueServiceService.subscribe, this.#request, this.#gate, {
      onAnswer: (answer) => this.#onAnswer(answer),
      onEnd: (error) => this.#onEnd(error),
    });
  }

  #onAnswer(answer: SubscribeResponse): void {
    if (this.#isStopped) return;
    if (this.#refusal !== undefined) {
      this.#gate.leave();
      return;
    }
    const { nextQueueOffset } = answer;
    let messages: Message[];
    try {
      messages = messagesIn(answer);
    } catch (unsound) {
      this.#refusal = unsound as ReputError;
      this.#stream?.cancel();
      this.#gate.leave(); // so that the end of the stream comes
      return;
    }
    this.#attempt = 0;
    this.#request.queueOffset = nextQueueOffset;
    this.#deliver({ reader: this, answer: { messages, nextQueueOffset } });
  }

  #onEnd(ended: ReputError): void {
    if (this.#isStopped) return;
    const error = this.#refusal ?? ended;
    const delayMs = this.#channels.settings.retry.delayMs(this.#attempt++, error);
    if (delayMs === undefined) this.#deliver({ reader: this, error });
    else this.#timer = setTimeout(() => this.#open(), delayMs);
  }
}
