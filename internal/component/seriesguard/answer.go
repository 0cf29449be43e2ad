// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package seriesguard

import (
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

const (
	// maxLabelBytes bounds a label. Names of Kubernetes have at most 317 characters.
	maxLabelBytes = 1024
	// maxBytes bounds the series of a collector in the text format. 20,000 workloads with one container take 27 MiB.
	maxBytes = 32 << 20
	// maxNamespaceBytes bounds those of a namespace.
	maxNamespaceBytes = maxBytes / 2
	// sampleBytes is the size of a value in the text format, and of the signs around labels.
	sampleBytes = 32
)

// answer holds the series of a collector for one answer.
type answer struct {
	names   map[*prometheus.Desc]string
	seed    maphash.Seed
	seen    map[uint64]bool
	series  []series
	used    map[string]int
	total   int
	share   int
	leftOut map[leftOut]int
}

// series is one series that is kept.
type series struct {
	metric    written
	name      string
	namespace string
	bytes     int
}

// leftOut is the metric of a series that is left out, and the reason.
type leftOut struct{ metric, reason string }

func newAnswer() *answer {
	return &answer{
		names:   map[*prometheus.Desc]string{},
		seed:    maphash.MakeSeed(),
		seen:    map[uint64]bool{},
		used:    map[string]int{},
		share:   maxNamespaceBytes,
		leftOut: map[leftOut]int{},
	}
}

// add keeps a metric or leaves it out. The first of several series with the same labels is kept.
func (a *answer) add(m prometheus.Metric) {
	d := m.Desc()
	name, ok := a.names[d]
	if !ok {
		name = nameOf(d)
		a.names[d] = name
	}

	content := &dto.Metric{}
	err := m.Write(content)
	if err != nil {
		a.leaveOut(name, reasonInvalid)
		return
	}

	reason := problemOf(content)
	if reason != "" {
		a.leaveOut(name, reason)
		return
	}

	s := series{
		metric:    written{desc: d, content: content},
		name:      name,
		namespace: namespaceOf(content),
		bytes:     sizeOf(name, content),
	}
	if a.used[s.namespace]+s.bytes > a.share {
		a.leaveOut(name, reasonTooMany)
		return
	}

	identity := identityOf(a.seed, name, content)
	if a.seen[identity] {
		a.leaveOut(name, reasonDuplicate)
		return
	}

	a.seen[identity] = true
	a.series = append(a.series, s)
	a.used[s.namespace] += s.bytes
	a.total += s.bytes
	// A collector of many namespaces must not fill the memory before its end.
	if a.total > 2*maxBytes {
		a.shrink()
	}
}

func (a *answer) leaveOut(metric, reason string) { a.leftOut[leftOut{metric, reason}]++ }

// finish returns the series that are kept, in the order in which they were collected.
func (a *answer) finish() []series {
	if a.total > maxBytes {
		a.shrink()
	}

	return a.series
}

// shrink reduces the series to maxBytes. The share of a namespace never grows again: it would depend on the order of the series.
func (a *answer) shrink() {
	a.share = min(a.share, fairShare(slices.Collect(maps.Values(a.used)), maxBytes))
	clear(a.used)
	a.total = 0

	remaining := a.series[:0]
	for _, s := range a.series {
		if a.used[s.namespace]+s.bytes > a.share {
			a.leaveOut(s.name, reasonTooMany)
			continue
		}

		a.used[s.namespace] += s.bytes
		a.total += s.bytes
		remaining = append(remaining, s)
	}

	clear(a.series[len(remaining):])
	a.series = remaining
}

// fairShare returns the largest share of which the sum over all needs, each at most the share, is within a limit.
func fairShare(needs []int, limit int) int {
	slices.Sort(needs)
	remaining := limit
	for i, need := range needs {
		share := remaining / (len(needs) - i)
		if need > share {
			return share
		}

		remaining -= need
	}

	return limit
}

// problemOf returns the reason to leave a metric out, empty for none.
func problemOf(m *dto.Metric) string {
	for _, l := range m.GetLabel() {
		if len(l.GetValue()) > maxLabelBytes {
			return reasonLongLabel
		}

		if !utf8.ValidString(l.GetValue()) {
			return reasonInvalid
		}
	}

	for _, value := range []float64{m.GetGauge().GetValue(), m.GetCounter().GetValue(), m.GetUntyped().GetValue()} {
		if math.IsNaN(value) || math.IsInf(value, 0) {
			return reasonNotFinite
		}
	}

	return ""
}

// namespaceOf returns the namespace of a series, empty for one of the cluster.
func namespaceOf(m *dto.Metric) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == "namespace" || l.GetName() == "targetNamespace" {
			return l.GetValue()
		}
	}

	return ""
}

// sizeOf returns about the size of a series in the text format.
func sizeOf(name string, m *dto.Metric) int {
	labels := 0
	for _, l := range m.GetLabel() {
		labels += len(l.GetName()) + len(l.GetValue()) + len(`="",`)
	}

	lines := 1
	if m.GetHistogram() != nil {
		lines = len(m.GetHistogram().GetBucket()) + 3
	}
	if m.GetSummary() != nil {
		lines = len(m.GetSummary().GetQuantile()) + 2
	}

	return lines * (len(name) + labels + sampleBytes)
}

// identityOf returns a number that differs for two series of an answer. With a random seed nobody can choose labels of which the numbers are
// equal. Valid labels contain no byte 0xff.
func identityOf(seed maphash.Seed, name string, m *dto.Metric) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	_, _ = h.WriteString(name)

	for _, l := range m.GetLabel() { // They are sorted.
		_ = h.WriteByte(0xff)
		_, _ = h.WriteString(l.GetName())
		_ = h.WriteByte(0xff)
		_, _ = h.WriteString(l.GetValue())
	}

	return h.Sum64()
}

// written is a metric of which the content is known, so that it is computed once.
type written struct {
	desc    *prometheus.Desc
	content *dto.Metric
}

// Desc implements prometheus.Metric.
func (w written) Desc() *prometheus.Desc { return w.desc }

// Write implements prometheus.Metric.
func (w written) Write(to *dto.Metric) error {
	to.Label = w.content.GetLabel()
	to.Gauge = w.content.GetGauge()
	to.Counter = w.content.GetCounter()
	to.Summary = w.content.GetSummary()
	to.Untyped = w.content.GetUntyped()
	to.Histogram = w.content.GetHistogram()
	to.TimestampMs = w.content.TimestampMs //nolint:protogetter // Nil differs from 0.

	return nil
}
