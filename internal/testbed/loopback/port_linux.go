// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package loopback

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// reserve binds a socket that never listens. If both sockets set SO_REUSEADDR, as all listeners of Go do, Linux lets
// one listener bind to the same port, but never assigns that port to sockets that request port 0.
func reserve(_ context.Context, number int) (*Port, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("creating socket: %w", err)
	}

	number, err = bind(fd, number)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}

	return &Port{number: number, close: func() error { return unix.Close(fd) }}, nil
}

func bind(fd, number int) (int, error) {
	reuse := func() error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) }
	address := &unix.SockaddrInet4{Port: number, Addr: netip.MustParseAddr(IP).As4()}

	// A requested port may have recently closed connections; an automatically assigned port must have none.
	if number != 0 {
		if err := reuse(); err != nil {
			return 0, fmt.Errorf("sharing the port: %w", err)
		}
	}

	if err := unix.Bind(fd, address); err != nil {
		return 0, fmt.Errorf("bind: %w", err)
	}

	if err := reuse(); err != nil {
		return 0, fmt.Errorf("sharing the port: %w", err)
	}

	name, err := unix.Getsockname(fd)
	if err != nil {
		return 0, fmt.Errorf("reading the port: %w", err)
	}

	bound, ok := name.(*unix.SockaddrInet4)
	if !ok {
		return 0, fmt.Errorf("read the port: %T is not an IPv4 address", name)
	}

	return bound.Port, nil
}
