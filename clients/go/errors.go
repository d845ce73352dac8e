// SPDX-License-Identifier: Apache-2.0

package reput

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrArgument is wrapped by errors of arguments that the client itself refuses. Nothing was sent then.
var ErrArgument = errors.New("reput: refused")

// ErrClosed is returned by uses after Close.
var ErrClosed = errors.New("reput: closed")

// The domain of the details of Reput's errors.
const errorDomain = "reput"

// Reasons after which another address is better. docs/errors.md has all reasons.
const (
	reasonNotLeader             = "NOT_LEADER"
	reasonLeaseOver             = "LEASE_OVER"
	reasonStopping              = "STOPPING"
	reasonDependencyUnavailable = "DEPENDENCY_UNAVAILABLE"
)

// reasonAfterRefusal is the reason of the refusal of a batch that needs the batch before it.
const reasonAfterRefusal = "AFTER_REFUSAL"

// Error is the failure of a call, or of a sent message. Messages that failed together share it: don't change it.
// errors.Is finds context.Canceled and context.DeadlineExceeded in errors with these codes.
type Error struct {
	// Code is gRPC's code.
	Code codes.Code
	// Reason is a reason of docs/errors.md. Empty: the answer did not come from Reput.
	Reason string
	// Text is for people. It may change at any time.
	Text string
	// Metadata has the values that belong to the reason: field, value, limit and others.
	Metadata map[string]string
	// Fields are the names of the request's invalid fields, such as messages[0].topic.
	Fields []string
	// RetryAfter is the time after which another attempt makes sense. Zero: the server gave no time.
	RetryAfter time.Duration
	// IsOutcomeUnknown: the message may or may not be stored.
	IsOutcomeUnknown bool
}

// Error returns the reason, or the code without a reason, and the text.
func (e *Error) Error() string {
	text := "reput: " + cmp.Or(e.Reason, e.CodeName()) + ": " + e.Text
	if e.IsOutcomeUnknown {
		text += "; the message may or may not be stored"
	}
	return text
}

// CodeName returns gRPC's name of the code, such as INVALID_ARGUMENT.
func (e *Error) CodeName() string { return code.Code(e.Code).String() }

// Field returns the path of the invalid field, empty if none is named.
func (e *Error) Field() string { return e.Metadata["field"] }

// Value returns the value that was refused, empty if none is named.
func (e *Error) Value() string { return e.Metadata["value"] }

// Limit returns the limit that the value broke, empty if none is named.
func (e *Error) Limit() string { return e.Metadata["limit"] }

// GRPCStatus lets status.Code and status.Convert of gRPC read the error.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Text) }

// Is reports whether the error stands for the end of a context.
func (e *Error) Is(target error) bool {
	return target == context.Canceled && e.Code == codes.Canceled ||
		target == context.DeadlineExceeded && e.Code == codes.DeadlineExceeded
}

// asError returns the Error for an error of a gRPC call.
func asError(err error) *Error {
	if failure, ok := errors.AsType[*Error](err); ok {
		return failure
	}
	return fromStatus(status.Convert(err))
}

// fromStatus returns the error that a status describes. Details that can't be read are left out.
func fromStatus(described *status.Status) *Error {
	failure := &Error{Code: described.Code(), Text: described.Message()}
	for _, detail := range described.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			if detail.GetDomain() == errorDomain {
				failure.Reason, failure.Metadata = detail.GetReason(), detail.GetMetadata()
			}
		case *errdetails.BadRequest:
			for _, violation := range detail.GetFieldViolations() {
				failure.Fields = append(failure.Fields, violation.GetField())
			}
		case *errdetails.RetryInfo:
			failure.RetryAfter = detail.GetRetryDelay().AsDuration()
		}
	}
	return failure
}

// streamEnded returns the error for a stream that the server ended too early.
func streamEnded() *Error {
	return &Error{Code: codes.Unavailable, Text: "the server ended the stream"}
}

// nonsense returns the error for an inconsistent answer.
func nonsense(why string) *Error {
	return &Error{Code: codes.Internal, Text: "the server's answer makes no sense: " + why}
}

// refusesCall reports whether a stream with this code was refused before the server read its messages.
func refusesCall(code codes.Code) bool {
	return code == codes.Unauthenticated || code == codes.PermissionDenied || code == codes.Unimplemented
}

// badArgument returns an error that wraps ErrArgument and describes the mistake.
func badArgument(format string, values ...any) error {
	return fmt.Errorf("%w: %s", ErrArgument, fmt.Sprintf(format, values...))
}
