// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package loopback

import (
	"context"
	"fmt"
	"net"
	"strconv"
)

// IP is the address on which ports are reserved.
const IP = "127.0.0.1"

// Port is a reserved port. Any process that knows its number can listen on it, stop, and listen again. On Linux the
// kernel assigns it neither to listeners on port 0 nor to outgoing connections, and Reserve does not return it again,
// until Close. On other systems the port was merely free when Reserve was called.
type Port struct {
	number int
	close  func() error
}

// Reserve reserves the port of that number, or any free one if number is 0. It returns an error if another process
// listens on the port.
func Reserve(ctx context.Context, number int) (*Port, error) {
	p, err := reserve(ctx, number)
	if err != nil {
		return nil, fmt.Errorf("reserving port %d of %s: %w", number, IP, err)
	}

	return p, nil
}

// Number returns the port number.
func (p *Port) Number() int { return p.number }

// Address returns host:port.
func (p *Port) Address() string { return net.JoinHostPort(IP, strconv.Itoa(p.number)) }

// Close ends the reservation. Listeners on the port are not affected. It must be called once.
func (p *Port) Close() error {
	if err := p.close(); err != nil {
		return fmt.Errorf("releasing port %d of %s: %w", p.number, IP, err)
	}

	return nil
}
