// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/internal/component/texttable"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

const (
	// maxRows bounds the rows of pods and devices; -o json has all.
	maxRows = 30
	// minOperations and minBytes per second are the least activity of a listed device.
	minOperations = 0.5
	minBytes      = 512
)

// writeTable prints the report as tables.
func (r *onceReport) writeTable(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "Node %s, over %s. Nothing is changed.\n", r.node, r.snapshot.Span.Round(1e6))

	for _, n := range r.notes {
		fmt.Fprintln(out, "Note:", n)
	}

	r.section(out, []any{"FEATURE", "STATE"}, func(row func(...any)) {
		for _, f := range r.features {
			row(f.Name, f.String())
		}
	})

	r.section(out, []any{"NODE", "USED", "OF", "STALLED SOME 10s / 60s", "FULL 10s / 60s"}, r.nodeRows)
	r.section(out, []any{"ZONE", "CPUS", "CORES", "USABLE", "MEMORY", "USABLE", "DISTANCES"}, r.zoneRows)

	if z := &r.zones; z.KubeletSource != "" {
		fmt.Fprintf(out, "Usable is the part the kubelet leaves to pods, according to %s; reserved CPUs: %s\n", z.KubeletSource, cmp.Or(z.ReservedCPUs, "none"))
	}

	for _, p := range r.zones.Problems {
		fmt.Fprintln(out, "Note:", p)
	}

	quiet := 0
	r.section(out, []any{"DEVICE", "IN", "OUT", "IN/s", "OUT/s", "BUSY"}, func(row func(...any)) { quiet = r.deviceRows(row) })

	if quiet > 0 {
		fmt.Fprintf(out, "and %d with little or no activity (-o json has all)\n", quiet)
	}

	r.section(out, []any{"POD", "CLASS", "CORES", "LIMIT", "THROTTLED", "MEMORY", "STALLED CPU / MEMORY / IO", "ACTIONS ALLOWED"}, r.podRows)
	if hidden := len(r.snapshot.Pods) - maxRows; hidden > 0 {
		fmt.Fprintf(out, "and %s with less use (-o json has all)\n", units.FormatCount(hidden, "pod"))
	}

	for _, subject := range slices.Sorted(maps.Keys(r.snapshot.Problems)) {
		fmt.Fprintf(out, "\nNot measured: %s: %s\n", subject, r.snapshot.Problems[subject])
	}

	r.rules(out)
	if err := out.Flush(); err != nil {
		return fmt.Errorf("printing: %w", err)
	}

	return nil
}

// section prints a table unless it is empty.
func (r *onceReport) section(w io.Writer, header []any, fill func(row func(...any))) {
	t := texttable.New(header...)
	fill(func(cells ...any) { t.AppendRow(cells) })

	if t.Length() > 0 {
		fmt.Fprintf(w, "\n%s\n", t.Render())
	}
}

const unknown = "unknown"

func cores(v observe.Known[units.MilliCPU]) string {
	if !v.OK {
		return unknown
	}

	return fmt.Sprintf("%.3f", float64(v.Value)/1000)
}

func (r *onceReport) nodeRows(row func(...any)) {
	n := &r.snapshot.Node
	stalled := func(p observe.Known[host.Pressure]) (some, full string) {
		if !p.OK {
			return unknown, unknown
		}

		s := p.Value.Some
		f := p.Value.Full
		return fmt.Sprintf("%.1f %% / %.1f %%", s.Avg10, s.Avg60), fmt.Sprintf("%.1f %% / %.1f %%", f.Avg10, f.Avg60)
	}

	capacity := unknown
	used := unknown
	total := unknown

	if n.CPUs.OK {
		capacity = fmt.Sprintf("%d cores", n.CPUs.Value)
	}

	if n.Memory.OK {
		used = units.FormatMiB(n.Memory.Value.Total - n.Memory.Value.Available)
		total = units.FormatMiB(n.Memory.Value.Total)
	}

	some, full := stalled(n.Pressure.CPU)
	row("cpu", cores(n.UsedCPU), capacity, some, full)
	some, full = stalled(n.Pressure.Memory)
	row("memory", used, total, some, full)
	some, full = stalled(n.Pressure.IO)
	row("io", "", "", some, full)

	if n.Load.OK {
		l := n.Load.Value
		row("load", fmt.Sprintf("%.2f %.2f %.2f", l[0], l[1], l[2]), "", "", "")
	}
}

