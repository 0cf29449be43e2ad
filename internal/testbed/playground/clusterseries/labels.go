// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterseries

import (
	"regexp"

	"github.com/prometheus/prometheus/model/labels"

	"crane.io/crane/internal/testbed/promserver"
)

// Job names of the exporters and parameters of their series.
const (
	JobKubelet      = "kubelet"
	JobState        = "kube-state-metrics"
	JobNode         = "node-exporter"
	stateInstance   = "kube-state-metrics:8080"
	nodePort        = ":9100"
	cadvisorPath    = "/metrics/cadvisor"
	scrapeDuration  = 0.02
	fractionOfBusy  = 0.8 // of a node's busy time that is spent in user mode
	networkSentPart = 0.7 // bytes sent for each one received
)

// sink receives one sample: the metric's name, its value, and labels as alternating names and values.
type sink func(name string, value float64, pairs ...string)

// with returns a sink that adds labels to all samples.
func (s sink) with(more ...string) sink {
	return func(name string, value float64, pairs ...string) {
		s(name, value, append(append(make([]string, 0, len(pairs)+len(more)), pairs...), more...)...)
	}
}

// labelSet returns sorted labels without empty ones, as in a scrape.
func labelSet(name string, pairs []string) labels.Labels {
	kept := make([]labels.Label, 0, len(pairs)/2+1)
	kept = append(kept, labels.Label{Name: labels.MetricName, Value: name})
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			kept = append(kept, labels.Label{Name: pairs[i], Value: pairs[i+1]})
		}
	}
	return labels.New(kept...)
}

// collect returns a sink that appends samples to into.
func collect(into *[]promserver.Sample) sink {
	return func(name string, value float64, pairs ...string) {
		*into = append(*into, promserver.Sample{Labels: labelSet(name, pairs), Value: value})
	}
}

// objectLabels returns an object's labels as kube-state-metrics exposes them: prefixed by label_, with characters that
// are invalid in label names replaced by underscores.
func objectLabels(own map[string]string, invalid *regexp.Regexp) []string {
	pairs := make([]string, 0, 2*len(own))
	for name, value := range own {
		pairs = append(pairs, "label_"+invalid.ReplaceAllString(name, "_"), value)
	}
	return pairs
}

// invalidInLabel matches characters that are invalid in label names.
func invalidInLabel() *regexp.Regexp { return regexp.MustCompile(`[^a-zA-Z0-9_]`) }

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
