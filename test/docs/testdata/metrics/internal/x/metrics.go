// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package x has metrics in every form that the page of metrics understands.
package x

import "github.com/prometheus/client_golang/prometheus"

const prefix = "crane_"

var labels = []string{"x", "y"}

var aDesc = prometheus.NewDesc(prefix+"a_total", "Plain.", labels, nil)

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+name, help, labels, nil)
}

var bDesc = newDesc("b", "By a wrapper.")

func make() {
	first := []string{"x"}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	_ = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "crane",
		Subsystem: "c",
		Name:      "d_seconds",
		Help:      "By parts.",
	})

	_ = counter("crane_e_total", "By a closure.", first...)
	_ = newDesc("f", "Appended labels.", append(first, "z")...)
	_ = prometheus.NewCounter(prometheus.CounterOpts{Name: name(), Help: "Unknown."})
}
