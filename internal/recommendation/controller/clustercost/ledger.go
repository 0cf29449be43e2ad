// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package clustercost

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/pkg/cost"
)

const (
	// usageWindow is how far back the mean use of a pod reaches.
	usageWindow = time.Hour
	// readTimeout bounds one reading.
	readTimeout = 5 * time.Minute
	// staleIntervals is the number of intervals after which figures that could not be renewed are no longer exported.
	staleIntervals = 3
)

// ClusterReader lists nodes, and the pods of some namespaces (none: all). *workload.Lister is one.
type ClusterReader interface {
	Cluster(ctx context.Context, namespaces []string) (workload.Cluster, error)
}

// Config is what a Ledger needs.
type Config struct {
	PriceBook *cost.PriceBook
	Cluster   ClusterReader
	// Usage may be nil: then costs are by request alone.
	Usage metrics.UsageReader
	// Interval is the time between two readings, more than 0.
	Interval time.Duration
	Clock    clock.WithTicker
}

// Ledger knows what the cluster costs. It is a manager.Runnable that only the leader runs, and a prometheus.Collector;
// all its methods are safe for concurrent use.
type Ledger struct {
	cfg Config

	// reading lets one reading run at a time; it is taken before mu.
	reading sync.Mutex

	mu         sync.Mutex
	last       *snapshot
	failures   float64
	lastFailed bool
}

// snapshot are the outcome of one reading.
type snapshot struct {
	at         time.Time
	tariff     *cost.Tariff
	placement  workload.Placement
	cluster    workload.Cluster
	allocation cost.Allocation
	// allocated tells that the allocation has been made, allocatedAt when, withUsage that it knows what pods use.
	allocated, withUsage bool
	allocatedAt          time.Time
}

// New returns a ledger that has read nothing. It fails where something is missing.
func New(cfg Config) (*Ledger, error) {
	if cfg.PriceBook == nil || cfg.Cluster == nil || cfg.Clock == nil || cfg.Interval <= 0 {
		return nil, errors.New("a ledger needs a price book, a cluster, a clock and an interval above zero")
	}
	return &Ledger{cfg: cfg}, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (l *Ledger) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable: it renews the books until ctx ends. A reading that fails leaves the last one in
// place; it is logged when it begins to fail and counted each time.
func (l *Ledger) Start(ctx context.Context) error {
	ticker := l.cfg.Clock.NewTicker(l.cfg.Interval)
	defer ticker.Stop()
	for {
		l.refresh(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

func (l *Ledger) refresh(ctx context.Context) {
	l.reading.Lock()
	defer l.reading.Unlock()
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	b, err := l.read(reading)
	if err == nil {
		l.setPrices(b) // The prices are good at once; who asks for them need not wait for the use.
		dealt := *b
		err = l.allocate(reading, &dealt)
		l.mu.Lock()
		l.last = &dealt
		l.mu.Unlock()
	}
	if ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	began := err != nil && !l.lastFailed
	if l.lastFailed = err != nil; l.lastFailed {
		l.failures++
	}
	l.mu.Unlock()
	if began {
		ctrl.LoggerFrom(ctx).WithName("cost").Error(err, "Reading what the cluster costs; further failures are only counted")
	}
}

// read lists the cluster and prices its nodes.
func (l *Ledger) read(ctx context.Context) (*snapshot, error) {
	cluster, err := l.cfg.Cluster.Cluster(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("listing nodes and pods: %w", err)
	}
	tariff, err := cost.NewTariff(l.cfg.PriceBook, cluster.Nodes)
	if err != nil {
		return nil, fmt.Errorf("pricing the nodes: %w", err)
	}
	return &snapshot{at: l.cfg.Clock.Now(), tariff: tariff, placement: cluster.Placement(), cluster: cluster}, nil
}

// allocate deals the cost out to the workloads. Where the use cannot be read it is dealt out by request, and the error says
// why.
func (l *Ledger) allocate(ctx context.Context, b *snapshot) error {
	use := func(string, string) (cost.Amounts, bool) { return cost.Amounts{}, false }
	var err error
	if l.cfg.Usage != nil {
		end := b.at.Truncate(time.Minute)
		var read *profile.PodUsage
		if read, err = profile.ReadPodUsage(ctx, l.cfg.Usage, nil, end.Add(-usageWindow), end); err == nil {
			use, b.withUsage = read.Mean, true
		}
	}
	b.allocation = cost.Allocate(b.tariff, b.cluster.CostPods(use))
	b.cluster, b.allocated, b.allocatedAt = workload.Cluster{}, true, b.at // Pods are many and no longer needed.
	return err
}

// Prices returns what the nodes cost and where pods run, read anew where the last reading is older than the interval.
// Where that is not possible the last one is returned; the error is for when there is none.
func (l *Ledger) Prices(ctx context.Context) (*cost.Tariff, workload.Placement, error) {
	if b := l.fresh(); b != nil {
		return b.tariff, b.placement, nil
	}
	l.reading.Lock()
	defer l.reading.Unlock()
	if b := l.fresh(); b != nil { // Somebody else has read meanwhile.
		return b.tariff, b.placement, nil
	}
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	b, err := l.read(reading)
	if err == nil {
		l.setPrices(b)
		return b.tariff, b.placement, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		return nil, nil, err
	}
	return l.last.tariff, l.last.placement, nil
}

// setPrices takes over prices and placement of a reading. The costs stay those of the last one that dealt them out.
func (l *Ledger) setPrices(b *snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := &snapshot{at: b.at, tariff: b.tariff, placement: b.placement}
	if l.last != nil {
		next.allocation, next.allocated, next.withUsage, next.allocatedAt = l.last.allocation, l.last.allocated, l.last.withUsage, l.last.allocatedAt
	}
	l.last = next
}

// fresh returns the last reading if it is no older than the interval.
func (l *Ledger) fresh() *snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil || l.cfg.Clock.Since(l.last.at) > l.cfg.Interval {
		return nil
	}
	return l.last
}
