// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scalingmetric

import (
	"testing"
	"time"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
)

// BenchmarkPrediction and BenchmarkCron measure a request for one of Crane's metrics without the lookup of the object.
func BenchmarkPrediction(b *testing.B) {
	one := newPrediction("0.5", 0.9)
	b.ReportAllocs()

	for b.Loop() {
		if _, err := ActionableForecast(one, "resource.cpu", noon().Add(30*time.Minute)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCron(b *testing.B) {
	zone := "Europe/Berlin"
	e := &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}
	e.Spec.Crons = []autoscalingv1alpha1.CronSpec{{CronName: "office", Start: "0 8 * * 1-5", End: "0 18 * * 1-5", TargetReplicas: 10, TimeZone: &zone}}
	b.ReportAllocs()

	for b.Loop() {
		CronReplicas(e, &Zones{}, noon())
	}
}
