// SPDX-License-Identifier: Apache-2.0
// SendPromise: the promise of a message's outcome, which tells when a caller begins to wait for the result.

import type { SendResult } from "./message.js";

/** A promise that calls `hurry` once, when a handler for its result is added: by `await`, `then` or `Promise.all`. */
export class SendPromise extends Promise<SendResult> {
  #hurry: (() => void) | undefined;

  /** Promises that are derived from it are plain promises. */
  static override get [Symbol.species](): PromiseConstructor {
    return Promise;
  }

  /** Sets the function to call when a caller begins to wait. */
  onAwaited(hurry: () => void): void {
    this.#hurry = hurry;
  }

  override then<Result = SendResult, Failure = never>(
    onStored?: ((result: SendResult) => Result | PromiseLike<Result>) | null,
    onFailed?: ((reason: unknown) => Failure | PromiseLike<Failure>) | null,
  ): Promise<Result | Failure> {
    if (onStored) {
      this.#hurry?.();
      this.#hurry = undefined;
    }
    return super.then(onStored, onFailed);
  }
}
