// SPDX-License-Identifier: Apache-2.0

// Package reput is the Go client of Reput: a batching producer, a consumer with committed offsets, pulls, and queries
// by key, time and id.
//
// [Connect] returns a [Client], which any number of goroutines may share. A call that fails for a temporary reason is
// retried within the time-out; the error of a call is an [*Error]. Errors of arguments that the client itself refuses,
// without a call, wrap [ErrArgument]. Uses after Close return [ErrClosed]. Calls without a method here are made with
// the stubs of the folder reputpb over [Client.Commitlog] and [Client.Indexer].
package reput
