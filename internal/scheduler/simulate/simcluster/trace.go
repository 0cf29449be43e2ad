// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simcluster

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"crane.io/crane/internal/scheduler/simulate/simscenario"
	"crane.io/crane/pkg/units"
)

// FromTrace creates the cluster of a scenario with a trace from its files of nodes and of pods. The workload of a pod
// is drawn at random, because the files do not have it. Errors name file and line.
func FromTrace(s *simscenario.Scenario, nodes, pods io.Reader, seed uint64) (*World, error) {
	if s.Trace == nil {
		return nil, fmt.Errorf("scenario %s has no trace", s.Name)
	}

	w := empty(s)
	if err := w.readNodes(nodes); err != nil {
		return nil, fmt.Errorf("reading %s: %w", s.Trace.Nodes, err)
	}

	rng := rand.New(rand.NewPCG(seed, streamWorkloads))
	shares := w.drawWorkloads(s.Workloads, rng)

	for i := range w.Workloads {
		w.Workloads[i].CPU = 1 // every workload weighs the same: requests are the pods'
	}

	w.scale(shares, 1, s.Workloads.UsePerRequest.Max)
	if err := w.readPods(s, pods, newChooser(shares), rand.New(rand.NewPCG(seed, streamPods))); err != nil {
		return nil, fmt.Errorf("reading %s: %w", s.Trace.Pods, err)
	}

	w.scaleToLoad(s)
	return w, nil
}

// readNodes appends the nodes of a trace; a row without a name or capacity is an error.
func (w *World) readNodes(r io.Reader) error {
	rows, err := newRows(r, "sn", "cpu_milli", "memory_mib")
	if err != nil {
		return err
	}

	for {
		row, err := rows.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}

		n := Node{Name: row.text("sn"), CPU: units.MilliCPU(row.number("cpu_milli")), Memory: units.Bytes(row.number("memory_mib")) << 20}
		if row.err != nil || n.Name == "" || n.CPU < 1 || n.Memory < 1 {
			return row.wrong("want a name, a CPU and a memory of more than 0")
		}

		w.Nodes = append(w.Nodes, n)
	}

	if len(w.Nodes) < 2 {
		return errors.New("want two nodes or more")
	}

	return nil
}

func (w *World) readPods(s *simscenario.Scenario, r io.Reader, workloads *chooser, rng *rand.Rand) error {
	rows, err := newRows(r, "name", "cpu_milli", "memory_mib", "creation_time", "deletion_time")
	if err != nil {
		return err
	}

	for {
		row, err := rows.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}

		created := time.Duration(row.number("creation_time")) * time.Second
		deleted := time.Duration(row.number("deletion_time")) * time.Second
		cpu := units.MilliCPU(row.number("cpu_milli"))
		memory := units.Bytes(max(1, row.number("memory_mib"))) << 20

		if row.err != nil || cpu < 0 || deleted < created {
			return row.wrong("want a request of 0 or more, and a deletion after the creation")
		}

		arrival := time.Duration(float64(created-s.Trace.From.Duration) / s.Trace.Compress)
		lifespan := max(time.Second, deleted-created)
		if arrival < 0 {
			// It came before: there at the start with what is left of its life, if anything is.
			lifespan += arrival
			arrival = 0
		}

		// One draw for each row, kept or not, so that rows do not depend on where the simulation begins.
		workloads.draw(rng)
		factor := math.Exp(s.Workloads.PodSpread*rng.NormFloat64() - s.Workloads.PodSpread*s.Workloads.PodSpread/2)
		noise := rng.Uint64()

		if cpu == 0 || lifespan <= 0 || arrival >= s.Length() {
			continue
		}

		w.Pods = append(w.Pods, Pod{
			Workload: workloads.index,
			CPU:      cpu,
			Memory:   memory,
			Arrival:  arrival,
			Lifetime: lifespan,
			factor:   factor,
			seed:     noise,
		})
	}

	if len(w.Pods) == 0 {
		return errors.New("no pod runs in the time that is simulated")
	}

	slices.SortStableFunc(w.Pods, func(a, b Pod) int { return cmp.Compare(a.Arrival, b.Arrival) })
	return nil
}

// scaleToLoad scales the mean use over the measured time to that of the scenario, as if every pod ran from its arrival on.
func (w *World) scaleToLoad(s *simscenario.Scenario) {
	from := s.Time.WarmUp.Duration
	to := s.Length()
	var used float64
	for i, p := range w.Pods {
		ran := min(p.Arrival+p.Lifetime, to) - max(p.Arrival, from)
		if ran > 0 {
			used += float64(p.CPU) * w.Workloads[p.Workload].PerRequest * w.Pods[i].factor * ran.Seconds()
		}
	}

	if used == 0 {
		return
	}

	factor := s.Load.Used * float64(w.CPU()) * (to - from).Seconds() / used
	for i := range w.Workloads {
		w.Workloads[i].PerRequest *= factor
	}
}

// rows reads a CSV file by the names of its columns.
type rows struct {
	reader *csv.Reader
	column map[string]int
}

func newRows(r io.Reader, wanted ...string) (*rows, error) {
	reader := csv.NewReader(r)
	head, err := reader.Read()
	if err != nil {
		return nil, fmt.Errorf("reading the line of column names: %w", err)
	}

	columns := map[string]int{}
	for i, name := range head {
		columns[name] = i
	}

	for _, name := range wanted {
		if _, ok := columns[name]; !ok {
			return nil, fmt.Errorf("line 1: no column %q", name)
		}
	}

	return &rows{reader: reader, column: columns}, nil
}

// row is a line; err is the first number of it that could not be read.
type row struct {
	rows   *rows
	values []string
	err    error
}

func (r *rows) next() (*row, error) {
	values, err := r.reader.Read()
	if errors.Is(err, io.EOF) {
		return nil, io.EOF
	}
	if err != nil {
		return nil, fmt.Errorf("reading a line: %w", err)
	}

	return &row{rows: r, values: values}, nil
}

func (r *row) text(column string) string { return r.values[r.rows.column[column]] }

// number reads a whole number of at most ten digits: more would not be a request or a time.
func (r *row) number(column string) int64 {
	v, err := strconv.ParseInt(r.text(column), 10, 64)
	if err == nil && (v < 0 || v > 9_999_999_999) {
		err = fmt.Errorf("%d is out of range", v)
	}
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("column %s: %w", column, err)
	}

	return v
}

func (r *row) wrong(want string) error {
	line, _ := r.rows.reader.FieldPos(0)
	if r.err != nil {
		return fmt.Errorf("line %d: %w", line, r.err)
	}

	return fmt.Errorf("line %d: %s", line, want)
}
