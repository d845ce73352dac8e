// SPDX-License-Identifier: Apache-2.0
// RetryPolicy: decides whether and when a failed attempt is repeated. Pure except for the jitter.

import type { ReputError } from "./errors.js";
import { TIMER_MS_MAX } from "./signal.js";

/** The options of retries. */
export interface RetryOptions {
  /** Attempts after the first attempt, from 0, which never repeats. 12 unless given. */
  retries?: number;
  /** Shortest delay, in milliseconds, from 0: the delay before the first retry. 50 unless given. */
  delayMinMs?: number;
  /** Longest delay, in milliseconds, from 0. 5,000 unless given. */
  delayMaxMs?: number;
}

/** Reasons of a temporary refusal: the server did nothing, and a later attempt may work. See docs/errors.md. */
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
  "QUOTA_EXCEEDED",
]);

/** Most answers in a row whose leader is tried at once: logs that change their leader may name each other. */
const FOLLOWS_MAX = 3;

/**
 * Returns whether the next attempt is sent at once to the leader that an answer names. The server did nothing, so this
 * is no failed attempt. `followCount`: the number of such answers in a row.
 */
export function isFollowed(error: ReputError, followCount: number): boolean {
  return error.reason === "NOT_LEADER" && Boolean(error.metadata.leader) && followCount < FOLLOWS_MAX;
}

/** Exponential back-off with jitter, never shorter than the server's delay. Throws RangeError for bad options. */
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
   * Returns milliseconds to wait after failed attempt number `attempt` (from 0), undefined to give up. With
   * `isRepeatable` false only calls are retried for which the server says that it did not execute them.
   */
  delayMs(attempt: number, error: ReputError, isRepeatable = true): number | undefined {
    const isRefused = RETRYABLE_REASONS.has(error.reason);
    if (attempt >= this.#retries || !(isRefused || (isRepeatable && error.code === "UNAVAILABLE"))) return undefined;
    const ceilingMs = Math.min(this.#delayMaxMs, this.#delayMinMs * 2 ** attempt);
    const delayMs = Math.max(ceilingMs * (1 - this.#chance() / 2), error.retryAfterMs ?? 0);
    return Math.min(delayMs, TIMER_MS_MAX);
  }

  /** Returns the delay as `delayMs` does, for a call that has `leftMs` milliseconds left. */
  delayWithinMs(leftMs: number, attempt: number, error: ReputError, isRepeatable = true): number | undefined {
    const delayMs = this.delayMs(attempt, error, isRepeatable);
    return delayMs === undefined || delayMs >= leftMs ? undefined : delayMs;
  }
}
