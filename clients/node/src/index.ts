// SPDX-License-Identifier: Apache-2.0
// The public names of the package `reput-client`.

export { type Client, connect } from "./client.js";
export type { Method, RunOptions } from "./channels.js";
export type { Consumer, ConsumerOptions } from "./consumer.js";
export { type Code, type ErrorDetails, ReputError } from "./core/errors.js";
export { type Durability, Message, type NewMessage, type Place, SendResult, type Time } from "./core/message.js";
export type { ClientOptions, ProducerOptions } from "./core/options.js";
export type { RetryOptions } from "./core/retry.js";
export type { Producer } from "./producer.js";
export type { KeyMessages, PullOptions, PullResult, PullStatus, Queries, QueryOptions } from "./queries.js";
