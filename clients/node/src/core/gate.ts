// SPDX-License-Identifier: Apache-2.0
// How many answers of a stream may wait for somebody to take them.

/** Lets answers in while there is room, and keeps the one that fills it, so that its stream reads no further. */
export class Gate {
  readonly #max: number;
  #heldCount = 0;
  #letIn: (() => void) | undefined;

  /** `max`: most answers that are held, from 2, the one that is kept among them. */
  constructor(max: number) {
    this.#max = max;
  }

  /** An answer came; `letIn` is called, now or later, when the next one may come as well. */
  enter(letIn: () => void): void {
    this.#heldCount++;
    if (this.#heldCount < this.#max) letIn();
    else this.#letIn = letIn;
  }

  /** An answer that was let in is taken. */
  leave(): void {
    this.#heldCount--;
    const letIn = this.#letIn;
    this.#letIn = undefined;
    letIn?.();
  }
}
