// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"fmt"
	"slices"
	"time"

	"crane.io/crane/pkg/scaling"
	"crane.io/crane/pkg/series"
)

// Oracle is a Reactive scaler with exact values of the coming load, as far ahead as a change takes effect.
type Oracle struct {
	Reactive
	cfg  Config
	load series.Series
}

// NewOracle returns an oracle for a series.
func NewOracle(cfg Config, load series.Series) *Oracle {
	return &Oracle{Reactive: Reactive{Target: cfg.Target, Tolerance: cfg.Tolerance}, cfg: cfg, load: load}
}

// Name implements Scaler.
func (*Oracle) Name() string { return "oracle" }

// Propose implements Scaler.
func (o *Oracle) Propose(v ScalerInput) ([]scaling.Proposal, int32) {
	ahead := scaling.Proposal{Metric: "the load to come"}
	first := int(v.Now.Sub(o.load.Start) / o.load.Step)
	for i := max(first, 0); i < len(o.load.Values) && !o.load.Time(i).After(v.Now.Add(o.lead(maxDoublings))); i++ {
		needed := scaling.ReplicasForLoad(o.load.Values[i], o.cfg.Capacity)
		if needed > ahead.Replicas && !o.load.Time(i).After(v.Now.Add(o.lead(doublings(v.Current, needed)))) {
			ahead.Replicas = needed
		}
	}

	return []scaling.Proposal{o.reactiveProposal(v), ahead}, 0
}

// maxDoublings bounds how far an oracle looks ahead.
const maxDoublings = 10

// lead returns the time from a proposal to ready pods, where an HPA reaches it in some more syncs.
func (o *Oracle) lead(moreSyncs int) time.Duration {
	return o.cfg.Startup + time.Duration(1+moreSyncs)*o.cfg.Sync
}

// doublings returns the syncs that an HPA without a behavior needs before the last one: it at most doubles the replicas in each.
func doublings(current, needed int32) int {
	count := 0
	for n := int64(max(current, 2)); 2*n < int64(needed) && count < maxDoublings; n *= 2 {
		count++
	}

	return count
}

const (
	// cronBlock is the length of a window of Cron.
	cronBlock = 3 * time.Hour
	// cronQuantile is the quantile of the load in a block that its replicas are sized for.
	cronQuantile = 0.95
)

// Cron scales by the clock alone: eight windows a day, sized from the load of the warm-up.
type Cron struct {
	cfg        Config
	blockLoads [24 * time.Hour / cronBlock][]float64
	start      time.Time
	windows    []scaling.CronWindow
	// proposal holds until a time; windows open and close on the hour.
	proposal scaling.Proposal
	until    time.Time
}

// NewCron returns a scaler that sizes its windows from the warm-up.
func NewCron(cfg Config, begin time.Time) *Cron { return &Cron{cfg: cfg, start: begin} }

// Name implements Scaler.
func (*Cron) Name() string { return "cron" }

// Observe implements Scaler.
func (c *Cron) Observe(at time.Time, load float64) {
	if at.Before(c.start.Add(c.cfg.Warmup)) && !series.IsGap(load) {
		block := at.UTC().Hour() / int(cronBlock.Hours())
		c.blockLoads[block] = append(c.blockLoads[block], load)
	}
}

// buildWindows creates the windows from the observed loads.
func (c *Cron) buildWindows() error {
	for block, loads := range c.blockLoads {
		start := block * int(cronBlock.Hours())
		end := (start + int(cronBlock.Hours())) % 24
		slices.Sort(loads)

		replicas := scaling.ReplicasForLoad(series.QuantileSorted(loads, cronQuantile), c.cfg.Capacity*c.cfg.Target)
		w, err := scaling.NewCronWindow(fmt.Sprintf("%02d:00", start), fmt.Sprintf("0 %d * * *", start), fmt.Sprintf("0 %d * * *", end), time.UTC, replicas)
		if err != nil {
			return fmt.Errorf("window of %02d:00: %w", start, err)
		}

		c.windows = append(c.windows, w)
	}

	return nil
}

// Propose implements Scaler.
func (c *Cron) Propose(v ScalerInput) ([]scaling.Proposal, int32) {
	if c.windows == nil {
		if err := c.buildWindows(); err != nil {
			return []scaling.Proposal{{Metric: "cron", Err: err}}, 0
		}
	}

	if !v.Now.Before(c.until) { // Evaluating the schedules in each step takes three quarters of the time of a replay.
		floor := scaling.FloorAt(c.windows, v.Now)
		c.proposal = scaling.Proposal{Metric: "cron", Replicas: max(floor.Replicas, 1), Reason: fmt.Sprintf("open windows: %v", floor.OpenWindows)}
		c.until = v.Now.UTC().Truncate(time.Hour).Add(time.Hour)
	}

	return []scaling.Proposal{c.proposal}, 0
}
