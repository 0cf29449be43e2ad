// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package loopback

import (
	"context"
	"fmt"
	"net"
	"strconv"
)

// IP is the address whose ports are kept.
const IP = "127.0.0.1"

// Port is a port that is kept for whoever is told of it: a server of this process or of another can listen on it, end, and listen
// again. On Linux nobody gets it by chance from Hold until Close: neither who asks the kernel or Hold for any port, nor a connection
// that goes out. Elsewhere it is only known to have been free.
type Port struct {
	number int
	close  func() error
}

// Hold keeps the port of that number, or any free one where it is 0. It is an error if somebody listens there.
func Hold(ctx context.Context, number int) (*Port, error) {
	p, err := hold(ctx, number)
	if err != nil {
		return nil, fmt.Errorf("keep port %d of %s: %w", number, IP, err)
	}
	return p, nil
}

// Number is the number of the port.
func (p *Port) Number() int { return p.number }

// Address is host:port.
func (p *Port) Address() string { return net.JoinHostPort(IP, strconv.Itoa(p.number)) }

// Close keeps the port no longer. Who listens on it goes on. It is to be called once.
func (p *Port) Close() error {
	if err := p.close(); err != nil {
		return fmt.Errorf("give back port %d of %s: %w", p.number, IP, err)
	}
	return nil
}
