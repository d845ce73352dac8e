// SPDX-License-Identifier: Apache-2.0
// The stubs of all of Reput's APIs, for `Client.call`, and for gRPC's own clients of the other calls.

export * as commitlog from "./gen/index.reput.commitlog.v1.js";
export * as common from "./gen/index.reput.common.v1.js";
export * as indexer from "./gen/index.reput.indexer.v1.js";
export * as janitor from "./gen/index.reput.janitor.v1.js";
