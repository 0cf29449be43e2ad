// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package savingsrecorder

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/component/notification"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/recommendation/savingsrecord"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/savings"
)

const (
	// maxGapIntervals is the number of intervals after which the time since the last sample counts as not observed.
	maxGapIntervals = 3
	// sampleTimeout bounds the recording of one sample.
	sampleTimeout = 5 * time.Minute
)

// Ledger provides the last allocation of the cost of the cluster.
type Ledger interface {
	Latest() (*cost.Tariff, cost.Allocation, bool)
}

// Config configures a Recorder.
type Config struct {
	Ledger Ledger
	// Recommendations reads Recommendations, from a cache; nil where they are off.
	Recommendations client.Reader
	// Live reads the record and the metadata of workloads from the API server; Writer writes the record.
	Live   client.Reader
	Writer client.Writer
	// Pods lists the pods of namespaces.
	Pods *workload.Lister
	// Namespace is Crane's namespace.
	Namespace string
	// Interval is the time between two samples, above 0.
	Interval time.Duration
	Clock    clock.WithTicker
	// Notify receives the weekly report when it is due; nil for none.
	Notify func(notification.Event)
	Report savings.Schedule
}

// Recorder records savings. It is a manager.Runnable of the leader and a prometheus.Collector.
type Recorder struct {
	cfg Config

	mu       sync.Mutex
	at       time.Time
	failures float64
	failing  bool
}

// New returns a recorder that has recorded nothing.
func New(cfg Config) *Recorder { return &Recorder{cfg: cfg} }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Recorder) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable: it records a sample at each interval until ctx ends.
func (r *Recorder) Start(ctx context.Context) error {
	ticker := r.cfg.Clock.NewTicker(r.cfg.Interval)
	defer ticker.Stop()

	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			r.observe(ctx, r.recordSample(ctx))
		}
	}
}

// observe counts the result of a sample and logs the first of several failures.
func (r *Recorder) observe(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}

	r.mu.Lock()
	began := err != nil && !r.failing

	if r.failing = err != nil; r.failing {
		r.failures++
	} else {
		r.at = r.cfg.Clock.Now()
	}

	r.mu.Unlock()
	if began {
		ctrl.LoggerFrom(ctx).WithName("savings").Error(err, "recording the savings; further failures are only counted")
	}
}

// recordSample records one sample.
func (r *Recorder) recordSample(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()

	tariff, allocation, ok := r.cfg.Ledger.Latest()
	if !ok {
		return errors.New("the cost of the cluster is not known")
	}

	sample, err := r.sample(ctx, tariff, allocation)
	if err != nil {
		return err
	}

	now := r.cfg.Clock.Now()
	weekly := ""
	err = savingsrecord.Update(ctx, r.cfg.Live, r.cfg.Writer, r.cfg.Namespace, func(record *savings.Record) error {
		before := record.Until
		err := record.Add(now, maxGapIntervals*r.cfg.Interval, sample)
		weekly = r.weeklyText(record, before, now)

		return err
	})

	if err == nil && weekly != "" {
		r.cfg.Notify(notification.Event{Time: now, Reason: notification.ReasonWeeklyReport, Message: weekly})
	}

	return err
}

// weeklyText returns the report if it became due since the record was written before. The record then ends after that time, for the next
// leader too: the report is sent once.
func (r *Recorder) weeklyText(record *savings.Record, before, now time.Time) string {
	if r.cfg.Notify == nil || before.IsZero() {
		return ""
	}

	due := r.cfg.Report.Due(now)
	if !before.Before(due) {
		return ""
	}

	return record.WeeklyText(savings.WeekEnd(due))
}

// sample returns the present costs and savings.
func (r *Recorder) sample(ctx context.Context, tariff *cost.Tariff, allocation cost.Allocation) (savings.Sample, error) {
	out := savings.Sample{
		Currency: allocation.Currency, Cluster: allocation.Cluster.Total().PerHour(), Namespaces: map[string]savings.Amounts{},
	}
	for _, ns := range allocation.Namespaces {
		out.Namespaces[ns.Namespace] = savings.Amounts{Cost: ns.Cost.Request.Total().PerHour()}
	}

	// Without Recommendations the sample has costs alone.
	if r.cfg.Recommendations == nil {
		return out, nil
	}

	adopted, unknown, err := r.readAdopted(ctx)
	if err != nil {
		return savings.Sample{}, err
	}

	implausible, err := r.addAdopted(ctx, tariff, adopted, out.Namespaces)
	if err != nil {
		return savings.Sample{}, err
	}

	out.Unknown = unknown + implausible
	if err := r.addAvailable(ctx, adopted, &out); err != nil {
		return savings.Sample{}, err
	}

	return out, nil
}

func descriptions() (at, failures *prometheus.Desc) {
	return prometheus.NewDesc("crane_savings_recorded_timestamp_seconds", "Time of the last recorded sample of savings, in seconds since the epoch.", nil, nil),
		prometheus.NewDesc("crane_savings_record_failures_total", "Samples of savings that could not be recorded.", nil, nil)
}

// Describe implements prometheus.Collector.
func (r *Recorder) Describe(ch chan<- *prometheus.Desc) {
	at, failures := descriptions()
	ch <- at
	ch <- failures
}

// Collect implements prometheus.Collector.
func (r *Recorder) Collect(ch chan<- prometheus.Metric) {
	at, failures := descriptions()
	r.mu.Lock()
	defer r.mu.Unlock()

	ch <- prometheus.MustNewConstMetric(failures, prometheus.CounterValue, r.failures)
	if !r.at.IsZero() {
		ch <- prometheus.MustNewConstMetric(at, prometheus.GaugeValue, float64(r.at.Unix()))
	}
}
