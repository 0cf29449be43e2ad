// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package loopback

import (
	"context"
	"fmt"
	"net"
	"strconv"
)

// reserve finds a free port. Not every system lets a listener bind to a port that another socket is bound to.
func hold(ctx context.Context, number int) (*Port, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", net.JoinHostPort(IP, strconv.Itoa(number)))
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	defer l.Close()

	address, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return nil, fmt.Errorf("%s is not a TCP address", l.Addr())
	}

	return &Port{number: address.Port, close: func() error { return nil }}, nil
}
