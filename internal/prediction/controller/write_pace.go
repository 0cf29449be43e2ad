// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/prediction/predictor"
)

// maxWriteInterval is the largest interval between two writes of a status that is still incomplete.
const maxWriteInterval = 5 * time.Minute

// writePaces bounds how often the status of an object is written while the histories of its metrics are read. Each of 100 metrics may become
// known by itself, and each write costs the API server the whole object. The zero value is empty.
type writePaces struct {
	mu     sync.Mutex
	byName map[types.NamespacedName]writePace
}

// writePace has the times of the first and the last write of a generation.
type writePace struct {
	generation  int64
	first, last time.Time
}

// countPending returns the number of metrics whose history was not read yet.
func countPending(seen []metricState) int {
	n := 0
	for _, o := range seen {
		if o.refused == nil && o.status.State == predictor.Pending {
			n++
		}
	}

	return n
}

// wait returns how long the next write must wait; 0 for now. While metrics are pending, intervals double. A status that has become complete, or
// is that of another spec, is written at once.
func (p *writePaces) wait(tsp *predictionv1alpha1.TimeSeriesPrediction, seen []metricState, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()

	last, ok := p.byName[client.ObjectKeyFromObject(tsp)]
	pending := countPending(seen)
	if !ok || last.generation != tsp.Generation || pending == 0 {
		return 0
	}

	interval := min(maxWriteInterval, max(time.Second, last.last.Sub(last.first)))
	return max(0, last.last.Add(interval).Sub(now))
}

// record records a write.
func (p *writePaces) record(tsp *predictionv1alpha1.TimeSeriesPrediction, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.byName == nil {
		p.byName = map[types.NamespacedName]writePace{}
	}

	name := client.ObjectKeyFromObject(tsp)
	pace := p.byName[name]
	if pace.generation != tsp.Generation {
		pace = writePace{generation: tsp.Generation, first: now}
	}

	pace.last = now
	p.byName[name] = pace
}

func (p *writePaces) forget(name types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()

	delete(p.byName, name)
}
