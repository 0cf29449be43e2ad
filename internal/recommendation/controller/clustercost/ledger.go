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
	// usageWindow is the time over which the usage of a pod is averaged.
	usageWindow = time.Hour
	// readTimeout bounds one read of the cluster and of usage.
	readTimeout = 5 * time.Minute
	// staleIntervals is the number of intervals after which figures that could not be refreshed are no longer exported.
	staleIntervals = 3
)

// ClusterReader lists all nodes, and the pods of some namespaces, or of all namespaces if there are none. *workload.Lister
// implements it.
type ClusterReader interface {
	Cluster(ctx context.Context, namespaces []string) (workload.Cluster, error)
}

// Config configures a Ledger.
type Config struct {
	PriceBook *cost.PriceBook
	Cluster   ClusterReader
	// Usage may be nil: then costs are allocated by request only.
	Usage metrics.UsageReader
	// Capacity reads the limits of containers, which bound samples. It may be nil: then only nodes do.
	Capacity metrics.CapacityReader
	// Interval is the time between two reads, above 0.
	Interval time.Duration
	Clock    clock.WithTicker
}

// Ledger provides the cost of the cluster. It is a manager.Runnable of the leader and a prometheus.Collector. All methods
// are safe for concurrent use.
type Ledger struct {
	cfg Config

	// readMu serializes reads; it is locked before mu.
	readMu sync.Mutex

	mu         sync.Mutex
	last       *snapshot
	failures   float64
	lastFailed bool
}

// snapshot is the result of one read.
type snapshot struct {
	at         time.Time
	tariff     *cost.Tariff
	placement  workload.Placement
	cluster    workload.Cluster
	allocation cost.Allocation
	// allocated is set once the cost has been allocated, at allocatedAt; withUsage is set if the allocation includes usage.
	allocated, withUsage bool
	allocatedAt          time.Time
}

// New returns a ledger that has read nothing yet. It fails if the configuration is incomplete.
func New(cfg Config) (*Ledger, error) {
	if cfg.PriceBook == nil || cfg.Cluster == nil || cfg.Clock == nil || cfg.Interval <= 0 {
		return nil, errors.New("a ledger needs a price book, a cluster, a clock and an interval above zero")
	}

	return &Ledger{cfg: cfg}, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (l *Ledger) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable: it refreshes the ledger until ctx ends. A failed refresh keeps the previous figures;
// the first failure is logged, and each one is counted.
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
	l.readMu.Lock()
	defer l.readMu.Unlock()

	readCtx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()

	b, err := l.read(readCtx)
	if err == nil {
		l.setPrices(b) // The prices are complete now; their readers need not wait for the usage.
		allocated := *b
		err = l.allocate(readCtx, &allocated)
		l.mu.Lock()
		l.last = &allocated
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
		ctrl.LoggerFrom(ctx).WithName("cost").Error(err, "refreshing the cost of the cluster; further failures are only counted")
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

	return &snapshot{
		at:        l.cfg.Clock.Now(),
		tariff:    tariff,
		placement: cluster.Placement(),
		cluster:   cluster,
	}, nil
}

// allocate allocates the cost to the workloads; by request only, with an error, if the usage cannot be read.
func (l *Ledger) allocate(ctx context.Context, b *snapshot) error {
	use := func(string, string) (cost.Amounts, bool) { return cost.Amounts{}, false }
	var err error
	if l.cfg.Usage != nil {
		end := b.at.Truncate(time.Minute)
		var read *profile.PodUsage
		if read, err = profile.ReadPodUsage(ctx, l.cfg.Usage, capacityReader{nodes: b.cluster.Nodes, source: l.cfg.Capacity}, nil, end.Add(-usageWindow), end); err == nil {
			use = read.Mean
			b.withUsage = true
		}
	}

	b.allocation = cost.Allocate(b.tariff, b.cluster.CostPods(use))
	// Pods need much memory and are no longer needed.
	b.cluster = workload.Cluster{}
	b.allocated = true
	b.allocatedAt = b.at

	return err
}

// capacityReader is a metrics.CapacityReader of the current nodes, and of the limits of containers where a source has them.
type capacityReader struct {
	nodes  []cost.Node
	source metrics.CapacityReader
}

// Capacities implements metrics.CapacityReader. Without limits, the nodes still bound samples.
func (r capacityReader) Capacities(ctx context.Context, w metrics.Window, namespaces []string) (*metrics.Capacities, error) {
	out := metrics.NewCapacities()
	if r.source != nil {
		known, err := r.source.Capacities(ctx, w, namespaces)
		switch {
		case err == nil && known != nil:
			out = known
		case err != nil && !errors.Is(err, metrics.ErrUnsupported):
			ctrl.LoggerFrom(ctx).WithName("cost").Info("reading the limits of containers, which bound samples", "err", err)
		}
	}

	for _, node := range r.nodes {
		out.AddNode(node.Name, metrics.CPU, float64(node.Size.CPU)/1000)
		out.AddNode(node.Name, metrics.Memory, float64(node.Size.Memory))
	}

	return out, nil
}

// Prices returns the prices of the nodes and the placement of pods, refreshed if they are older than the interval. If that
// fails it returns the previous ones; it is an error if there are none.
func (l *Ledger) Prices(ctx context.Context) (*cost.Tariff, workload.Placement, error) {
	if b := l.fresh(); b != nil {
		return b.tariff, b.placement, nil
	}

	l.readMu.Lock()
	defer l.readMu.Unlock()

	if b := l.fresh(); b != nil { // Another goroutine has read meanwhile.
		return b.tariff, b.placement, nil
	}

	readCtx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()

	b, err := l.read(readCtx)
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

// Latest returns the prices and the allocation of the last read; false while there is none, and once it is stale.
func (l *Ledger) Latest() (*cost.Tariff, cost.Allocation, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.last == nil || l.stale() {
		return nil, cost.Allocation{}, false
	}

	return l.last.tariff, l.last.allocation, true
}

// stale reports whether the last snapshot has no allocation, or an old one. mu is locked.
func (l *Ledger) stale() bool {
	return !l.last.allocated || l.cfg.Clock.Since(l.last.allocatedAt) > staleIntervals*l.cfg.Interval
}

// setPrices stores the prices and the placement of a read and keeps the previous allocation.
func (l *Ledger) setPrices(b *snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()

	next := &snapshot{at: b.at, tariff: b.tariff, placement: b.placement}
	if l.last != nil {
		next.allocation = l.last.allocation
		next.allocated = l.last.allocated
		next.withUsage = l.last.withUsage
		next.allocatedAt = l.last.allocatedAt
	}

	l.last = next
}

// fresh returns the last snapshot if it is no older than the interval; otherwise nil.
func (l *Ledger) fresh() *snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.last == nil || l.cfg.Clock.Since(l.last.at) > l.cfg.Interval {
		return nil
	}

	return l.last
}
