// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scalingmetric

import (
	"errors"
	"fmt"
	"sync"
	"time"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/pkg/scaling"
)

// Zones finds time zones by name, and keeps what it has found: the database of zones is files, and a request for a metric is to read
// none. The zero value has UTC for schedules that name no zone. It may be used from several goroutines.
type Zones struct {
	// Local is the place of schedules that name no time zone; nil for UTC.
	Local *time.Location

	cache sync.Map // of *time.Location by name; there are some 600
}

// location returns the place of a schedule.
func (z *Zones) location(name *string) (*time.Location, error) {
	if name == nil || *name == "" {
		if z.Local == nil {
			return time.UTC, nil
		}
		return z.Local, nil
	}
	if *name == "Local" {
		return nil, errors.New(`timezone "Local": want a name of the IANA database, such as Asia/Shanghai`)
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

// CronWindows reads the cron schedules of an autoscaler. Those that cannot be followed are left out; the error of each stands under
// its index.
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

// CronReplicas returns the value of MetricCron for an autoscaler: replicas.
func CronReplicas(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler, zones *Zones, now time.Time) int32 {
	least := int32(1)
	if ehpa.Spec.MinReplicas != nil {
		least = *ehpa.Spec.MinReplicas
	}
	windows, _ := CronWindows(ehpa, zones)
	return scaling.CronReplicas(windows, least, now)
}
