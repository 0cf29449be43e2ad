// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/elasticrequest"
	"crane.io/crane/internal/agent/elasticresource"
	"crane.io/crane/internal/agent/heartbeat"
	"crane.io/crane/internal/agent/podresource"
	"crane.io/crane/internal/agent/report"
	"crane.io/crane/internal/component/featuregate"
	model "crane.io/crane/pkg/elastic"
	"crane.io/crane/pkg/units"
)

// Manager is a part of the agent that runs from start to end. Managers run in goroutines of their own and share only immutable values, so
// that a slow one never stalls another; each calls its heartbeat after each step.
type Manager interface {
	// Name is the name of its heartbeat, in logs and in metrics.
	Name() string
	// Run works until ctx ends and then undoes temporary changes. If it returns an error before, it is called again after a pause.
	Run(ctx context.Context) error
}

const (
	// startTimeout bounds the wait for a manager to start before the next one is started.
	startTimeout = 15 * time.Second
	// minRetry and maxRetry bound the pause after a failure.
	minRetry = time.Second
	maxRetry = time.Minute
	// minStopTime is the least time each manager gets to stop.
	minStopTime = time.Second
)

// managerGroup runs managers together.
type managerGroup struct {
	log        logr.Logger
	clock      clock.Clock
	heartbeats *heartbeat.Heartbeats
	// stopTimeout bounds the time all of them take to stop.
	stopTimeout time.Duration
}

// runningManager is a started manager.
type runningManager struct {
	Manager

	stop context.CancelFunc
	done chan struct{}
	err  error // result; valid after done
}

// run starts managers in order, each after the previous one has started or timed out, and stops them in reverse order when ctx ends, each
// after the previous one. The error names the managers that failed to stop in time.
func (g managerGroup) run(ctx context.Context, list []Manager) error {
	var started []*runningManager
	for _, m := range list {
		r := g.start(ctx, m)
		started = append(started, r)

		if !g.waitStarted(ctx, r) {
			break
		}
	}

	<-ctx.Done()
	end := g.clock.Now().Add(g.stopTimeout)
	var errs []error
	// Reverse order, so that a manager stops before those that it needs.
	for _, r := range slices.Backward(started) {
		r.stop()
		select {
		case <-r.done:
			if r.err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", r.Name(), r.err))
			}
		case <-g.clock.After(max(end.Sub(g.clock.Now()), minStopTime)):
			errs = append(errs, fmt.Errorf("%s: has not stopped in time", r.Name()))
		}
	}

	return errors.Join(errs...)
}

// start runs a manager until it is stopped in its turn; the end of ctx alone does not stop it.
func (g managerGroup) start(ctx context.Context, m Manager) *runningManager {
	runCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := &runningManager{Manager: m, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(r.done)

		for pause := minRetry; ; pause = min(2*pause, maxRetry) {
			startedAt := g.clock.Now()
			err := m.Run(runCtx)
			if runCtx.Err() != nil {
				r.err = err
				return
			}

			if err == nil {
				g.heartbeats.Remove(m.Name()) // It has finished.
				return
			}

			if g.clock.Since(startedAt) > maxRetry {
				pause = minRetry
			}

			g.log.Error(err, "manager failed", "part", m.Name(), "retryAfter", pause.String())
			select {
			case <-runCtx.Done():
				return
			case <-g.clock.After(pause):
			}
		}
	}()

	return r
}

// waitStarted waits until a manager has started and reports whether to continue.
func (g managerGroup) waitStarted(ctx context.Context, r *runningManager) bool {
	startedCh := g.heartbeats.Started(r.Name())
	if startedCh == nil {
		return ctx.Err() == nil // It has no heartbeat.
	}

	select {
	case <-startedCh:
	case <-r.done:
	case <-ctx.Done():
		return false
	case <-g.clock.After(startTimeout):
		g.log.Info("manager is slow to start; starting the next one", "part", r.Name())
	}

	return true
}

