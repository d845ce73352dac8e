// SPDX-License-Identifier: Apache-2.0
// SendQueue: the logic of a producer: batches, the window, outcomes, retries and splits. No I/O, no clock.
//
// The states of a message: outside of the window -> in the open batch -> ready -> in flight -> settled, or ready again
// when it is retried.
//
// Invariants: batches are in flight in the order in which `pop` returned them, and outcomes come in this order.
// `#unsettledBytes` is the size of all messages that entered the window and are not settled. While `#blockedUntilMs` lies
// ahead, or the stream is to end because appends move to another address, `pop` returns no batch. Times are milliseconds
// of a monotonic clock, given by the caller.
//
// Messages are stored in the order of `add`, apart from repetitions behind their first copy. A batch that is sent while
// others are in flight needs the batch before it: the server refuses it with AFTER_REFUSAL if that one was refused, and
// it waits again behind the refused messages. After a refusal or a broken stream a single batch is in flight until a
// batch is stored.
//
// A bad message must not fail the other messages of its batch. A refusal that names messages[i] fails this message, and
// the rest is sent again. A refusal that names a topic fails all messages of this topic. Any other refusal of the batch
// as invalid cuts the batch in halves.

import {
  type AppendOutcome,
  type AppendResult,
  AppendStreamRequest,
} from "../gen/reput/commitlog/v1/append_service.js";
import { fromStatus, mayHaveArrived, outcomeUnknown, type ReputError } from "./errors.js";
import { durabilityName, hostHexadecimal, SendResult } from "./message.js";
import type { ProducerSettings } from "./options.js";
import { isFollowed, type RetryPolicy } from "./retry.js";

/** As in append_service.proto. */
const BATCH_MESSAGE_COUNT_MAX = 32_768;
const TOPIC_REASONS: readonly string[] = [
  "TOPIC_NOT_FOUND",
  "TOPIC_FORBIDDEN",
  "TOPIC_SET_APART",
  "BAD_TOPIC_NAME",
  "NOT_PERMITTED",
];

/** An encoded message in the queue. Its outcome is exactly a single call of `resolve` or `reject`. */
export interface Entry {
  /** The message as an entry of a request. */
  readonly chunk: Buffer;
  readonly topic: string;
  readonly uniqueId: string;
  readonly resolve: (result: SendResult) => void;
  readonly reject: (error: ReputError) => void;
  /** The number of the batch that it was added to; undefined while it waits outside of the window. */
  batchNumber?: number;
  /** Whether a caller waits for the outcome. */
  isAwaited?: boolean;
}

/** Messages that are sent together. */
export class Batch {
  readonly sizeBytes: number;
  /** Whether an earlier attempt may have reached the server. */
  wasSent = false;
  /** The number of attempts in a row that were sent to the leader of an answer; these are no failed attempts. */
  followCount = 0;
  /** Whether it was sent while other batches were in flight. */
  needsPrevious = false;

  /**
   * `order`: the batch's place among all batches: a number; for a part of a split batch the part's number is added.
   * `attempt`: the number of failed attempts.
   */
  constructor(
    readonly entries: readonly Entry[],
    readonly order: readonly number[],
    readonly attempt = 0,
  ) {
    this.sizeBytes = sizeOf(entries);
  }

  /** Returns the request. */
  toRequest(durability: ProducerSettings["durability"]): Buffer {
    const chunks: Uint8Array[] = this.entries.map((entry) => entry.chunk);
    const fields = AppendStreamRequest.create({ durability, needsPrevious: this.needsPrevious });
    const end = AppendStreamRequest.encode(fields).finish();
    chunks.push(end);
    return Buffer.concat(chunks, this.sizeBytes + end.length);
  }
}

/** The send queue of a producer. The window bounds `#unsettledBytes`; an empty window takes a message of any size. */
export class SendQueue {
  #unsettledBytes = 0;
  #blockedUntilMs = 0;
  #moved: ReputError | undefined;
  #isProbing = false;
  readonly #batchSizeBytes: number;
  readonly #windowBytes: number;
  readonly #lingerMs: number;
  readonly #retry: RetryPolicy;
  /** In the order of `add`, as sets keep it; an array's shift() would move all later elements. */
  readonly #outside = new Set<Entry>();
  #open: Entry[] = [];
  #openSizeBytes = 0;
  #openUntilMs = 0;
  #batchCount = 0;
  #ready: Batch[] = [];
  #inFlight: Batch[] = [];

  constructor(settings: ProducerSettings) {
    this.#batchSizeBytes = settings.batchSizeBytes;
    this.#windowBytes = settings.windowBytes;
    this.#lingerMs = settings.lingerMs;
    this.#retry = settings.retry;
  }

  /** Whether every message is settled. */
  get isIdle(): boolean {
    return this.#unsettledBytes === 0 && this.#outside.size === 0;
  }

  /** Whether the window has room, and no message waits outside of it. */
  get hasRoom(): boolean {
    return this.#outside.size === 0 && this.#unsettledBytes < this.#windowBytes;
  }

