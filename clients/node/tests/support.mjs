// SPDX-License-Identifier: Apache-2.0
// Helpers of several tests: refusals as servers make them, errors, and a send queue with a server's side.

import { setTimeout as pause } from "node:timers/promises";
import { status } from "@grpc/grpc-js";
import { ReputError } from "../dist/core/errors.js";
import { producerSettings } from "../dist/core/options.js";
import { RetryPolicy } from "../dist/core/retry.js";
import { SendQueue } from "../dist/core/send-queue.js";
import { BadRequest, ErrorInfo, RetryInfo } from "../dist/gen/google/rpc/error_details.js";

export const LINE_CUT = new ReputError("the line was cut", { code: "UNAVAILABLE" });
export const NO_LINE = new ReputError("No connection established. Last error: x", { code: "UNAVAILABLE" });

/** A google.rpc.Status as servers make it. */
export function refused(code, reason, { metadata = {}, field, retryAfterMs } = {}) {
  const detail = (name, type, value) => ({
    typeUrl: `type.googleapis.com/google.rpc.${name}`,
    value: Buffer.from(type.encode(type.fromPartial(value)).finish()),
  });
  const details = [detail("ErrorInfo", ErrorInfo, { reason, domain: "reput", metadata })];
  if (field !== undefined) details.push(detail("BadRequest", BadRequest, { fieldViolations: [{ field }] }));
  if (retryAfterMs !== undefined) {
    const retryDelay = { seconds: Math.floor(retryAfterMs / 1000), nanos: (retryAfterMs % 1000) * 1e6 };
    details.push(detail("RetryInfo", RetryInfo, { retryDelay }));
  }
  return { code: status[code], message: "no", details };
}

/** The answer to a batch that was stored: its messages have the numbers from `first` on. */
export function storedOutcome(count, first = 0) {
  const numbers = Array.from({ length: count }, (_, index) => first + index);
  return {
    result: {
      startPhysicalOffset: 0,
      endPhysicalOffset: 0,
      storeTimeMs: 5,
      durability: 2,
      physicalOffsets: numbers,
      queueOffsets: numbers,
      queueIds: numbers.map(() => 0),
      storeHost: { address: Buffer.from([127, 0, 0, 1]), port: 7101 },
      isRepeated: false,
    },
  };
}

/**
 * A send queue whose sinks record outcomes, and a server's side that numbers stored messages. Delays are 1 s without
 * jitter.
 */
export class Bench {
  nowMs = 0;
  outcomes = new Map();
  stored = [];

  constructor({ retries = 3, batchSizeBytes = 80, windowBytes = 1000 } = {}) {
    const retry = new RetryPolicy({ retries, delayMinMs: 1000, delayMaxMs: 1000 }, () => 0);
    this.queue = new SendQueue(producerSettings({ batchSizeBytes, windowBytes, lingerMs: 5 }, retry));
  }

  /** Adds messages of 20 bytes, or of another size; the first letter of a name is its topic. */
  add(names, sizeBytes = 20) {
    const settle = (name) => (outcome) => {
      if (this.outcomes.has(name)) throw new Error(`${name} is settled twice`);
      this.outcomes.set(name, outcome);
    };
    let isNews = false;
    for (const name of names) {
      const entry = { chunk: Buffer.alloc(sizeBytes), topic: name[0], uniqueId: name };
      isNews = this.queue.add({ ...entry, resolve: settle(name), reject: settle(name) }, this.nowMs);
    }
    return isNews;
  }

  /** Sends all batches, each after the batch before is stored, and returns the names of their messages. */
  sendAll() {
    const batches = [];
    for (let names = this.pop(); names !== undefined; names = this.pop()) {
      batches.push(names);
      this.answer(names);
    }
    return batches;
  }

  /** Takes a batch, and returns the names of its messages. */
  pop() {
    return this.queue.pop(this.nowMs)?.entries.map((entry) => entry.uniqueId);
  }

  /** Takes all batches that are due. */
  popAll() {
    const batches = [];
    for (let batch = this.pop(); batch !== undefined; batch = this.pop()) batches.push(batch);
    return batches;
  }

  /** Answers the oldest batches: lists of names were stored, a Status refuses. */
  answer(...outcomes) {
    const built = outcomes.map((outcome) => {
      if (!Array.isArray(outcome)) return { error: outcome };
      this.stored.push(...outcome);
      return storedOutcome(outcome.length, this.stored.length - outcome.length);
    });
    this.queue.onOutcomes(built, this.nowMs);
  }

  cut(error = LINE_CUT) {
    this.queue.onBroken(error, this.nowMs);
  }

  /** The outcomes of messages: `stored`, `unknown`, or the reason or code of the error. */
  get summary() {
    const word = (outcome) => {
      if (!(outcome instanceof ReputError)) return "stored";
      return outcome.isOutcomeUnknown ? "unknown" : outcome.reason || outcome.code;
    };
    return Object.fromEntries([...this.outcomes].map(([name, outcome]) => [name, word(outcome)]));
  }
}

/** Numbers from 0 to 1 that are the same in each run. */
export function chances(seed) {
  let state = seed * 2654435761 + 1;
  return () => {
    state = (Math.imul(state ^ (state >>> 15), 2246822519) + 0x9e3779b9) | 0;
    return ((state ^ (state >>> 13)) >>> 0) / 2 ** 32;
  };
}

/** Resolves when a condition holds; rejects if it does not within 5 s. */
export async function until(isTrue) {
  const endMs = performance.now() + 5000;
  while (!isTrue()) {
    if (performance.now() > endMs) throw new Error(`it never holds: ${isTrue}`);
    await pause(1);
  }
}