// reservedFlag names the flag for the share of a node that is never offered as elastic resources.
const reservedFlag = "node-resource-reserved"

// defaultMemoryReserve keeps the memory above the water mark evict of the shipped policy (0.85) out of the offer: elastic pods that use all
// of an offer up to it would cause evictions. CPU has none, as in gocrane, because elastic pods yield it at once.
const defaultMemoryReserve units.Ratio = 0.15

// ReclaimOptions are the flags of elastic resources.
type ReclaimOptions struct {
	// Reserved maps cpu and memory to shares of the node, such as 40%, that apply without an annotation of the node. Memory has a default.
	Reserved map[string]string
}

func (o *ReclaimOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringToStringVar(&o.Reserved, reservedFlag, o.Reserved, "Shares of the node that are never offered as elastic resources, as in cpu=40%,memory=40%, unless an annotation of the node overrides them. Memory that is not named has 15%.")
}

func (o *ReclaimOptions) validate() field.ErrorList {
	if _, err := o.reserves(); err != nil {
		return field.ErrorList{invalid(reservedFlag, o.Reserved, err.Error())}
	}

	return nil
}

func (o *ReclaimOptions) reserves() (elasticresource.Reserves, error) {
	out := elasticresource.Reserves{Memory: defaultMemoryReserve}
	for name, text := range o.Reserved {
		share, err := model.ParseReserve(text)
		switch {
		case err != nil:
			return out, fmt.Errorf("%s: %w", name, err)
		case name == "cpu":
			out.CPU = share
		case name == "memory":
			out.Memory = share
		default:
			return out, fmt.Errorf("%.40q is neither cpu nor memory", name)
		}
	}

	return out, nil
}

// newElasticManagers returns the managers of elastic resources whose feature gates are on and the node's reclaimable capacity; nil if it is
// not computed.
func (e environment) newElasticManagers(access clusterAccess, j journals, reporter *report.Reporter) ([]Manager, func() elasticrequest.ReclaimableCapacity, error) {
	var list []Manager
	var reclaimable func() elasticrequest.ReclaimableCapacity
	if e.FeatureGates.Enabled(featuregate.NodeResource) && access.api != nil {
		reserves, err := e.Reclaim.reserves()
		if err != nil {
			return nil, nil, err
		}

		m := elasticresource.New(elasticresource.Config{
			View:        access.view,
			Latest:      e.latest,
			NodeChanged: access.nodeChanged,
			Client:      access.api,
			Objects:     access.api.objects,
			Namespace:   e.Cluster.Namespace,
			Reserves:    reserves,
			Enforce:     e.enforces(enforceNodeResource),
			Clock:       e.clock,
			Log:         e.log,
			Beat:        e.heartbeats.Register("node-resource"),
			Report:      reporter.ReportAction,
		})

		if err := register(e, m); err != nil {
			return nil, nil, err
		}

		list = append(list, m)
		reclaimable = m.ReclaimableCapacity
	}

	if e.FeatureGates.Enabled(featuregate.PodResource) {
		config := podresource.Config{
			View:   access.view,
			Latest: e.latest,
			Layout: e.layout,
			Clock:  e.clock,
			Log:    e.log,
			Beat:   e.heartbeats.Register("pod-resource"),
			Report: reporter.ReportAction,
		}

		// The undo manager starts first and so stops after the one whose changes it undoes.
		if e.limitsElasticPods() {
			config.Journal = j.changes
			config.MemoryJournal = j.memory
			list = append(list, undoOnStop{j.memory, reporter, e.restart.kept})
		}

		m := podresource.New(config)
		if err := register(e, m); err != nil {
			return nil, nil, err
		}

		list = append(list, m)
	}

	return list, reclaimable, nil
}

// limitsElasticPods reports whether the limits of elastic pods are changed.
func (e environment) limitsElasticPods() bool {
	return e.FeatureGates.Enabled(featuregate.PodResource) && e.enforces(enforcePodResource)
}
