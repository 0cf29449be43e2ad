// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fleet runs simulated nodes for the tests of a package.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/simnode"
)

// bound limits the start of the nodes.
const bound = 2 * time.Minute

// Beside returns a function for harness.Suite.Beside that runs nodes. They start pods in a tenth of a second.
func Beside(config simnode.Config) func(context.Context, *controlplane.ControlPlane) (func() error, error) {
	return func(ctx context.Context, c *controlplane.ControlPlane) (func() error, error) {
		config.Client = c.Config()
		config.Timing = simnode.DefaultTiming()
		config.Timing.Create = 100 * time.Millisecond
		config.Timing.Ready = 100 * time.Millisecond
		_, stop, err := Start(ctx, config)

		return stop, err
	}
}

// Start runs nodes until stop is called, and waits until they are ready.
func Start(ctx context.Context, config simnode.Config) (nodes *simnode.Fleet, stop func() error, err error) {
	nodes, err = simnode.New(config)
	if err != nil {
		return nil, nil, fmt.Errorf("simulated nodes: %w", err)
	}

	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- nodes.Run(ctx) }()
	stop = func() error {
		cancel()
		return <-ended
	}

	select {
	case <-nodes.Ready():
		return nodes, stop, nil
	case err := <-ended:
		cancel()
		return nil, nil, errors.Join(errors.New("the simulated nodes did not start"), err)
	case <-time.After(bound):
		return nil, nil, errors.Join(fmt.Errorf("the simulated nodes are not ready after %s", bound), stop())
	}
}
