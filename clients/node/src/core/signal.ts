// SPDX-License-Identifier: Apache-2.0
// Signal: a part of a program waits until another part has made a change.

/** Longest time of a timer, in milliseconds; Node.js treats a longer time as no time. */
export const TIMER_MS_MAX = 2 ** 31 - 1;

/** Wakes all waiting functions. Each checks itself whether the change concerns it. */
export class Signal {
  readonly #waiters = new Set<() => void>();

  notify(): void {
    for (const wake of this.#waiters) wake();
  }

  /** Resolves at the next `notify`, after `timeoutMs` milliseconds, or sooner if a timer can't last so long. */
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
