// SPDX-License-Identifier: Apache-2.0

// Package reput is the Go client of Reput: a batching producer, a consumer with committed offsets, pulls, and queries
// by key, time and id.
//
// [Connect] gives a [Client], which any number of goroutines may share. Calls that failed for a passing reason are
// repeated within the time-out; the error of a call is an [*Error]. What the client itself refuses, without a call,
// wraps [ErrArgument], and what comes behind Close wraps [ErrClosed]. Calls for which there is no method here are
// made with the stubs of the folder reputpb over [Client.Commitlog] and [Client.Indexer].
package reput
