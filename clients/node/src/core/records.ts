// SPDX-License-Identifier: Apache-2.0
// Messages in an answer with records: parts of the answer's bytes, decoded when they are read. No I/O.
//
// Format: docs/formats/records_in_answers.md. `messagesIn` walks over the records once and compares every size with the
// end of its record, so a message reads only bytes of its own record, whatever a server sends.

import type { Host, StoredMessage } from "../gen/reput/common/v1/message.js";
import { nonsense } from "./errors.js";
import { Message } from "./message.js";
import { hexadecimal } from "./unique-ids.js";

/** An answer that has its messages in one of two forms. */
export interface MessagesAnswer {
  messages: StoredMessage[];
  records: Buffer;
  recordCount: number;
}

const MAGIC_V1 = 0xdaa320a7 | 0;
const MAGIC_V2 = 0xdaa320ab | 0;
const SIZE_MIN = 91;
/** The place of the body in a record with two IPv4 hosts. */
const BODY = 88;
const BORN_HOST_IS_V6 = 0x10;
const STORE_HOST_IS_V6 = 0x20;
const MORE_OF_V6 = 12;
/** The store's own property. Callers do not see it. */
const CRC_PROPERTY = "__CRC32#";
const TEXT = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Returns the messages of an answer. Throws ReputError unless its records are sound and as many as it says. */
export function messagesIn({ messages, records, recordCount: count }: MessagesAnswer): Message[] {
  if (records.length === 0 && count === 0) return messages.map((stored) => new Message(stored));
  const made: Message[] = [];
  try {
    if (count < 0 || count > records.length / SIZE_MIN) throw new Error(`there are ${records.length} bytes`);
    for (let at = 0; at < records.length || made.length < count; ) {
      if (made.length === count) throw new Error(`${records.length - at} bytes lie behind the last record`);
      const record = new RecordMessage(records, at);
      made.push(record as unknown as Message);
      at += records.readInt32BE(at);
    }
  } catch (error) {
    const why = error instanceof Error ? error.message : error;
    throw nonsense(new Error(`record ${made.length} of ${count} is not sound: ${why}`));
  }
  return made;
}

/** The fields of a message. All are decoded when they are read. */
type Fields = { readonly [Name in keyof StoredMessage]: StoredMessage[Name] };

/**
 * A message of an answer with records. Its fields are getters of the class: a copy by `{ ...message }` does not have
 * them; `toJSON` returns an object that has them all. It keeps the bytes of the whole answer in memory.
 */
class RecordMessage implements Fields {
  readonly #records: Buffer;
  // Places in the answer.
  readonly #at: number;
  readonly #storeTime: number;
  readonly #body: number;
  readonly #bodyEnd: number;
  readonly #topic: number;
  readonly #topicEnd: number;
  readonly #end: number;
  #properties: Record<string, string> | undefined;

  /** Checks the record at a place. Throws Error unless it is sound. */
  constructor(records: Buffer, at: number) {
    const left = records.length - at;
    if (left < SIZE_MIN) throw new Error(`only ${left} bytes are left`);
    const size = records.readInt32BE(at);
    if (size < SIZE_MIN || size > left) throw new Error(`its size is ${size}, and ${left} bytes are left`);
    const magic = records.readInt32BE(at + 4);
    if (magic !== MAGIC_V1 && magic !== MAGIC_V2) throw new Error(`its magic is ${(magic >>> 0).toString(16)}`);
    const sizeOfTopicSize = magic === MAGIC_V1 ? 1 : 2;
    const end = at + size;
    const sysFlag = records.readInt32BE(at + 36);
    const storeTime = at + 56 + (sysFlag & BORN_HOST_IS_V6 ? MORE_OF_V6 : 0);
    const body = storeTime + BODY - 56 + (sysFlag & STORE_HOST_IS_V6 ? MORE_OF_V6 : 0);
    if (body > end - 2 - sizeOfTopicSize) throw new Error(`its ${size} bytes are too few for its hosts`);
    const bodyEnd = body + records.readInt32BE(body - 4);
    if (bodyEnd < body || bodyEnd > end - 2 - sizeOfTopicSize) throw new Error(`its body has ${bodyEnd - body} bytes`);
    const topic = bodyEnd + sizeOfTopicSize;
    const topicEnd = topic + (sizeOfTopicSize === 1 ? records.readInt8(bodyEnd) : records.readInt16BE(bodyEnd));
    if (topicEnd < topic || topicEnd > end - 2) throw new Error(`its topic has ${topicEnd - topic} bytes`);
    const propertiesSize = records.readInt16BE(topicEnd);
    if (propertiesSize !== end - 2 - topicEnd) throw new Error(`its properties have ${propertiesSize} bytes`);
    for (const long of [at + 20, at + 28]) {
      if (!isNumber(records.readInt32BE(long))) throw new Error("an offset of it is beyond 2^53");
    }
    this.#records = records;
    this.#at = at;
    this.#storeTime = storeTime;
    this.#body = body;
    this.#bodyEnd = bodyEnd;
    this.#topic = topic;
    this.#topicEnd = topicEnd;
    this.#end = end;
  }

