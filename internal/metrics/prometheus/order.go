// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"sync"
)

// job does its work in parallel with others and returns what remains to be done in order.
type job func(ctx context.Context) (deliver func() error, err error)

type outcome struct {
	deliver func() error
	err     error
}

// inOrder runs up to workers jobs at once and calls what they return one by one, in the order of the jobs. A job whose
// turn has not come keeps its place, so that no more than workers results are ever held. The first error, in the order
// of the jobs, ends all of them.
func inOrder(ctx context.Context, workers int, jobs []job) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	places := make(chan struct{}, workers)
	queue := make(chan chan outcome, workers)
	running.Go(func() {
		defer close(queue)
		for _, j := range jobs {
			select {
			case places <- struct{}{}:
			case <-ctx.Done():
				return
			}
			done := make(chan outcome, 1)
			queue <- done // never blocks: a place was taken
			running.Go(func() {
				deliver, err := j(ctx)
				done <- outcome{deliver, err}
			})
		}
	})
	for done := range queue {
		o := <-done
		if o.err != nil {
			return o.err
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := o.deliver(); err != nil {
			return err
		}
		<-places
	}
	return context.Cause(ctx)
}

// interner keeps one copy of each of a bounded number of strings: the names of namespaces and containers come back
// with each series of each day.
type interner struct {
	mu    sync.Mutex
	known map[string]string
}

const maxInterned = 1 << 16

func newInterner() *interner { return &interner{known: map[string]string{}} }

func (n *interner) str(b []byte) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s, ok := n.known[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(n.known) < maxInterned {
		n.known[s] = s
	}
	return s
}
