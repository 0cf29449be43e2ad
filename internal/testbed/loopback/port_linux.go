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

// hold binds a socket that never listens. While both have SO_REUSEADDR, as all listeners of Go have, Linux lets one listener bind
// beside it, but gives the port to nobody who left the choice to the kernel.
func hold(_ context.Context, number int) (*Port, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a socket: %w", err)
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
	// A port that is asked for by its number may have connections that ended a moment ago; any port must have nobody.
	if number != 0 {
		if err := reuse(); err != nil {
			return 0, fmt.Errorf("share the port: %w", err)
		}
	}
	if err := unix.Bind(fd, address); err != nil {
		return 0, fmt.Errorf("bind: %w", err)
	}
	if err := reuse(); err != nil {
		return 0, fmt.Errorf("share the port: %w", err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return 0, fmt.Errorf("read the port: %w", err)
	}
	bound, ok := name.(*unix.SockaddrInet4)
	if !ok {
		return 0, fmt.Errorf("read the port: %T is not an address of IPv4", name)
	}
	return bound.Port, nil
}