  get topic(): string {
    return this.#records.toString("utf8", this.#topic, this.#topicEnd);
  }

  get queueId(): number {
    return this.#records.readInt32BE(this.#at + 12);
  }

  get queueOffset(): number {
    return this.#long(this.#at + 20);
  }

  get physicalOffset(): number {
    return this.#long(this.#at + 28);
  }

  /** A part of the answer's bytes. */
  get body(): Buffer {
    return this.#records.subarray(this.#body, this.#bodyEnd);
  }

  /** All properties but the store's own; none if they are not UTF-8. */
  get properties(): { [name: string]: string } {
    this.#properties ??= propertiesOf(textOf(this.#propertyString) ?? "");
    return this.#properties;
  }

  get rawProperties(): Buffer {
    return textOf(this.#propertyString) === undefined ? this.#propertyString : Buffer.alloc(0);
  }

  get bornTimeMs(): number {
    return this.#long(this.#at + 40);
  }

  get storeTimeMs(): number {
    return this.#long(this.#storeTime);
  }

  get bornHost(): Host {
    return this.#host(this.#at + 48, this.#storeTime);
  }

  get storeHost(): Host {
    return this.#host(this.#storeTime + 8, this.#body - 16);
  }

  get flag(): number {
    return this.#records.readInt32BE(this.#at + 16);
  }

  get sysFlag(): number {
    return this.#records.readInt32BE(this.#at + 36);
  }

  get reconsumeTimes(): number {
    return this.#records.readInt32BE(this.#body - 16);
  }

  get preparedTransactionOffset(): number {
    return this.#long(this.#body - 12);
  }

  get recordSizeBytes(): number {
    return this.#end - this.#at;
  }

  get offsetMessageId(): string {
    const host = this.#records.subarray(this.#storeTime + 8, this.#body - 16);
    return hexadecimal(host) + hexadecimal(this.#records.subarray(this.#at + 28, this.#at + 36));
  }

  /** Returns an object with all fields, for JSON and for the console. */
  toJSON(): StoredMessage {
    return Object.fromEntries(FIELDS.map((name) => [name, this[name]])) as unknown as StoredMessage;
  }

  [Symbol.for("nodejs.util.inspect.custom")](): StoredMessage {
    return this.toJSON();
  }

  get #propertyString(): Buffer {
    return this.#records.subarray(this.#topicEnd + 2, this.#end);
  }

  /** Returns a number of 64 bits. Throws RangeError beyond 2^53, where JavaScript has not all numbers. */
  #long(at: number): number {
    const high = this.#records.readInt32BE(at);
    if (!isNumber(high)) throw new RangeError("a time or an offset of the message is beyond 2^53");
    return high * 2 ** 32 + this.#records.readUInt32BE(at + 4);
  }

  #host(start: number, end: number): Host {
    return { address: this.#records.subarray(start, end - 4), port: this.#records.readInt32BE(end - 4) };
  }
}

// A record's message has the methods of Message (tag, keys and so on) and is one: `message instanceof Message`.
Object.setPrototypeOf(RecordMessage.prototype, Message.prototype);

const FIELDS = [
  "topic", "queueId", "queueOffset", "physicalOffset", "body", "properties", "bornTimeMs", "storeTimeMs", "bornHost",
  "storeHost", "flag", "sysFlag", "reconsumeTimes", "preparedTransactionOffset", "recordSizeBytes", "offsetMessageId",
  "rawProperties",
] as const satisfies readonly (keyof StoredMessage)[];

/** Returns whether JavaScript has a number of 64 bits exactly, by its upper half. */
function isNumber(high: number): boolean {
  return high >= -(2 ** 21) && high < 2 ** 21;
}

/** Returns UTF-8 as text, undefined for other bytes. */
function textOf(bytes: Buffer): string | undefined {
  try {
    return TEXT.decode(bytes);
  } catch {
    return undefined;
  }
}

/**
 * Returns the properties of a property string. A piece without a name or without a value is ignored. Of several equal
 * names the last is used.
 */
function propertiesOf(text: string): Record<string, string> {
  const found: Record<string, string> = {};
  for (const piece of text.split("\x02")) {
    const nameEnd = piece.indexOf("\x01");
    if (nameEnd > 0 && nameEnd < piece.length - 1) setProperty(found, piece.slice(0, nameEnd), piece.slice(nameEnd + 1));
  }
  delete found[CRC_PROPERTY];
  return found;
}

/** Sets an entry under any name. As a plain assignment, `__proto__` would change the object itself. */
function setProperty(entries: Record<string, string>, name: string, value: string): void {
  if (name === "__proto__") Object.defineProperty(entries, name, { value, enumerable: true, configurable: true, writable: true });
  else entries[name] = value;
}
