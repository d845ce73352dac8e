// SPDX-License-Identifier: Apache-2.0
// Encodes a message as the bytes of a `messages` entry of an append request. No I/O.
//
// A request then consists of such chunks in sequence, as protobuf writes a repeated field. A batch can be cut between
// any two chunks without encoding the messages again. The bytes are written here and not by the stubs, which take
// several times as long. Fields: append_service.proto, AppendMessage.

import { type NewMessage, TIME_MS_MAX } from "./message.js";
import { MESSAGE_SIZE_BYTES_MAX } from "./options.js";

const INT32_MAX = 2 ** 31 - 1;
const TOPIC = 0x0a;
const QUEUE_ID = 0x10;
const BODY = 0x1a;
const PROPERTY_STRING = 0x2a;
const FLAG = 0x30;
const BORN_TIME_MS = 0x40;
const MESSAGES = 0x0a;
/** Most bytes of a message in a request; the rest of the request is for its durability. */
const ENTRY_SIZE_BYTES_MAX = MESSAGE_SIZE_BYTES_MAX - 1024;
/** Most bytes of all numbers, tags and sizes of a chunk: 7 tags, 4 sizes of 5 bytes, 3 numbers of 10 bytes. */
const OVERHEAD_BYTES_MAX = 57;
/** Room for the tag and the size of the entry. */
const HEAD_SIZE_MAX = 6;

/**
 * Encodes a message. Its born time is `nowMs` unless it has a born time. `uniqueId` is empty for no unique id. Throws
 * RangeError or TypeError for a message that breaks a rule.
 */
export function encode(message: NewMessage, uniqueId: string, nowMs: number): Buffer {
  const { topic, body, queueId, flag = 0, bornTimeMs = nowMs } = message;
  if (typeof topic !== "string" || !topic.isWellFormed()) throw new TypeError("the topic is not text");
  if (typeof body !== "string" && !(body instanceof Uint8Array)) throw new TypeError("the body is no text, no bytes");
  checkNumber("queueId", queueId ?? 0, 0, INT32_MAX);
  checkNumber("flag", flag, -INT32_MAX - 1, INT32_MAX);
  checkNumber("bornTimeMs", bornTimeMs, 0, TIME_MS_MAX);
  const properties = propertyString(message, uniqueId);

  const topicSize = Buffer.byteLength(topic);
  const bodySize = typeof body === "string" ? Buffer.byteLength(body) : body.byteLength;
  const propertiesSize = Buffer.byteLength(properties);
  const writer = new Writer(topicSize + bodySize + propertiesSize + OVERHEAD_BYTES_MAX);
  writer.bytes(TOPIC, topic, topicSize);
  if (queueId !== undefined) writer.number(QUEUE_ID, queueId);
  writer.bytes(BODY, body, bodySize);
  writer.bytes(PROPERTY_STRING, properties, propertiesSize);
  if (flag !== 0) writer.number(FLAG, flag);
  writer.number(BORN_TIME_MS, bornTimeMs);
  const entry = writer.entry(MESSAGES);
  if (entry.length > ENTRY_SIZE_BYTES_MAX) {
    const limit = Math.max(0, ENTRY_SIZE_BYTES_MAX - entry.length + bodySize);
    throw new RangeError(`the body has ${bodySize} bytes, and this client sends ${limit} at most; nothing was sent`);
  }
  return entry;
}

/** Returns RocketMQ's property string of a message. Throws RangeError or TypeError for invalid values. */
export function propertyString(message: NewMessage, uniqueId: string): string {
  const { tag, keys, shardingKey, delayLevel = 0 } = message;
  const properties: Record<string, string> = { ...message.properties };
  if (uniqueId !== "" || message.uniqueId !== undefined) properties.UNIQ_KEY = uniqueId;
  if (tag !== undefined) properties.TAGS = tag;
  if (keys !== undefined && keys.length > 0) properties.KEYS = joinedKeys(keys);
  if (shardingKey !== undefined) properties.__SHARDINGKEY = shardingKey;
  checkNumber("delayLevel: a delay", delayLevel, 0, INT32_MAX);
  if (delayLevel > 0) properties.DELAY = String(delayLevel);
  let text = "";
  for (const name in properties) text += property(name, properties[name] as string);
  if (!text.isWellFormed()) throw new TypeError("a property is not text: half of a surrogate pair stands alone");
  return text;
}

function property(name: string, value: string): string {
  if (name === "" || name.includes("\x01") || name.includes("\x02")) {
    throw new RangeError(`property ${JSON.stringify(name)}: a name is not empty and has neither 0x01 nor 0x02`);
  }
  if (typeof value !== "string") throw new TypeError(`property ${name}: the value is not text`);
  if (value === "" || value.includes("\x02")) {
    throw new RangeError(`property ${name}: a value is not empty and has no 0x02`);
  }
  return `${name}\x01${value}\x02`;
}

function joinedKeys(keys: readonly string[]): string {
  if (!Array.isArray(keys)) throw new TypeError("keys is no list");
  for (const key of keys) {
    if (typeof key !== "string" || key === "" || key.includes(" ")) {
      throw new RangeError(`key ${JSON.stringify(key)}: a key is text, not empty, and has no space`);
    }
  }
  return keys.join(" ");
}

function checkNumber(name: string, value: number, min: number, max: number): void {
  if (!Number.isInteger(value) || value < min || value > max) {
    throw new RangeError(`${name} is ${value}, not a whole number from ${min} to ${max}`);
  }
}

/** Writes protobuf: fields in order, after a gap for the head of the entry, whose size is known at the end. */
class Writer {
  readonly #bytes: Buffer;
  #end = HEAD_SIZE_MAX;

  constructor(sizeBytesMax: number) {
    this.#bytes = Buffer.allocUnsafe(HEAD_SIZE_MAX + sizeBytesMax);
  }

  /** Writes a field of bytes or text, unless it is empty. `size`: its bytes. */
  bytes(tag: number, value: Uint8Array | string, size: number): void {
    if (size === 0) return;
    this.#bytes[this.#end++] = tag;
    this.#varint(size);
    if (typeof value === "string") this.#bytes.write(value, this.#end);
    else this.#bytes.set(value, this.#end);
    this.#end += size;
  }

  /** Writes a field with a whole number; protobuf writes negative numbers as 64 bits. */
  number(tag: number, value: number): void {
    this.#bytes[this.#end++] = tag;
    if (value >= 0) return this.#varint(value);
    let rest = BigInt.asUintN(64, BigInt(value));
    for (; rest > 0x7fn; rest >>= 7n) this.#bytes[this.#end++] = Number(rest & 0x7fn) | 0x80;
    this.#bytes[this.#end++] = Number(rest);
  }

  /** Returns the written fields as an entry of a repeated field. */
  entry(tag: number): Buffer {
    const end = this.#end;
    const size = end - HEAD_SIZE_MAX;
    const start = HEAD_SIZE_MAX - 1 - varintSize(size);
    this.#bytes[start] = tag;
    this.#end = start + 1;
    this.#varint(size);
    return this.#bytes.subarray(start, end);
  }

  #varint(value: number): void {
    let rest = value;
    for (; rest > 0x7f; rest = Math.floor(rest / 128)) this.#bytes[this.#end++] = (rest % 128) | 0x80;
    this.#bytes[this.#end++] = rest;
  }
}

function varintSize(value: number): number {
  let size = 1;
  for (let rest = value; rest > 0x7f; rest = Math.floor(rest / 128)) size++;
  return size;
}
