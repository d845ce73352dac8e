// SPDX-License-Identifier: Apache-2.0
// Unique ids in RocketMQ's form: 32 hexadecimal digits of address, process, time in the month and a counter.

import { randomBytes } from "node:crypto";
import { networkInterfaces } from "node:os";

/**
 * Makes unique ids. Four random bytes replace the hash code of the class loader of RocketMQ's client. Layout: RocketMQ
 * 5.3, MessageClientIDSetter.
 */
export class UniqueIds {
  readonly #prefix: string;
  #count = 0;
  #startMs = 0;
  #endMs = 0;
  #timeMs = -1;
  #head = "";

  /** `prefix`: 10 bytes that no other process has. */
  constructor(prefix: Buffer = ownPrefix()) {
    this.#prefix = hexadecimal(prefix);
  }

  /** Returns a new id. `nowMs` is the time in milliseconds since the epoch. */
  next(nowMs: number): string {
    if (nowMs !== this.#timeMs) this.#setTime(nowMs);
    this.#count = (this.#count + 1) & 0xffff;
    return this.#head + (0x10000 + this.#count).toString(16).slice(1).toUpperCase();
  }

  /** Sets the start of times to the first day of the month in local time, as RocketMQ's client does. */
  #setTime(nowMs: number): void {
    if (!(this.#startMs <= nowMs && nowMs < this.#endMs)) {
      const now = new Date(nowMs);
      this.#startMs = new Date(now.getFullYear(), now.getMonth()).getTime();
      this.#endMs = new Date(now.getFullYear(), now.getMonth() + 1).getTime();
    }
    this.#timeMs = nowMs;
    this.#head = this.#prefix + (nowMs - this.#startMs).toString(16).toUpperCase().padStart(8, "0");
  }
}

/** Returns bytes as upper-case hexadecimal digits. */
export function hexadecimal(bytes: Buffer): string {
  return bytes.toString("hex").toUpperCase();
}

/** Address (4 bytes, random if there is no IPv4 address), process id (2) and random bytes (4). */
function ownPrefix(): Buffer {
  const prefix = randomBytes(10);
  const own = Object.values(networkInterfaces()).flat().find((found) => found?.family === "IPv4" && !found.internal);
  if (own !== undefined) prefix.set(own.address.split(".").map(Number));
  prefix.writeUInt16BE(process.pid & 0xffff, 4);
  return prefix;
}
