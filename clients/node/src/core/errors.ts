// SPDX-License-Identifier: Apache-2.0
// Errors of this client: the decoded details of a failed call, so that callers can switch on a code or a reason. No
// I/O.

import { status, type StatusObject } from "@grpc/grpc-js";
import { BadRequest, ErrorInfo, RetryInfo } from "../gen/google/rpc/error_details.js";
import { Status } from "../gen/google/rpc/status.js";

/** The name of a status code of gRPC, such as `NOT_FOUND`. */
export type Code = keyof typeof status;

/** The details of a failed call, apart from its text. */
export interface ErrorDetails {
  code?: Code;
  reason?: string;
  metadata?: Readonly<Record<string, string>>;
  fields?: readonly string[];
  retryAfterMs?: number;
  isOutcomeUnknown?: boolean;
}

const DETAILS_KEY = "grpc-status-details-bin";
const DOMAIN = "reput";
/** The beginnings of gRPC's texts for a call without a connection; its codes do not show this. */
const NO_CONNECTION = /^(No connection established|Name resolution failed|Channel closed before call started)/;
/** The text of gRPC for Node.js for a broken connection; its code INTERNAL does not come from a server. */
const CONNECTION_BROKE = /^Received RST_STREAM with code \d+ (triggered by internal client error|\(Call ended without)/;
/** Codes with which a server refuses a stream before it reads its messages. */
const TURNED_AWAY: readonly Code[] = ["UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED"];

/** A call failed. */
export class ReputError extends Error {
  override readonly name = "ReputError";
  /** gRPC's status code, by its name. */
  readonly code: Code;
  /** A reason of docs/errors.md to switch on; empty if the answer did not come from Reput. */
  readonly reason: string;
  /** The values that belong to the reason: `field`, `value`, `limit` and others. */
  readonly metadata: Readonly<Record<string, string>>;
  /** Names of the request's invalid fields, such as `messages[0].topic`. */
  readonly fields: readonly string[];
  /** Milliseconds after which another attempt makes sense; undefined if the server gave no time. */
  readonly retryAfterMs: number | undefined;
  /** True for a message that may or may not be stored: it was sent, and its answer is lost. */
  readonly isOutcomeUnknown: boolean;
  /** A text for people, which may change at any time; `message` has the reason or the code before it. */
  readonly text: string;

  constructor(text: string, details: ErrorDetails = {}) {
    const { code = "UNKNOWN", reason = "" } = details;
    super(`${reason || code}: ${text}`);
    this.text = text;
    this.code = code;
    this.reason = reason;
    this.metadata = details.metadata ?? {};
    this.fields = details.fields ?? [];
    this.retryAfterMs = details.retryAfterMs;
    this.isOutcomeUnknown = details.isOutcomeUnknown ?? false;
  }

  /** The invalid field, if the server named a field. */
  get field(): string | undefined {
    return this.metadata.field ?? this.fields[0];
  }

  /** The refused value, if the server named it. */
  get value(): string | undefined {
    return this.metadata.value;
  }

  /** The limit that the value breaks, if the server named it. */
  get limit(): string | undefined {
    return this.metadata.limit;
  }
}

/** Returns the error that a google.rpc.Status describes. Throws if its details can't be read. */
export function fromStatus(answer: Status): ReputError {
  const details: ErrorDetails = { code: codeName(answer.code) };
  for (const { typeUrl, value } of answer.details) {
    const type = typeUrl.slice(typeUrl.lastIndexOf("/") + 1);
    if (type === "google.rpc.ErrorInfo") {
      const info = ErrorInfo.decode(value);
      if (info.domain === DOMAIN) {
        details.reason = info.reason;
        details.metadata = info.metadata;
      }
    } else if (type === "google.rpc.BadRequest") {
      details.fields = BadRequest.decode(value).fieldViolations.map((violation) => violation.field);
    } else if (type === "google.rpc.RetryInfo") {
      const { seconds = 0, nanos = 0 } = RetryInfo.decode(value).retryDelay ?? {};
      details.retryAfterMs = seconds * 1000 + nanos / 1e6;
    }
  }
  return new ReputError(answer.message, details);
}

/** Returns the error of a call that ended with this status of gRPC's. */
export function fromCall(ended: Pick<StatusObject, "code" | "details" | "metadata">): ReputError {
  const [bytes] = ended.metadata.get(DETAILS_KEY);
  if (bytes instanceof Buffer) {
    try {
      return fromStatus(Status.decode(bytes));
    } catch {
      // Not a Status: from a proxy. The plain code is used.
    }
  }
  const code = CONNECTION_BROKE.test(ended.details) ? "UNAVAILABLE" : codeName(ended.code);
  return new ReputError(ended.details || "no text", { code });
}

/** Returns the error for a stream that the server ended too early. */
export function streamEnded(): ReputError {
  return new ReputError("the server ended the stream", { code: "UNAVAILABLE" });
}

/** Returns the error for an inconsistent answer. */
export function nonsense(failure: unknown): ReputError {
  const why = failure instanceof Error ? failure.message : failure;
  return new ReputError(`the server's answer makes no sense: ${why}`, { code: "INTERNAL" });
}

/** Returns the error for a use of a closed client, producer or the like. */
export function closed(what: string): ReputError {
  return new ReputError(`the ${what} is closed`, { code: "CANCELLED" });
}

/** Returns the error of messages that may have reached the server and whose answer is lost. */
export function outcomeUnknown(error: ReputError): ReputError {
  const text = `${error.text}; the message may or may not be stored`;
  const { code, reason, metadata, fields, retryAfterMs } = error;
  return new ReputError(text, { code, reason, metadata, fields, retryAfterMs, isOutcomeUnknown: true });
}

/** Returns whether messages of a stream that ended with this error may have been stored. */
export function mayHaveArrived(error: ReputError): boolean {
  const isUnsent = error.code === "UNAVAILABLE" && NO_CONNECTION.test(error.text);
  return !isUnsent && !TURNED_AWAY.includes(error.code);
}

function codeName(code: number): Code {
  return (status[code] as Code | undefined) ?? "UNKNOWN";
}
