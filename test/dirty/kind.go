// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dirty

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Kind is a kind of fault.
type Kind struct {
	Name string
	// Minimum is the share of cases of the kind that are right at least. It documents what is open and only rises.
	Minimum float64
	// process changes what the process requires; nil for faults of series alone. reference is the same workload without the fault: kinds
	// whose answer is compared with that of another process change it as well.
	process func(r *rand.Rand, w, reference *Workload)
	// damage changes the series of the workload; nil for kinds of processes. neighbor is a namespace of others.
	damage func(r *rand.Rand, w *Workload, all []*Series, neighbor string) []*Series
	// expect returns what is right; nil for the clean answer.
	expect func(w *Workload) Expectation
	// parts are the faults of a kind that applies some of them at once; chosen is set once they are those of a case.
	parts  []Kind
	chosen bool
}

// tolerance is the accepted relative difference from the clean answer.
const tolerance = 0.15

// Expectation describes the right answers to one case.
type Expectation struct {
	// CPU and Memory are the accepted numbers; zero for those around the clean answer.
	CPU, Memory Span
	// Refusals are reasons of which one must be given where there is no number; without any there must be a number.
	Refusals []string
	// Named are texts of which one must accompany a CPU number below Covered.
	Named   []string
	Covered float64
	// Noted is a text that the notes of the whole report must have; empty for none.
	Noted string
	// Killed is the memory at which the container was killed; no number may be below it. 0 without kills.
	Killed float64
}

// Span is a range of accepted numbers.
type Span struct{ Low, High float64 }

// around returns the accepted numbers around a clean answer.
func around(clean float64) Span {
	return Span{Low: clean * (1 - tolerance), High: clean * (1 + tolerance)}
}

func (s Span) contains(v float64) bool { return v >= s.Low && v <= s.High }

// judge returns why an answer is wrong; nothing for a right one.
func judge(e Expectation, clean, got Answer, notes string) []string {
	if e.CPU == (Span{}) {
		e.CPU = around(clean.CPU)
	}
	if e.Memory == (Span{}) {
		e.Memory = around(clean.Memory)
	}

	if got.Rows > 1 {
		return []string{fmt.Sprintf("%d rows, want one", got.Rows)}
	}

	var wrong []string
	for _, r := range []struct {
		name, text    string
		got, capacity float64
		want          Span
	}{
		{"CPU", got.CPUText, got.CPU, nodeCPU, e.CPU},
		{"memory", got.MemoryText, got.Memory, nodeMemory, e.Memory},
	} {
		switch {
		case r.got == 0 && !containsAny(r.text+"\n"+notes, e.Refusals):
			wrong = append(wrong, fmt.Sprintf("no %s (%q), want %.4g to %.4g or one of the reasons %q", r.name, r.text, r.want.Low, r.want.High, e.Refusals))
		case r.got == 0:
		case r.got > r.capacity:
			wrong = append(wrong, fmt.Sprintf("%s %.4g is more than a node has", r.name, r.got))
		case !r.want.contains(r.got):
			wrong = append(wrong, fmt.Sprintf("%s %.4g (%s), want %.4g to %.4g", r.name, r.got, r.text, r.want.Low, r.want.High))
		}
	}

	if got.Memory > 0 && got.Memory < e.Killed {
		wrong = append(wrong, fmt.Sprintf("memory %.4g is below the %.4g at which it was killed", got.Memory, e.Killed))
	}
	if got.CPU < e.Covered && !containsAny(got.CPUText, e.Named) {
		wrong = append(wrong, fmt.Sprintf("CPU %.4g (%s) neither covers %.4g nor names one of %q", got.CPU, got.CPUText, e.Covered, e.Named))
	}

	if !strings.Contains(notes, e.Noted) {
		wrong = append(wrong, fmt.Sprintf("the notes do not have %q: %s", e.Noted, notes))
	}

	return wrong
}

func containsAny(text string, parts []string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}
