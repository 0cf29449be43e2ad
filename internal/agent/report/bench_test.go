// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"testing"

	"github.com/go-logr/logr"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/pkg/qos"
)

// BenchmarkPlan reports a plan of ten rules, two firing and five in preview.
func BenchmarkPlan(b *testing.B) {
	t := New(Config{Node: "n", Enforced: func(Kind) bool { return true }, Log: logr.Discard(), Clock: clocktesting.NewFakeClock(at)})
	plan := qos.Plan{}
	for i := range 10 {
		f := finding(qos.Calm)
		f.Rule = fmt.Sprint("mixed/r", i)
		f.Preview = i%2 == 0
		if i > 7 {
			f.Phase = qos.Firing
		}

		plan.Rules = append(plan.Rules, f)
	}

	b.ReportAllocs()
	for b.Loop() {
		t.ReportPlan(&plan)
	}
}
