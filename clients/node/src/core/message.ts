// SPDX-License-Identifier: Apache-2.0
// Values of the API: messages to send, stored messages, results. No I/O.

import { Durability as DurabilityNumber, type Host, type StoredMessage } from "../gen/reput/common/v1/message.js";
import { hexadecimal } from "./unique-ids.js";

/** The durability of a stored message; each level covers the faults of the levels before it. */
export type Durability = "MEMORY" | "LOCAL_DISK" | "REPLICATED";

/** A time: a Date, or milliseconds since the epoch. */
export type Time = Date | number;

/** A place in a queue: its first message, its end, or the first message stored at or after a time. */
export type Place = "earliest" | "latest" | Time;

/** A message to send. */
export interface NewMessage {
  topic: string;
  /** Text is sent as UTF-8. The bytes are copied before `send` returns. */
  body: Uint8Array | string;
  /**
   * Queue within the topic, from 0. If it is absent, the store chooses the queue, by the sharding key if it is given.
   */
  queueId?: number;
  tag?: string;
  /** Keys by which queries find the message; a key is not empty and has no space. */
  keys?: readonly string[];
  /** Names are not empty and have neither 0x01 nor 0x02; values are not empty and have no 0x02. */
  properties?: Readonly<Record<string, string>>;
  /** Messages with the same sharding key are stored in the same queue. */
  shardingKey?: string;
  /** If it is absent, the producer makes a unique id, unless its option `uniqueIds` is false. */
  uniqueId?: string;
  /**
   * From 1 on: consumers get the message after 1 s, 5 s, 10 s, 30 s, 1 to 10 min, 20 min, 30 min, 1 h and 2 h (levels 1
   * to 18, unless the store has others). 0 is no delay.
   */
  delayLevel?: number;
  /** A number of 32 bits with a sign, opaque to the store. */
  flag?: number;
  /** Milliseconds since the epoch, from 0; now unless given. */
  bornTimeMs?: number;
}

/** The place of a stored message, and its durability. For a delayed message it is the place where the message waits. */
export class SendResult {
  constructor(
    readonly queueId: number,
    /** Entry number in the queue, from 0. */
    readonly queueOffset: number,
    /** Position of the record's first byte in the whole log. */
    readonly physicalOffset: number,
    /** Milliseconds since the epoch by the store's clock. */
    readonly storeTimeMs: number,
    /** If it is lower than requested, the sync or the replicas took too long. Undefined for a level unknown here. */
    readonly durability: Durability | undefined,
    /** Empty without a unique id. */
    readonly uniqueId: string,
    private readonly storeHost: string,
  ) {}

  /** The id of the record's place: upper-case hexadecimal of store host and physical offset. */
  get offsetMessageId(): string {
    return this.storeHost + this.physicalOffset.toString(16).toUpperCase().padStart(16, "0");
  }
}

/**
 * A message as it is stored, with all fields of `reput.common.v1.StoredMessage`. `bornTimeMs` and `storeTimeMs` are
 * milliseconds since the epoch, by the producer's and by the store's clock.
 */
export interface Message extends StoredMessage {}

export class Message {
  constructor(stored: StoredMessage) {
    Object.assign(this, stored);
  }

  /** The tag, if it has a tag. */
  get tag(): string | undefined {
    return this.properties.TAGS;
  }

  /** The keys, without the unique id. Only spaces separate them, so that other white space is part of a key. */
  get keys(): string[] {
    return this.properties.KEYS?.split(" ").filter(Boolean) ?? [];
  }

  /** The unique id, if it has a unique id. */
  get uniqueId(): string | undefined {
    return this.properties.UNIQ_KEY;
  }

  /** The born time, by the producer's clock. */
  get bornTime(): Date {
    return new Date(this.bornTimeMs);
  }

  /** The store time, by the store's clock. */
  get storeTime(): Date {
    return new Date(this.storeTimeMs);
  }
}

/** Returns the API's number of a level; undefined means the store's own level. Throws RangeError for other words. */
export function durabilityNumber(durability?: Durability): DurabilityNumber {
  if (durability === undefined) return DurabilityNumber.UNSPECIFIED;
  if (!["MEMORY", "LOCAL_DISK", "REPLICATED"].includes(durability)) {
    throw new RangeError(`durability is ${durability}: use MEMORY, LOCAL_DISK or REPLICATED`);
  }
  return DurabilityNumber[durability];
}

/** Returns the name of a level, undefined for an unknown number. */
export function durabilityName(level: DurabilityNumber): Durability | undefined {
  return level > 0 ? (DurabilityNumber[level] as Durability | undefined) : undefined;
}

/** Returns the beginning of offset message ids: address and port. Throws RangeError for an invalid port. */
export function hostHexadecimal(host: Host | undefined): string {
  const port = Buffer.alloc(4);
  if (host !== undefined && !(host.port >= 0 && host.port <= 0xffff)) throw new RangeError(`${host.port} is no port`);
  port.writeUInt32BE(host?.port ?? 0);
  return hexadecimal(Buffer.concat([host?.address ?? Buffer.alloc(0), port]));
}

/** 3 March 1973 as milliseconds, the year 5138 as seconds. */
const PLAUSIBLE_MS_MIN = 1e11;
/** The last millisecond of the year 9999. */
export const TIME_MS_MAX = 253_402_300_799_999;

/**
 * Returns a time as a Date. Throws RangeError for a value that is not a time, and for a number that is most likely in
 * seconds, microseconds or nanoseconds: a time of 1970 to 1973, or after the year 9999.
 */
export function toDate(time: Time): Date {
  if (typeof time === "number" && time > 0 && time < PLAUSIBLE_MS_MIN) {
    throw new RangeError(`${time} looks like seconds: use milliseconds since the epoch (${time * 1000}) or a Date`);
  }
  if (typeof time === "number" && time > TIME_MS_MAX) {
    throw new RangeError(`${time} is behind the year 9999: use milliseconds since the epoch or a Date`);
  }
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) throw new RangeError(`${time} is no time`);
  return date;
}

/** Returns a place unchanged. Throws RangeError for an invalid place. */
export function checkedPlace(place: Place): Place {
  if (typeof place !== "string") toDate(place);
  else if (place !== "earliest" && place !== "latest") {
    throw new RangeError(`${place} is no place: use "earliest", "latest" or a time`);
  }
  return place;
}
