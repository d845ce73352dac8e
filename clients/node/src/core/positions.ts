// SPDX-License-Identifier: Apache-2.0
// Messages that were delivered and not yet returned, and the next queue offset of each queue. No I/O.

import type { Message } from "./message.js";

/** The position of a queue is the offset after its last message that was returned. */
export class Positions {
  readonly #next = new Map<number, number>();
  readonly #committed = new Map<number, number>();
  /** The messages of an answer. The messages from `#index` on wait. */
  #waiting: readonly Message[] = [];
  #index = 0;
  #queueId = 0;
  #endQueueOffset = 0;

  /** Adds an answer of a queue's stream. Called when no message waits any more. */
  add(queueId: number, messages: readonly Message[], nextQueueOffset: number): void {
    this.#waiting = messages;
    this.#index = 0;
    this.#queueId = queueId;
    this.#endQueueOffset = nextQueueOffset;
    if (messages.length === 0) this.#next.set(queueId, nextQueueOffset);
  }

  /** Returns the next message, undefined if no message waits. */
  pop(): Message | undefined {
    const message = this.#waiting[this.#index];
    if (message === undefined) return undefined;
    const isLast = ++this.#index === this.#waiting.length;
    this.#next.set(this.#queueId, isLast ? this.#endQueueOffset : message.queueOffset + 1);
    if (isLast) this.#waiting = [];
    return message;
  }

  /** Sets the position of a queue, and drops its waiting messages. */
  move(queueId: number, queueOffset: number): void {
    if (queueId === this.#queueId) this.#waiting = [];
    this.#next.set(queueId, queueOffset);
  }

  /** Returns the next queue offset of each queue, by queue id. */
  all(): Map<number, number> {
    return new Map([...this.#next].sort(([a], [b]) => a - b));
  }

  /** Returns the positions that changed since they were last committed, by queue id. */
  uncommitted(): Map<number, number> {
    return new Map([...this.all()].filter(([queueId, queueOffset]) => this.#committed.get(queueId) !== queueOffset));
  }

  /** Records committed offsets. */
  committed(positions: ReadonlyMap<number, number>): void {
    for (const [queueId, queueOffset] of positions) this.#committed.set(queueId, queueOffset);
  }
}
