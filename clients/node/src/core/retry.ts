// SPDX-License-Identifier: Apache-2.0
// Whether a failed attempt is repeated, and when. Pure but for the jitter.

import type { ReputError } from "./errors.js";
import { TIMER_MS_MAX } from "./signal.js";

/** How failed attempts are repeated. */
export interface RetryOptions {
  /** Attempts after the first one, from 0, which never repeats anything. 12 unless given. */
  retries?: number;
  /** Shortest delay, in milliseconds, from 0: the one before the first retry. 50 unless given. */
  delayMinMs?: number;
  /** Longest delay, in milliseconds, from 0. 5,000 unless given. */
  delayMaxMs?: number;
}

/** With these the server says: nothing was done, and later it may work. docs/errors.md. */
const RETRYABLE_REASONS: ReadonlySet<string> = new Set([
  "STORE_FULL",
  "QUEUE_OFFSETS_UNKNOWN",
  "WINDOW_FULL",
  "RECOVERING",
  "STOPPING",
  "DEPENDENCY_UNAVAILABLE",
  "NOT_LEADER",
  "NOT_ENOUGH_REPLICAS",
  "STORE_REPLACED",
]);

/** Answers in a row that name the leader and are followed: logs that change their leader may name each other. */
const FOLLOWS_MAX = 3;

/**
 * Tells whether the next attempt goes at once to the leader that an answer names. Nothing was done then, so it counts
 * as no failed attempt. `followCount`: how often that was done in a row.
 */
export function isFollowed(error: ReputError, followCount: number): boolean {
  return error.reason === "NOT_LEADER" && Boolean(error.metadata.leader) && followCount < FOLLOWS_MAX;
}

/** Exponential back-off with jitter, never shorter than what the server asks for. Throws RangeError for bad options. */
export class RetryPolicy {
  readonly #retries: number;
  readonly #delayMinMs: number;
  readonly #delayMaxMs: number;
  readonly #chance: () => number;

  constructor(options: RetryOptions = {}, chance: () => number = Math.random) {
    const { retries = 12, delayMinMs = 50, delayMaxMs = 5000 } = options;
    if (!Number.isInteger(retries) || retries < 0) throw new RangeError(`retries is ${retries}, not a number from 0`);
    if (!(delayMinMs >= 0 && delayMaxMs >= 0)) throw new RangeError("a delay before a retry is not a number from 0");
    this.#retries = retries;
    this.#delayMinMs = delayMinMs;
    this.#delayMaxMs = delayMaxMs;
    this.#chance = chance;
  }

  /**
   * Returns milliseconds to wait after failed attempt number `attempt` (from 0), undefined to give up.
   * `isRepeatable` false allows only retries of what the server itself says it did not do.
   */
  delayMs(attempt: number, error: ReputError, isRepeatable = true): number | undefined {
    const isRefused = RETRYABLE_REASONS.has(error.reason);
    if (attempt >= this.#retries || !(isRefused || (isRepeatable && error.code === "UNAVAILABLE"))) return undefined;
    const ceilingMs = Math.min(this.#delayMaxMs, this.#delayMinMs * 2 ** attempt);
    const delayMs = Math.max(ceilingMs * (1 - this.#chance() / 2), error.retryAfterMs ?? 0);
    return Math.min(delayMs, TIMER_MS_MAX);
  }

  /** Does as `delayMs` does, for a call that has `leftMs` milliseconds left. */
  delayWithinMs(leftMs: number, attempt: number, error: ReputError, isRepeatable = true): number | undefined {
    const delayMs = this.delayMs(attempt, error, isRepeatable);
    return delayMs === undefined || delayMs >= leftMs ? undefined : delayMs;
  }
}
