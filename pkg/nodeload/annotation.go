// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"crane.io/crane/pkg/units"
)

// HotValueKey is the key of the annotation with the hot value. A load has the name of its metric as key.
const HotValueKey = "node_hot_value"

// Limits of annotations.
const (
	// MaxLoad is the largest accepted load, as a fraction of capacity: metrics such as the load average per CPU
	// easily pass 1, but not 100.
	MaxLoad units.Ratio = 100
	// MaxHot is the largest accepted hot value.
	MaxHot = 1 << 20
	// layout is the time format. The Z is a literal letter, not a zone.
	layout = "2006-01-02T15:04:05Z"
	// maxLength is the maximum length of an annotation: a value, a comma, a time.
	maxLength = 64
)

// Errors of annotations.
var (
	// ErrForm means that the text is not a value, one comma, and a time.
	ErrForm = errors.New("want one value, a comma and a time")
	// ErrValue means that the value is not a number, negative, NaN, or above MaxLoad.
	ErrValue = errors.New("the value is not a load: want a number from 0 to 100")
	// ErrHotValue means that the hot value is not a whole number from 0 to MaxHot.
	ErrHotValue = errors.New("want a whole number from 0 to 1048576")
	// ErrTime means that the time does not have the form 2006-01-02T15:04:05Z.
	ErrTime = errors.New("the time is not of the form 2006-01-02T15:04:05Z")
)

// Sample is one load of a node, as a fraction of its capacity, and its time. The zero Sample is none.
type Sample struct {
	Value units.Ratio
	Time  time.Time
}

// Hot is a hot value and its time. The zero Hot is none.
type Hot struct {
	Value int64
	Time  time.Time
}

// Format is the time format of annotations. The zero Format is UTC, as the letter Z says. gocrane writes and reads
// local time of the zone in TZ, Asia/Shanghai by default, with the same letter; writer and readers must agree.
type Format struct {
	// Zone of the times; nil for UTC.
	Zone *time.Location
}

func (f Format) zone() *time.Location {
	if f.Zone == nil {
		return time.UTC
	}

	return f.Zone
}

// Load formats a sample as "0.63012,2023-10-17T15:04:32Z", with five decimals.
func (f Format) Load(s Sample) string {
	b := make([]byte, 0, maxLength)
	b = strconv.AppendFloat(b, float64(s.Value), 'f', 5, 64)
	b = append(b, ',')

	return string(s.Time.In(f.zone()).AppendFormat(b, layout))
}

// Hot formats a hot value as "3,2023-10-17T15:04:32Z".
func (f Format) Hot(h Hot) string {
	b := make([]byte, 0, maxLength)
	b = strconv.AppendInt(b, h.Value, 10)
	b = append(b, ',')

	return string(h.Time.In(f.zone()).AppendFormat(b, layout))
}

// ParseLoad parses the format of Load. Invalid text never parses as a load of zero: the error is one of ErrForm,
// ErrValue and ErrTime.
func (f Format) ParseLoad(text string) (Sample, error) {
	value, stamp, ok := split(text)
	if !ok {
		return Sample{}, ErrForm
	}

	v, err := strconv.ParseFloat(value, 64)
	if err != nil || math.IsNaN(v) || v < 0 || v > float64(MaxLoad) {
		return Sample{}, ErrValue
	}

	at, err := f.time(stamp)
	if err != nil {
		return Sample{}, err
	}

	// A negative zero is accepted and written as zero.
	return Sample{Value: units.Ratio(math.Abs(v)), Time: at}, nil
}

// ParseHot parses the format of Hot. The error is one of ErrForm, ErrHotValue and ErrTime.
func (f Format) ParseHot(text string) (Hot, error) {
	value, stamp, ok := split(text)
	if !ok {
		return Hot{}, ErrForm
	}

	v, err := strconv.ParseInt(value, 10, 64)
	if err != nil || v < 0 || v > MaxHot {
		return Hot{}, ErrHotValue
	}

	at, err := f.time(stamp)
	if err != nil {
		return Hot{}, err
	}

	return Hot{Value: v, Time: at}, nil
}

func split(text string) (value, stamp string, ok bool) {
	if len(text) > maxLength {
		return "", "", false
	}

	value, stamp, ok = strings.Cut(text, ",")
	return value, stamp, ok && !strings.Contains(stamp, ",")
}

func (f Format) time(text string) (time.Time, error) {
	at, err := time.ParseInLocation(layout, text, f.zone())
	if err != nil || at.IsZero() {
		return time.Time{}, ErrTime
	}

	return at.UTC(), nil
}

// GocraneSpec returns gocrane's default policy: three windows of CPU and memory, recent ones limited at 65 % and 75
// %, long ones with larger weights, and a hot value for every five placements in five minutes and every two in one.
func GocraneSpec() Spec {
	const (
		brief  = 3 * time.Minute
		hourly = 15 * time.Minute
		daily  = 3 * time.Hour
	)

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

func sortedKeys(m map[units.Resource]WaterMarks) []units.Resource {
	return slices.Sorted(maps.Keys(m))
}
