// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"maps"
	"slices"
	"time"
)

// GocraneSpec returns gocrane's default policy: three windows of CPU and memory, recent ones limited at 65 % and 75
// %, long ones with larger weights, and a hot value for every five placements in five minutes and every two in one.
func GocraneSpec() Spec {
	const brief, hourly, daily = 3 * time.Minute, 15 * time.Minute, 3 * time.Hour
	return Spec{
		Metrics: []Metric{
			{Name: "cpu_usage_avg_5m", Period: brief},
			{Name: "cpu_usage_max_avg_1h", Period: hourly},
			{Name: "cpu_usage_max_avg_1d", Period: daily},
			{Name: "mem_usage_avg_5m", Period: brief},
			{Name: "mem_usage_max_avg_1h", Period: hourly},
			{Name: "mem_usage_max_avg_1d", Period: daily},
		},
		Predicates: []NamedLimit{
			{Name: "cpu_usage_avg_5m", Max: 0.65},
			{Name: "cpu_usage_max_avg_1h", Max: 0.75},
			{Name: "mem_usage_avg_5m", Max: 0.65},
			{Name: "mem_usage_max_avg_1h", Max: 0.75},
		},
		Priorities: []NamedWeight{
			{Name: "cpu_usage_avg_5m", Weight: 0.2},
			{Name: "cpu_usage_max_avg_1h", Weight: 0.3},
			{Name: "cpu_usage_max_avg_1d", Weight: 0.5},
			{Name: "mem_usage_avg_5m", Weight: 0.2},
			{Name: "mem_usage_max_avg_1h", Weight: 0.3},
			{Name: "mem_usage_max_avg_1d", Weight: 0.5},
		},
		Hot: []HotRange{{Range: 5 * time.Minute, Count: 5}, {Range: time.Minute, Count: 2}},
	}
}

func sortedKeys(m map[Resource]WaterMarks) []Resource { return slices.Sorted(maps.Keys(m)) }
