// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import "time"

// reportEvery is the time between two reports of a node.
const reportEvery = time.Minute

// reports are the latest CPU loads of nodes that have arrived through a pipeline with the scenario's delay.
type reports struct {
	env   Env
	loads []float64
}

func newReports(env Env, nodes int) *reports {
	return &reports{env: env, loads: make([]float64, nodes)}
}

func (r *reports) cpu(node int) float64 { return r.loads[node] }

func (r *reports) start() { r.env.At(r.env.Now(), r.round) }

// round reads all nodes; the values arrive after the delay.
func (r *reports) round() {
	r.env.At(r.env.Now()+reportEvery, r.round)
	if r.env.Meter().Down(r.env.Now()) {
		return
	}
	read := make([]float64, len(r.loads))
	for i := range read {
		read[i] = r.loads[i]
		if v, ok := r.env.Meter().Read("cpu_usage_avg_5m", i); ok {
			read[i] = v
		}
	}
	r.env.At(r.env.Now()+r.env.Spec().Metrics.Delay.Duration, func() { copy(r.loads, read) })
}
