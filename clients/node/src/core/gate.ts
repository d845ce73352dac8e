// SPDX-License-Identifier: Apache-2.0
// Gate: limits the answers of a stream that wait for the caller.

/** Admits answers while there is room, and keeps the answer that fills it, so that its stream stops reading. */
export class Gate {
  readonly #max: number;
  #heldCount = 0;
  #letIn: (() => void) | undefined;

  /** `max`: most answers that wait, from 2, with the kept answer. */
  constructor(max: number) {
    this.#max = max;
  }

  /** Called for each answer. `letIn` is called, now or later, when the next answer may come. */
  enter(letIn: () => void): void {
    this.#heldCount++;
    if (this.#heldCount < this.#max) letIn();
    else this.#letIn = letIn;
  }

  /** Called when an admitted answer is taken. */
  leave(): void {
    this.#heldCount--;
    const letIn = this.#letIn;
    this.#letIn = undefined;
    letIn?.();
  }
}