func (r *onceReport) zoneRows(row func(...any)) {
	for _, cells := range r.zones.Rows() {
		row(cells[0], cells[1], cells[2], cells[3], cells[4], cells[5], cells[6])
	}
}

// deviceRows prints the active devices, disks first, and returns the number of inactive ones: a node has an interface per pod.
func (r *onceReport) deviceRows(row func(...any)) (quiet int) {
	kib := func(v float64) string { return fmt.Sprintf("%.1f KiB/s", v/1024) }
	rows := 0
	listed := func(operations, bytes float64) bool {
		if operations < minOperations && bytes < minBytes || rows >= maxRows {
			quiet++
			return false
		}

		rows++
		return true
	}

	for i := range r.snapshot.Disks {
		if d := &r.snapshot.Disks[i]; d.Rate.OK && listed(max(d.Rate.Value.Reads, d.Rate.Value.Writes), max(d.Rate.Value.ReadBytes, d.Rate.Value.WriteBytes)) {
			v := d.Rate.Value
			row(d.Name, kib(v.ReadBytes), kib(v.WriteBytes), fmt.Sprintf("%.0f reads", v.Reads), fmt.Sprintf("%.0f writes", v.Writes), fmt.Sprintf("%.1f %%", 100*float64(v.Busy)))
		}
	}

	for i := range r.snapshot.Interfaces {
		if f := &r.snapshot.Interfaces[i]; f.Rate.OK && listed(max(f.Rate.Value.ReceivedPackets, f.Rate.Value.SentPackets), max(f.Rate.Value.ReceivedBytes, f.Rate.Value.SentBytes)) {
			v := f.Rate.Value
			row(f.Name, kib(v.ReceivedBytes), kib(v.SentBytes), fmt.Sprintf("%.0f packets", v.ReceivedPackets), fmt.Sprintf("%.0f packets", v.SentPackets), "")
		}
	}

	return quiet
}

func (r *onceReport) podRows(row func(...any)) {
	order := make([]int, len(r.snapshot.Pods))
	for i := range order {
		order[i] = i
	}

	// The busiest pods first, because the table ends after maxRows.
	slices.SortStableFunc(order, func(a, b int) int {
		return int(r.snapshot.Pods[b].UsedCPU.Value - r.snapshot.Pods[a].UsedCPU.Value)
	})

	for _, i := range order[:min(len(order), maxRows)] {
		measured := &r.snapshot.Pods[i]
		pod := &r.observation.Pods[i]
		limit := unknown
		throttled := unknown
		memory := unknown

		if l := measured.Limit; l.OK {
			limit = "none"
			if !l.Value.Unlimited() {
				limit = fmt.Sprintf("%.3g", l.Value.Cores())
			}
		}

		if measured.Throttled.OK {
			throttled = fmt.Sprintf("%.0f %%", 100*float64(measured.Throttled.Value))
		}
		if measured.Memory.OK {
			memory = units.FormatMiB(measured.Memory.Value.WorkingSet)
		}

		stalled := unknown
		if p := measured.Pressure; p.CPU.OK && p.Memory.OK && p.IO.OK {
			stalled = fmt.Sprintf("%.1f / %.1f / %.1f %%", p.CPU.Value.Some.Avg10, p.Memory.Value.Some.Avg10, p.IO.Value.Some.Avg10)
		}

		row(qos.PodRef{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name}, pod.Class, cores(measured.UsedCPU), limit, throttled, memory, stalled, allowedText(pod))
	}
}

func allowedText(p *qos.Pod) string {
	switch {
	case len(p.Allowed) == 0:
		return "none"
	case p.ExemptReason != "":
		return strings.Join(p.Allowed, ", ") + "; never evicted: " + p.ExemptReason
	}

	return strings.Join(p.Allowed, ", ")
}
