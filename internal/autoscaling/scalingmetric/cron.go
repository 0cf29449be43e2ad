// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scalingmetric

import (
	"cmp"
	"fmt"
	"sync"
	"time"
	_ "time/tzdata" // cron schedules name time zones, and an image may have none

	"k8s.io/utils/ptr"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/pkg/scaling"
)

// Zones finds time zones by name and caches them, because a request for a metric must not read the zone files. The zero value uses
// UTC for schedules without a zone and time.Local for the zone Local. It is safe for concurrent use.
type Zones struct {
	// Default is the time zone of schedules that name none; nil for UTC.
	Default *time.Location
	// Local is the time zone of schedules that name LocalZone; nil for time.Local.
	Local *time.Location

	cache sync.Map // *time.Location by name; there are some 600
}

// LocalZone is the name of the zone that the process runs in, as gocrane defines it.
const LocalZone = "Local"

// NewZones returns the zones of a process; with localTime it evaluates schedules without a zone in its own one, as gocrane does.
func NewZones(localTime bool) *Zones {
	if localTime {
		return &Zones{Default: time.Local}
	}

	return &Zones{}
}

// location returns the time zone of a schedule.
func (z *Zones) location(name *string) (*time.Location, error) {
	switch {
	case name == nil || *name == "":
		return cmp.Or(z.Default, time.UTC), nil
	case *name == LocalZone:
		return cmp.Or(z.Local, time.Local), nil
	}

	if found, ok := z.cache.Load(*name); ok {
		if place, ok := found.(*time.Location); ok {
			return place, nil
		}
	}

	place, err := time.LoadLocation(*name)
	if err != nil {
		return nil, fmt.Errorf("timezone %q: %w", *name, err)
	}

	z.cache.Store(*name, place)
	return place, nil
}

// CronWindows parses the cron schedules of an autoscaler. Invalid ones are omitted; the map has their errors by index.
func CronWindows(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler, zones *Zones) ([]scaling.CronWindow, map[int]error) {
	var out []scaling.CronWindow
	failed := map[int]error{}
	for i := range ehpa.Spec.Crons {
		c := &ehpa.Spec.Crons[i]
		place, err := zones.location(c.TimeZone)
		if err != nil {
			failed[i] = err
			continue
		}

		w, err := scaling.NewCronWindow(c.CronName, string(c.Start), string(c.End), place, c.TargetReplicas)
		if err != nil {
			failed[i] = err
			continue
		}

		out = append(out, w)
	}

	return out, failed
}

// CronReplicas returns the value of MetricCron for an autoscaler, in replicas.
func CronReplicas(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler, zones *Zones, now time.Time) int32 {
	windows, _ := CronWindows(ehpa, zones)
	return scaling.CronReplicas(windows, ptr.Deref(ehpa.Spec.MinReplicas, 1), now)
}
