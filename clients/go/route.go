// SPDX-License-Identifier: Apache-2.0

package reput

import (
	"slices"
	"strings"
	"unicode"

	"google.golang.org/grpc/codes"
)

// route is the current address of a service. No I/O; a single caller at a time.
//
// The address stays until a call shows that another address is better. A follower of a log names its leader, whose
// address is then used. The next address of the list is used after an address that can't be reached, does not answer in
// time, shuts down, or lacks a service that it needs.
type route struct {
	addresses []string
	// address is the address of the next call.
	address string
}

// newRoute takes an address, or several with commas between them.
func newRoute(list string) (route, error) {
	addresses := strings.FieldsFunc(list, func(char rune) bool { return char == ',' || unicode.IsSpace(char) })
	if len(addresses) == 0 {
		return route{}, badArgument("a service has no address")
	}
	return route{addresses: addresses, address: addresses[0]}, nil
}

// onFailure changes the address if the error of a call to an address asks for it.
func (r *route) onFailure(address string, failure *Error) {
	if address != r.address { // another call has changed the address already
		return
	}
	if leader := failure.Metadata["leader"]; failure.Reason == reasonNotLeader && leader != "" {
		r.address = leader
	} else if makesRoom(failure) {
		// After an address that is not in the list, whose index is -1, the first address of the list is used.
		r.address = r.addresses[(slices.Index(r.addresses, address)+1)%len(r.addresses)]
	}
}

// makesRoom reports whether the next address of the list may work.
func makesRoom(failure *Error) bool {
	switch failure.Reason {
	case reasonNotLeader, reasonStopping, reasonLeaseOver, reasonDependencyUnavailable:
		return true
	case "":
		return failure.Code == codes.Unavailable || failure.Code == codes.DeadlineExceeded
	}
	return false
}
