// SPDX-License-Identifier: Apache-2.0
// Options: addresses and credentials of the services, from arguments, then the environment, then defaults. No I/O
// except `read`.

import { RetryPolicy, type RetryOptions } from "./retry.js";
import { durabilityNumber, type Durability } from "./message.js";
import { TIMER_MS_MAX } from "./signal.js";

/** Largest answer or request of the transport; servers answer with about 8 MiB and accept batches of 16 MiB. */
export const MESSAGE_SIZE_BYTES_MAX = 64 << 20;

/**
 * The options of a client. A given option takes precedence over the environment, and the environment over the default.
 */
export interface ClientOptions {
  /**
   * The store: host:port of its gateway, which serves all APIs, or several with commas. REPUT_CLIENT_STORE_TARGET. It
   * is the address of each service without an address of its own; services at the same address share a connection.
   */
  store?: string;
  /**
   * The CommitLog: host:port, or several with commas. REPUT_CLIENT_COMMITLOG_TARGET, 127.0.0.1:7101. Calls use the
   * first address, the next when it can't be reached or shuts down, and the leader that a follower names.
   */
  commitlog?: string;
  /** The Indexer: host:port, or several with commas. REPUT_CLIENT_INDEXER_TARGET, 127.0.0.1:7102. */
  indexer?: string;
  /** File of PEM authorities, or "system" for the authorities of Node.js; turns TLS on. REPUT_CLIENT_CA_FILE. */
  caFile?: string;
  /** File of the client's own PEM certificate, for mutual TLS. REPUT_CLIENT_CERTIFICATE_FILE. */
  certificateFile?: string;
  /** File of its PEM key. REPUT_CLIENT_KEY_FILE. */
  keyFile?: string;
  /** Bearer token. REPUT_CLIENT_TOKEN, or the first word of the file REPUT_CLIENT_TOKEN_FILE. */
  token?: string;
  /** Longest time of a call with all its retries, in milliseconds, from 1 to 2^31 - 1. 30,000 unless given. */
  timeoutMs?: number;
  /** The retries of calls, and of producers without their own retries. */
  retry?: RetryOptions;
}

/** The options of a producer: batches, waiting and retries. */
export interface ProducerOptions {
  /**
   * How long the first message of a batch waits for others if no caller waits for an outcome, in milliseconds, from 0 to
   * 2^31 - 1. 5 unless given.
   */
  lingerMs?: number;
  /**
   * A batch is sent when it has so many bytes, at any age: from 1 to 8 MiB, and to `windowBytes`. 512 KiB, or the
   * window if that is smaller, unless given.
   */
  batchSizeBytes?: number;
  /** Bytes of messages whose outcome is not known; `send` waits while there are more. From 1, 8 MiB unless given. */
  windowBytes?: number;
  /** The level that the store waits for before it answers; the store's own level unless given. */
  durability?: Durability;
  /** The retries of failed batches; the client's retries unless given. With 0 retries no message is stored twice. */
  retry?: RetryOptions;
  /** Whether messages without a unique id get a unique id. True unless given. */
  uniqueIds?: boolean;
}

type Targets = [string, ...string[]];

/** ClientOptions with all values set. */
export interface Settings extends Required<Omit<ClientOptions, "store" | "commitlog" | "indexer" | "retry">> {
  targets: { commitlog: Targets; indexer: Targets };
  retry: RetryPolicy;
}

/** ProducerOptions with all values set. */
export interface ProducerSettings extends Required<Omit<ProducerOptions, "durability" | "retry">> {
  durability: number;
  retry: RetryPolicy;
}

const BATCH_SIZE_BYTES_MAX = 8 << 20;

/** Merges options over the environment. `read` returns a file's text. Throws RangeError for invalid options. */
export function clientSettings(
  options: ClientOptions,
  environment: Readonly<Record<string, string | undefined>>,
  read: (file: string) => string,
): Settings {
  const valueOf = (given: string | undefined, name: string) => given ?? environment[`REPUT_CLIENT_${name}`] ?? "";
  const { timeoutMs = 30_000, retry } = options;
  if (!(timeoutMs > 0 && timeoutMs <= TIMER_MS_MAX)) {
    throw new RangeError(`timeoutMs is ${timeoutMs}, not from 1 to 2^31 - 1`);
  }
  const tokenFile = environment.REPUT_CLIENT_TOKEN_FILE;
  const token = valueOf(options.token, "TOKEN");
  const isOfFile = options.token === undefined && token === "" && tokenFile;
  // A given store takes precedence over all addresses of the environment: parts of two stores are never mixed.
  const addressesOf = (given: string | undefined, name: string, otherwise: string) =>
    targets(valueOf(given ?? options.store, `${name}_TARGET`), valueOf(undefined, "STORE_TARGET") || otherwise);
  const settings = {
    targets: {
      commitlog: addressesOf(options.commitlog, "COMMITLOG", "127.0.0.1:7101"),
      indexer: addressesOf(options.indexer, "INDEXER", "127.0.0.1:7102"),
    },
    caFile: valueOf(options.caFile, "CA_FILE"),
    certificateFile: valueOf(options.certificateFile, "CERTIFICATE_FILE"),
    keyFile: valueOf(options.keyFile, "KEY_FILE"),
    token: isOfFile ? (read(tokenFile).trim().split(/\s+/)[0] as string) : token,
    timeoutMs,
    retry: new RetryPolicy(retry),
  };
  if (settings.caFile === "" && settings.certificateFile + settings.keyFile !== "") {
    throw new RangeError("certificateFile and keyFile are for TLS, which caFile turns on");
  }
  return settings;
}

/** Checks a producer's options and fills in the defaults. Throws RangeError. */
export function producerSettings(options: ProducerOptions, retry: RetryPolicy): ProducerSettings {
  const { lingerMs = 5, windowBytes = 8 << 20, uniqueIds = true } = options;
  const { batchSizeBytes = Math.min(512 << 10, windowBytes) } = options;
  if (!(lingerMs >= 0 && lingerMs <= TIMER_MS_MAX)) {
    throw new RangeError(`lingerMs is ${lingerMs}, not from 0 to 2^31 - 1`);
  }
  if (!(batchSizeBytes >= 1 && batchSizeBytes <= Math.min(windowBytes, BATCH_SIZE_BYTES_MAX))) {
    throw new RangeError(`batchSizeBytes is ${batchSizeBytes}, not from 1 to 8 MiB and windowBytes (${windowBytes})`);
  }
  return {
    lingerMs,
    batchSizeBytes,
    windowBytes,
    durability: durabilityNumber(options.durability),
    retry: options.retry === undefined ? retry : new RetryPolicy(options.retry),
    uniqueIds,
  };
}

/** Tells whether a target is a socket or a loopback address of this machine. */
export function isLocal(target: string): boolean {
  return /^(unix:|localhost:|127(\.\d+){3}:|\[::1\]:)/.test(target);
}

/** Returns the addresses of a list. Throws RangeError for an invalid address. */
function targets(text: string, otherwise: string): Targets {
  const [first = otherwise, ...others] = text.split(",").map((target) => target.trim()).filter(Boolean);
  const wrong = [first, ...others].find((target) => !/^(unix:.+|\S+:\d+)$/.test(target));
  if (wrong !== undefined) throw new RangeError(`${wrong} is no address: use host:port`);
  return [first, ...others];
}
