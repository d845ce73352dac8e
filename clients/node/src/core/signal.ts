// SPDX-License-Identifier: Apache-2.0
// How one part of a program waits until another one has changed something.

/** Longest time of a timer, in milliseconds; Node.js takes a longer one for no time at all. */
export const TIMER_MS_MAX = 2 ** 31 - 1;

/** Wakes all who wait. They look for themselves whether the change is theirs. */
export class Signal {
  readonly #waiters = new Set<() => void>();

  notify(): void {
    for (const wake of this.#waiters) wake();
  }

  /** Resolves at the next `notify`, after `timeoutMs` milliseconds, or sooner: when a timer can't last so long. */
  wait(timeoutMs?: number): Promise<void> {
    return new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        this.#waiters.delete(wake);
        resolve();
      };
      const timer = timeoutMs === undefined ? undefined : setTimeout(wake, Math.min(timeoutMs, TIMER_MS_MAX));
      this.#waiters.add(wake);
    });
  }
}
