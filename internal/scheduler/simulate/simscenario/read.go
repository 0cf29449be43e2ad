// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simscenario

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

//go:embed files/*.yaml
var files embed.FS

// ErrUnknown means that no scenario has that name.
var ErrUnknown = errors.New("no such scenario")

// Names of the scenarios that the binary carries, in order.
func Names() []string {
	paths, err := fs.Glob(files, "files/*.yaml")
	if err != nil {
		return nil
	}

	names := make([]string, len(paths))
	for i, p := range paths {
		names[i] = strings.TrimSuffix(path.Base(p), ".yaml")
	}

	return names
}

// Named returns a scenario that the binary carries. The error is ErrUnknown where there is none of that name.
func Named(name string) (*Scenario, error) {
	content, err := files.ReadFile("files/" + name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("%w: %q; there are %s", ErrUnknown, name, strings.Join(Names(), ", "))
	}

	s, err := Parse(content)
	if err != nil {
		return nil, fmt.Errorf("parsing scenario %s: %w", name, err)
	}

	return s, nil
}

// Parse reads a scenario file, strictly: an unknown field, a field that stands twice and a value out of its range are errors
// that name the path.
func Parse(content []byte) (*Scenario, error) {
	if len(bytes.TrimSpace(content)) == 0 {
		return nil, errors.New("the scenario file is empty")
	}

	data, err := yaml.YAMLToJSONStrict(content)
	if err != nil {
		return nil, fmt.Errorf("reading YAML: %w", err)
	}

	// The converter knows durations and quantities, and reports unknown fields.
	var tree map[string]any
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, fmt.Errorf("reading the mapping of fields: %w", err)
	}

	s := &Scenario{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(tree, s, true); err != nil {
		if runtime.IsStrictDecodingError(err) {
			return nil, fmt.Errorf("reading fields: %w", err)
		}

		return nil, fmt.Errorf("reading %s: %w", invalidPath(tree, err), err)
	}

	if err := s.Validate().ToAggregate(); err != nil {
		return nil, fmt.Errorf("validating the scenario: %w", err)
	}

	return s, nil
}

// invalidPath returns the path of the value that an error is about, which the converter does not report: the first
// value without which the error differs.
func invalidPath(tree map[string]any, cause error) string {
	invalid := "a field"
	// Without the value that the error is about, conversion succeeds or fails by another error.
	errorDiffers := func() bool {
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree, &Scenario{})
		return err == nil || err.Error() != cause.Error()
	}

	var search func(node any, path string) bool
	search = func(node any, path string) bool {
		switch node := node.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(node)) {
				value := node[key]
				childPath := strings.TrimPrefix(path+"."+key, ".")
				if search(value, childPath) {
					return true
				}

				delete(node, key)
				differs := errorDiffers()
				node[key] = value

				if differs {
					invalid = childPath
					return true
				}
			}

		case []any:
			for i, value := range node {
				if search(value, fmt.Sprintf("%s[%d]", path, i)) {
					return true
				}
			}
		}

		return false
	}

	search(tree, "")
	return invalid
}

// Validate checks every field of a scenario. Errors name its path.
func (s *Scenario) Validate() field.ErrorList {
	c := &checker{}
	if s.Name == "" {
		c.errs = append(c.errs, field.Required(field.NewPath("name"), "a scenario is called by its name"))
	}

	s.Nodes.check(c, field.NewPath("nodes"), s.Trace != nil)
	s.Workloads.check(c, field.NewPath("workloads"), s.Trace != nil)

	// A trace has its requests; only the use is scaled.
	load := field.NewPath("load")
	if s.Trace == nil {
		c.above(load.Child("requested"), s.Load.Requested, 0, 0.95)
	}

	c.above(load.Child("used"), s.Load.Used, 0, 0.9)
	times := field.NewPath("time")
	c.duration(times.Child("start"), s.Time.Start, 0, 24*time.Hour)
	c.duration(times.Child("warmUp"), s.Time.WarmUp, 0, 24*time.Hour)
	c.duration(times.Child("measure"), s.Time.Measure, time.Minute, 72*time.Hour)
	s.Metrics.check(c, field.NewPath("metrics"))

	if p := s.Scheduler.PercentageOfNodesToScore; p < 0 || p > 100 {
		c.invalid(field.NewPath("scheduler", "percentageOfNodesToScore"), p, "must be from 0 to 100")
	}
	if s.Trace != nil {
		s.Trace.check(c, field.NewPath("trace"))
	}

	return c.errs
}

func (n Nodes) check(c *checker, path *field.Path, traced bool) {
	if traced {
		if n.Count != 0 || len(n.Shapes) != 0 {
			c.invalid(path, n.Count, "must be absent beside trace, which has the nodes")
		}

		return
	}

	if n.Count < 2 || n.Count > 20_000 {
		c.invalid(path.Child("count"), n.Count, "must be from 2 to 20,000")
	}

	weights := make([]float64, len(n.Shapes))
	for i, shape := range n.Shapes {
		shapePath := path.Child("shapes").Index(i)
		c.size(shapePath, shape.CPU, shape.Memory)
		weights[i] = shape.Weight
	}

	c.weights(path.Child("shapes"), weights)
}

