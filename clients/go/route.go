// SPDX-License-Identifier: Apache-2.0

package reput

import (
	"slices"
	"strings"
	"unicode"

	"google.golang.org/grpc/codes"
)

// route says which of a service's addresses calls go to. No I/O; one caller at a time.
//
// The address stays until a call shows that another one is better: a log that follows another one names its leader, and
// one that can't be reached, does not answer in time, is shutting down, or lacks a service that it needs, makes room for
// the next of the list.
type route struct {
	addresses []string
	// address is where the next call goes.
	address string
}

// newRoute takes one address, or several with commas between them.
func newRoute(list string) (route, error) {
	addresses := strings.FieldsFunc(list, func(char rune) bool { return char == ',' || unicode.IsSpace(char) })
	if len(addresses) == 0 {
		return route{}, badArgument("a service has no address")
	}
	return route{addresses: addresses, address: addresses[0]}, nil
}

// onFailure takes note of the error of a call that went to an address.
func (r *route) onFailure(address string, failure *Error) {
	if address != r.address { // another call has found out before
		return
	}
	if leader := failure.Metadata["leader"]; failure.Reason == reasonNotLeader && leader != "" {
		r.address = leader
	} else if makesRoom(failure) {
		// Behind an address that is not in the list, whose index is -1, comes the first one.
		r.address = r.addresses[(slices.Index(r.addresses, address)+1)%len(r.addresses)]
	}
}

// makesRoom tells whether the next address of the list may do better.
func makesRoom(failure *Error) bool {
	switch failure.Reason {
	case reasonNotLeader, reasonStopping, reasonLeaseOver, reasonDependencyUnavailable:
		return true
	case "":
		return failure.Code == codes.Unavailable || failure.Code == codes.DeadlineExceeded
	}
	return false
}
