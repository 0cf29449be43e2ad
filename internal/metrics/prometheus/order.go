// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"iter"
	"sync"

	"crane.io/crane/internal/component/recovery"
)

// inOrder runs up to workers jobs at once and returns their results in the order of the jobs. A job whose result has not been consumed
// keeps its slot, so that at most that many results are held. The first error, in the order of the jobs, is the last element and cancels
// all jobs, as does a consumer that stops early.
func inOrder[T any](ctx context.Context, workers int, jobs []func(context.Context) (T, error)) iter.Seq2[T, error] {
	type result struct {
		value T
		err   error
	}

	return func(yield func(T, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()

		slots := make(chan struct{}, workers)
		queue := make(chan chan result, workers)
		running.Go(func() {
			defer close(queue)

			for _, run := range jobs {
				select {
				case slots <- struct{}{}:
				case <-ctx.Done():
					return
				}

				done := make(chan result, 1)
				queue <- done // Never blocks, as the job holds a slot.
				running.Go(func() {
					value, err := recovery.Value(ctx, func() (T, error) { return run(ctx) })
					done <- result{value, err}
				})
			}
		})

		for done := range queue {
			r := <-done
			if r.err == nil && ctx.Err() != nil {
				r.err = context.Cause(ctx)
			}

			if !yield(r.value, r.err) || r.err != nil {
				return
			}

			<-slots
		}

		if ctx.Err() != nil {
			var none T
			yield(none, context.Cause(ctx))
		}
	}
}

// interner returns one copy of each of a bounded number of strings: the names of namespaces and containers recur with each series of each
// day. It is safe for concurrent use.
type interner struct {
	mu       sync.Mutex
	interned map[string]string
}

const maxInterned = 1 << 16

func newInterner() *interner { return &interner{interned: map[string]string{}} }

func (n *interner) intern(b []byte) string {
	n.mu.Lock()
	defer n.mu.Unlock()

	if s, ok := n.interned[string(b)]; ok {
		return s
	}

	s := string(b)
	if len(n.interned) < maxInterned {
		n.interned[s] = s
	}

	return s
}