  /** Adds a message. Returns whether a batch began or became ready, so that the sender must look again. */
  add(entry: Entry, nowMs: number): boolean {
    if (this.#outside.size > 0 || !this.#fits(entry)) {
      this.#outside.add(entry);
      return this.closeBatch(); // no message can enter the batch now
    }
    return this.#enter(entry, nowMs);
  }

  /**
   * Ends the linger of a message's batch, because a caller waits for the outcome. Further messages are added until the
   * batch is popped. Returns whether the sender must look again.
   */
  hurry(entry: Entry): boolean {
    entry.isAwaited = true;
    if (this.#open.length === 0 || entry.batchNumber !== this.#batchCount || this.#openUntilMs === 0) return false;
    this.#openUntilMs = 0;
    return true;
  }

  /** Makes the open batch ready, at any age. Returns whether it had messages. */
  closeBatch(): boolean {
    if (this.#open.length === 0) return false;
    this.#ready.push(new Batch(this.#open, [this.#batchCount++]));
    this.#open = [];
    this.#openSizeBytes = 0;
    return true;
  }

  /** Takes the next batch to send, undefined if no batch is due. It is in flight from now on. */
  pop(nowMs: number): Batch | undefined {
    if (this.#mustWait || nowMs < this.#blockedUntilMs) return undefined;
    if (this.#ready.length === 0 && nowMs >= this.#openUntilMs) this.closeBatch();
    const batch = this.#ready.shift();
    if (batch === undefined) return undefined;
    batch.needsPrevious = this.#inFlight.length > 0;
    this.#inFlight.push(batch);
    return batch;
  }

  /** Whether `pop` returns no batch before another outcome, or before the end of the stream. */
  get #mustWait(): boolean {
    return this.#moved !== undefined || (this.#isProbing && this.#inFlight.length > 0);
  }

  /** Returns milliseconds until `pop` may return a batch, undefined if it returns none before another event. */
  waitMs(nowMs: number): number | undefined {
    if (this.#mustWait || (this.#ready.length === 0 && this.#open.length === 0)) return undefined;
    const untilMs = this.#ready.length > 0 ? 0 : this.#openUntilMs;
    return Math.max(0, Math.max(untilMs, this.#blockedUntilMs) - nowMs);
  }

  /**
   * Takes the refusal that moves appends to another address, when no batch is in flight: then the stream may end. `pop`
   * returns no batch until this was called.
   */
  takeMoved(): ReputError | undefined {
    if (this.#inFlight.length > 0) return undefined;
    const moved = this.#moved;
    this.#moved = undefined;
    return moved;
  }

  /**
   * Applies the server's answers to the batches in flight, oldest first. Throws an error for an inconsistent answer;
   * its batch is still in flight then.
   */
  onOutcomes(outcomes: readonly AppendOutcome[], nowMs: number): void {
    for (const outcome of outcomes) {
      const batch = this.#inFlight[0];
      if (batch === undefined) throw new Error("more batches are answered than were sent");
      if (outcome.result !== undefined) {
        const results = resultsOf(batch, outcome.result);
        this.#inFlight.shift();
        this.#isProbing = false;
        batch.entries.forEach((entry, index) => entry.resolve(results[index] as SendResult));
        this.#unsettledBytes -= batch.sizeBytes;
      } else {
        if (outcome.error === undefined) throw new Error("an outcome is empty");
        const error = fromStatus(outcome.error);
        this.#inFlight.shift();
        this.#onRefused(batch, error, nowMs);
      }
    }
    this.#admit(nowMs);
  }

  /** Makes the batches in flight ready again after the end of the stream, or fails them if no retry is left. */
  onBroken(error: ReputError, nowMs: number): void {
    this.#moved = undefined;
    this.#isProbing = true;
    for (const batch of this.#inFlight.splice(0)) {
      const delayMs = this.#retry.delayMs(batch.attempt, error);
      batch.wasSent ||= mayHaveArrived(error);
      if (delayMs !== undefined) this.#retryLater(batch, nowMs + delayMs);
      else this.#fail(batch, batch.entries, error);
    }
    this.#admit(nowMs);
  }

  /** Fails all messages. */
  failAll(error: ReputError): void {
    this.closeBatch();
    for (const batch of this.#inFlight.splice(0)) {
      batch.wasSent = true;
      this.#fail(batch, batch.entries, error);
    }
    for (const batch of this.#ready.splice(0)) this.#fail(batch, batch.entries, error);
    for (const entry of this.#outside) entry.reject(error);
    this.#outside.clear();
  }

  #fits(entry: Entry): boolean {
    return this.#unsettledBytes === 0 || this.#unsettledBytes + entry.chunk.length <= this.#windowBytes;
  }

  /** Admits messages that wait outside of the window, as far as there is room. */
  #admit(nowMs: number): void {
    if (this.#outside.size === 0) return;
    for (const entry of this.#outside) {
      if (!this.#fits(entry)) break;
      this.#outside.delete(entry);
      this.#enter(entry, nowMs);
    }
    if (this.#outside.size > 0) this.closeBatch();
  }

  #enter(entry: Entry, nowMs: number): boolean {
    const sizeBytes = entry.chunk.length;
    let isNews = this.#openSizeBytes + sizeBytes > this.#batchSizeBytes && this.closeBatch();
    if (this.#open.length === 0) {
      this.#openUntilMs = nowMs + this.#lingerMs;
      isNews = true;
    }
    this.#open.push(entry);
    entry.batchNumber = this.#batchCount;
    if (entry.isAwaited) this.#openUntilMs = 0;
    this.#openSizeBytes += sizeBytes;
    this.#unsettledBytes += sizeBytes;
    if (this.#openSizeBytes >= this.#batchSizeBytes || this.#open.length >= BATCH_MESSAGE_COUNT_MAX) {
      isNews = this.closeBatch();
    }
    return isNews;
  }

  #onRefused(batch: Batch, error: ReputError, nowMs: number): void {
    this.#isProbing = true;
    if (error.reason === "AFTER_REFUSAL" && batch.needsPrevious) {
      this.#again(batch, new Batch(batch.entries, batch.order, batch.attempt));
      return;
    }
    if (error.reason === "NOT_LEADER" || error.reason === "LEASE_OVER") this.#moved = error;
    // Stored, and perhaps dropped by the next leader: as after a broken stream.
    if (error.reason === "LEASE_OVER") batch.wasSent = true;
    if (isFollowed(error, batch.followCount)) {
      const again = new Batch(batch.entries, batch.order, batch.attempt);
      again.followCount = batch.followCount + 1;
      this.#again(batch, again);
      return;
    }
    const delayMs = this.#retry.delayMs(batch.attempt, error);
    if (delayMs !== undefined) {
      this.#retryLater(batch, nowMs + delayMs);
      return;
    }
    const [bad, rest] = split(batch.entries, error);
    this.#fail(batch, bad, error);
    rest.forEach((entries, part) => this.#again(batch, new Batch(entries, [...batch.order, part], batch.attempt)));
  }

  #retryLater(batch: Batch, notBeforeMs: number): void {
    this.#again(batch, new Batch(batch.entries, batch.order, batch.attempt + 1));
    this.#blockedUntilMs = Math.max(this.#blockedUntilMs, notBeforeMs);
  }

  /** Puts messages of a batch back among the ready batches, at their place in the order. */
  #again(batch: Batch, again: Batch): void {
    if (again.entries.length === 0) return;
    again.wasSent = batch.wasSent;
    const index = this.#ready.findIndex((other) => isBefore(again.order, other.order));
    this.#ready.splice(index < 0 ? this.#ready.length : index, 0, again);
  }

  #fail(batch: Batch, entries: readonly Entry[], error: ReputError): void {
    const failure = batch.wasSent ? outcomeUnknown(error) : error;
    for (const entry of entries) entry.reject(failure);
    this.#unsettledBytes -= sizeOf(entries);
  }
}

/** Returns each message's own columns of a batch's result. Throws an error if they are inconsistent. */
function resultsOf({ entries }: Batch, result: AppendResult): SendResult[] {
  const { physicalOffsets, queueIds, queueOffsets, storeTimeMs } = result;
  if ([physicalOffsets, queueIds, queueOffsets].some((column) => column.length !== entries.length)) {
    throw new Error(`not one place for each of ${entries.length} messages`);
  }
  const storeHost = hostHexadecimal(result.storeHost);
  const durability = durabilityName(result.durability);
  return entries.map((entry, index) => {
    const queueId = queueIds[index] as number;
    const queueOffset = queueOffsets[index] as number;
    const physicalOffset = physicalOffsets[index] as number;
    return new SendResult(queueId, queueOffset, physicalOffset, storeTimeMs, durability, entry.uniqueId, storeHost);
  });
}

/** Returns the messages that a refusal names, and the other messages in batches to send again. */
function split(entries: readonly Entry[], error: ReputError): [readonly Entry[], (readonly Entry[])[]] {
  const index = /messages\[(\d+)\]/.exec([...error.fields, error.metadata.field].join(" "))?.[1];
  const named = index === undefined ? undefined : entries[Number(index)];
  if (TOPIC_REASONS.includes(error.reason)) {
    const topic = named?.topic ?? error.metadata.topic;
    const bad = entries.filter((entry) => entry.topic === topic);
    if (bad.length > 0) return [bad, [entries.filter((entry) => entry.topic !== topic)]];
  } else if (named !== undefined) {
    return [[named], [entries.filter((entry) => entry !== named)]];
  }
  if (error.code === "INVALID_ARGUMENT" && entries.length > 1) {
    const half = entries.length >> 1;
    return [[], [entries.slice(0, half), entries.slice(half)]];
  }
  return [entries, []];
}

function isBefore(order: readonly number[], other: readonly number[]): boolean {
  for (let level = 0; level < Math.min(order.length, other.length); level++) {
    const difference = (order[level] as number) - (other[level] as number);
    if (difference !== 0) return difference < 0;
  }
  return order.length < other.length;
}

function sizeOf(entries: readonly Entry[]): number {
  let sizeBytes = 0;
  for (const entry of entries) sizeBytes += entry.chunk.length;
  return sizeBytes;
}