func (w Workloads) check(c *checker, path *field.Path, traced bool) {
	if w.Count < 1 || w.Count > 10_000 {
		c.invalid(path.Child("count"), w.Count, "must be from 1 to 10,000")
	}

	// Requests, lifetimes and batches come from the trace, if there is one.
	if !traced {
		weights := make([]float64, len(w.Requests))
		for i, shape := range w.Requests {
			c.size(path.Child("requests").Index(i), shape.CPU, shape.Memory)
			weights[i] = shape.Weight
		}

		c.weights(path.Child("requests"), weights)
		c.duration(path.Child("lifetime", "mean"), w.Lifetime.Mean, time.Minute, 30*24*time.Hour)
		c.within(path.Child("lifetime", "sigma"), w.Lifetime.Sigma, 0, 2)
		c.within(path.Child("batch"), w.Batch, 1, 1000)
	}

	c.within(path.Child("usePerRequest", "sigma"), w.UsePerRequest.Sigma, 0, 2)
	c.above(path.Child("usePerRequest", "max"), w.UsePerRequest.Max, 1, 100)
	c.within(path.Child("podSpread"), w.PodSpread, 0, 2)
	c.above(path.Child("memoryPerRequest"), w.MemoryPerRequest, 0, 1)
	c.within(path.Child("noise", "share"), w.Noise.Share, 0, 1)

	c.duration(path.Child("noise", "period"), w.Noise.Period, 30*time.Second, 24*time.Hour)
	c.within(path.Child("diurnal", "share"), w.Diurnal.Share, 0, 1)
	c.within(path.Child("diurnal", "amplitude"), w.Diurnal.Amplitude, 0, 1)
	c.duration(path.Child("diurnal", "peak"), w.Diurnal.Peak, 0, 24*time.Hour)
	c.duration(path.Child("diurnal", "jitter"), w.Diurnal.Jitter, 0, 24*time.Hour)
	c.duration(path.Child("startup"), w.Startup, 0, time.Hour)
}

func (m Metrics) check(c *checker, path *field.Path) {
	c.duration(path.Child("scrape"), m.Scrape, 5*time.Second, 5*time.Minute)
	c.duration(path.Child("delay"), m.Delay, 0, time.Hour)
	c.duration(path.Child("hiddenDelay"), m.HiddenDelay, 0, time.Hour)
	c.within(path.Child("loss"), m.Loss, 0, 1)
	c.within(path.Child("broken"), m.Broken, 0, 1)
	c.within(path.Child("dead"), m.Dead, 0, 1)
	c.duration(path.Child("deadFrom"), m.DeadFrom, 0, 96*time.Hour)
	c.duration(path.Child("clockSkew"), m.ClockSkew, -24*time.Hour, 24*time.Hour)

	for i, o := range m.Outages {
		c.duration(path.Child("outages").Index(i).Child("from"), o.From, 0, 96*time.Hour)
		c.duration(path.Child("outages").Index(i).Child("for"), o.For, time.Second, 96*time.Hour)
	}
}

func (t Trace) check(c *checker, path *field.Path) {
	for name, file := range map[string]string{"nodes": t.Nodes, "pods": t.Pods} {
		if file == "" || filepath.Base(file) != file {
			c.invalid(path.Child(name), file, "must be the name of a file in the folder of traces")
		}
	}

	c.duration(path.Child("from"), t.From, 0, 365*24*time.Hour)
	c.within(path.Child("compress"), t.Compress, 1, 1e6)
}

type checker struct{ errs field.ErrorList }

func (c *checker) invalid(path *field.Path, value any, why string) {
	c.errs = append(c.errs, field.Invalid(path, value, why))
}

// within requires low <= v <= high and rejects NaN.
func (c *checker) within(path *field.Path, v, low, high float64) {
	if !(v >= low && v <= high) {
		c.invalid(path, v, fmt.Sprintf("must be from %v to %v", low, high))
	}
}

// above requires low < v <= high.
func (c *checker) above(path *field.Path, v, low, high float64) {
	if !(v > low && v <= high) {
		c.invalid(path, v, fmt.Sprintf("must be above %v and at most %v", low, high))
	}
}

func (c *checker) duration(path *field.Path, d metav1.Duration, low, high time.Duration) {
	if d.Duration < low || d.Duration > high {
		c.invalid(path, d.Duration.String(), fmt.Sprintf("must be from %v to %v", low, high))
	}
}

func (c *checker) size(path *field.Path, cpu, memory resource.Quantity) {
	if v := cpu.MilliValue(); v < 1 || v > 1_000_000 {
		c.invalid(path.Child("cpu"), cpu.String(), "must be from 1m to 1k")
	}
	if v := memory.Value(); v < 1<<20 || v > 1<<50 {
		c.invalid(path.Child("memory"), memory.String(), "must be from 1Mi to 1Pi")
	}
}

func (c *checker) weights(path *field.Path, weights []float64) {
	if len(weights) == 0 {
		c.errs = append(c.errs, field.Required(path, "at least one"))
	}

	for i, w := range weights {
		c.above(path.Index(i).Child("weight"), w, 0, 1e6)
	}
}
