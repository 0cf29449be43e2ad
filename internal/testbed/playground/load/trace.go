// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// Trace is a recorded series that repeats indefinitely, before and after the time that it covers.
type Trace struct {
	Resource units.Resource
	// start and step are pattern seconds; values are the use of one pod, NaN in gaps.
	start, step float64
	values      []float64
	// period is the repetition period in pattern seconds.
	period float64
	peak   float64
}

// NewTrace shifts a series by whole weeks so that its last sample is less than a week after now (pattern seconds: speed
// x Unix time), which preserves weekday and time of day. Outside the shifted series its first and last week repeat; a
// series shorter than a week repeats by whole days, one shorter than a day by its length.
func NewTrace(s series.Series, r units.Resource, now float64) (*Trace, error) {
	if len(s.Values) == 0 || s.Step <= 0 {
		return nil, errors.New("no samples")
	}

	t := &Trace{Resource: r, step: s.Step.Seconds(), values: s.Values}
	for i, v := range s.Values {
		if math.IsInf(v, 0) || v < 0 {
			return nil, fmt.Errorf("sample %d of %s is %g: must be finite and not negative", i+1, s.Time(i).UTC().Format(time.RFC3339), v)
		}

		if !series.IsGap(v) {
			t.peak = max(t.peak, v)
		}
	}

	first := float64(s.Start.Unix())
	last := first + float64(len(s.Values)-1)*t.step
	t.start = first + math.Ceil((now-last)/patternWeek)*patternWeek

	// Whole weeks keep the weekday, whole days the time of day.
	t.period = t.span()
	switch {
	case t.period >= patternWeek:
		t.period = patternWeek
	case t.period >= patternDay:
		t.period = math.Floor(t.period/patternDay) * patternDay
	}

	return t, nil
}

func (t *Trace) span() float64 { return float64(len(t.values)) * t.step }

// Peak returns the largest value.
func (t *Trace) Peak() float64 { return t.peak }

// at returns the value at pattern second s, NaN in a gap.
func (t *Trace) at(s float64) float64 {
	x := s - t.start
	span := t.span()

	if x < 0 {
		x += math.Ceil(-x/t.period) * t.period
	}
	if x >= span {
		x -= (math.Floor((x-span)/t.period) + 1) * t.period
	}

	i := int(x / t.step)
	return t.values[min(max(i, 0), len(t.values)-1)]
}

// TraceNamespace is the namespace of workloads that replay traces.
const TraceNamespace = "traces"

// NamedSeries is a series and the name of its file without directory and extension.
type NamedSeries struct {
	Name   string
	Series series.Series
}

// FromTraces returns one Deployment for each series, named after its file. Each of its pods uses the values of the
// trace for resource r and little of the other resource. Requests exceed the largest value.
func FromTraces(all []NamedSeries, r units.Resource, speed float64, now time.Time) ([]*Workload, error) {
	if r != units.CPU && r != units.Memory {
		return nil, fmt.Errorf("resource %q is neither cpu nor memory", r)
	}

	patternNow := max(1, speed) * float64(now.UnixMilli()) / 1000
	workloads := make([]*Workload, 0, len(all))
	names := map[string]bool{}
	for _, s := range all {
		trace, err := NewTrace(s.Series, r, patternNow)
		if err != nil {
			return nil, fmt.Errorf("trace %s: %w", s.Name, err)
		}

		// Two file names may convert to the same object name.
		name := objectName(s.Name)
		for i := 2; names[name]; i++ {
			name = fmt.Sprintf("%s-%d", objectName(s.Name), i)
		}

		names[name] = true
		workloads = append(workloads, fromTrace(name, trace))
	}

	return workloads, nil
}

func fromTrace(name string, trace *Trace) *Workload {
	key := hashString(name)
	p := Profile{
		Kind:      Replay,
		Seed:      key,
		Noise:     0.04,
		Low:       0.02,
		High:      0.05,
		Memory:    200 * mib,
		Busy:      20 * mib,
		Bandwidth: 0.2 * mib,
		Trace:     trace,
	}

	// The resource that the trace does not measure gets a small, constant use.
	request := corev1.ResourceList{
		corev1.ResourceCPU: roundCPU(0.1), corev1.ResourceMemory: roundMemory(256 * mib),
	}

	if trace.Resource == units.CPU {
		request[corev1.ResourceCPU] = roundCPU(trace.peak * 1.3)
	} else {
		request[corev1.ResourceMemory] = *resource.NewQuantity(max(page, int64(trace.peak*1.3)), resource.BinarySI)
	}

	return &Workload{
		Namespace:  TraceNamespace,
		Name:       name,
		Kind:       "Deployment",
		Replicas:   2,
		Containers: []Container{{Name: name, Request: request, Profile: p}},
	}
}

// objectName converts a file name to a valid name of objects and labels.
func objectName(file string) string {
	const maxLength = 50 // a pod's name adds two hashes
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		default:
			return '-'
		}
	}, file)

	if len(name) > maxLength {
		name = name[:maxLength]
	}

	name = strings.Trim(name, "-")
	if name == "" {
		return "trace"
	}

	if name[0] >= '0' && name[0] <= '9' { // invalid as the name of a Service
		return "trace-" + name
	}

	return name
}
