// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package oomrecord

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/component/backoff"
	"crane.io/crane/internal/kube/podwatch"
	"crane.io/crane/pkg/oom"
)

const (
	// writeDelay is the time for which kills are collected before they are written together.
	writeDelay = time.Second
	// firstRetry and lastRetry bound the backoff of failed writes.
	firstRetry, lastRetry = time.Second, time.Minute
	// ownerTimeout is the time for which a kill waits until the API server returns its owner. A kill with a wrong owner
	// would never be used.
	ownerTimeout = 5 * time.Minute
	// maxPending bounds the unwritten kills. Further kills are detected again in the status of their pods.
	maxPending = 5000
	// maxSeen bounds the IDs of written kills that are kept to skip them. Beyond it they are looked up in the ledger.
	maxSeen = 50000
)

// Config configures a Recorder.
type Config struct {
	// Pods are watched, ConfigMaps hold the ledger, and Objects reads the owners of pods.
	Pods       corev1client.PodsGetter
	ConfigMaps corev1client.ConfigMapsGetter
	Objects    client.Reader
	// Namespace is that of the ConfigMap.
	Namespace string
	Limits    oom.Limits
	// CleanEvery is the time between two deletions of old records.
	CleanEvery time.Duration
	Events     events.EventRecorder
	Metrics    *Metrics
	Clock      clock.WithTicker
}

// Recorder detects kills in the status of pods and records each of them once. It is a manager.Runnable of the leader. Kills
// that it did not write before it stopped are still in the status of their pods, where the next leader finds them.
type Recorder struct {
	cfg Config

	mu      sync.Mutex // guards the fields below
	pending []pendingKill
	// seen are the IDs of pending and written kills.
	seen map[string]bool
	// overflowed is set if a kill did not fit into pending.
	overflowed bool
	// deletedPods are pods that were deleted while kills were pending: they get no series.
	deletedPods map[podName]bool
	// ledger is the ledger as it was last read or written; nil before that.
	ledger *oom.Ledger

	wake       chan struct{}
	relist     chan struct{}
	onRecorded func([]oom.Kill)
}

// pendingKill is a kill whose owner is not known yet.
type pendingKill struct {
	kill  oom.Kill
	owner *metav1.OwnerReference
	at    time.Time // when it was detected
}

// NewRecorder returns a recorder that does nothing before Start.
func NewRecorder(cfg Config) *Recorder {
	return &Recorder{
		cfg:         cfg,
		seen:        map[string]bool{},
		deletedPods: map[podName]bool{},
		wake:        make(chan struct{}, 1),
		relist:      make(chan struct{}, 1),
	}
}

// OnRecorded registers a function that is called with newly recorded kills, by one goroutine. It must be called before
// Start.
func (r *Recorder) OnRecorded(callback func([]oom.Kill)) { r.onRecorded = callback }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (r *Recorder) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable: it watches and writes until ctx ends.
func (r *Recorder) Start(ctx context.Context) error {
	var watching sync.WaitGroup
	defer watching.Wait()

	watching.Go(func() {
		pods := podwatch.Watcher{Pods: r.cfg.Pods, Clock: r.cfg.Clock, Name: "oom"}
		for ctx.Err() == nil {
			pods.Run(ctx, r, r.relist)
		}
	})

	r.write(ctx)
	return nil
}

// ListStarted implements podwatch.Handler.
func (r *Recorder) ListStarted() { r.cfg.Metrics.beginListing() }

// ListCompleted implements podwatch.Handler.
func (r *Recorder) ListCompleted() { r.cfg.Metrics.dropUnlisted() }

// PodDeleted implements podwatch.Handler.
func (r *Recorder) PodDeleted(pod *corev1.Pod) {
	r.PodUpdated(pod) // Its last status may show a new kill.
	r.cfg.Metrics.dropPod(pod.Namespace, pod.Name)
	r.mu.Lock()
	defer r.mu.Unlock()

	if len(r.pending) > 0 {
		r.deletedPods[podName{pod.Namespace, pod.Name}] = true
	}
}

// PodUpdated implements podwatch.Handler.
func (r *Recorder) PodUpdated(pod *corev1.Pod) {
	r.cfg.Metrics.markListed(pod.Namespace, pod.Name)
	kills := DetectKills(pod)
	if len(kills) == 0 {
		return
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	for _, k := range kills {
		if r.seen[k.ID] {
			continue
		}

		// Kills that do not fit are found again when all pods are listed.
		if len(r.pending) >= maxPending {
			r.overflowed = true
			r.cfg.Metrics.overflowed.Inc()
			break
		}

		r.remember(k.ID)
		r.pending = append(r.pending, pendingKill{kill: k, owner: metav1.GetControllerOf(pod), at: r.cfg.Clock.Now()})
	}

	if len(r.pending) > 0 {
		notify(r.wake)
	}
}

// remember adds an ID to seen. r.mu must be held.
func (r *Recorder) remember(id string) {
	if len(r.seen) >= maxSeen {
		r.seen = map[string]bool{}
		for _, s := range r.pending {
			r.seen[s.kill.ID] = true
		}
	}

	r.seen[id] = true
}

func notify(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// write writes pending kills into the ledger until ctx ends, and deletes old records periodically.
func (r *Recorder) write(ctx context.Context) {
	log := ctrl.LoggerFrom(ctx).WithName("oom")
	clean := r.cfg.Clock.NewTicker(r.cfg.CleanEvery)
	defer clean.Stop()

	delays := backoff.Exponential{First: firstRetry, Last: lastRetry}
	pause := delays.First
	wait := time.Duration(0) // The ledger is read immediately.
	for {
		if wait >= 0 && !r.sleep(ctx, wait) {
			return
		}

		err := r.flush(ctx)
		if ctx.Err() != nil {
			return
		}

		if err != nil {
			r.cfg.Metrics.failures.Inc()
			log.Error(err, "writing OOM kills", "retryAfter", pause.String())
			wait = pause
			pause = delays.Next(pause)
			continue
		}

		wait = writeDelay
		pause = delays.First

		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-clean.C():
		}
	}
}

func (r *Recorder) sleep(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return ctx.Err() == nil
	}

	timer := r.cfg.Clock.NewTimer(d)
	defer timer.Stop()

	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

// flush writes the pending kills. After an error they stay pending.
func (r *Recorder) flush(ctx context.Context) error {
	r.mu.Lock()
	batch := r.pending[:len(r.pending):len(r.pending)]
	r.mu.Unlock()

	kills := make([]oom.Kill, len(batch))
	owners := ownerCache{reader: r.cfg.Objects}
	for i, s := range batch {
		kills[i] = s.kill
		var err error
		if kills[i].Owner, err = owners.find(ctx, s, r.cfg.Clock.Since(s.at) < ownerTimeout); err != nil {
			return err
		}
	}

	if ctx.Err() != nil {
		return ctx.Err()
	}

	ledger, added, err := r.storeKills(ctx, kills)
	if err != nil {
		return err
	}

	r.cfg.Metrics.records.Set(float64(len(ledger.Kills())))
	r.mu.Lock()

	for _, k := range added {
		if !r.deletedPods[podName{k.Namespace, k.Pod}] {
			r.cfg.Metrics.countKill(k)
		}
	}

	r.ledger = ledger
	r.pending = append([]pendingKill(nil), r.pending[len(batch):]...)
	if len(r.pending) == 0 {
		clear(r.deletedPods)
	}

	overflowed := r.overflowed
	r.overflowed = false
	r.mu.Unlock()

	if overflowed {
		notify(r.relist) // Kills that did not fit are still in the status of their pods.
	}
	if len(added) > 0 && r.onRecorded != nil {
		r.onRecorded(added)
	}

	return nil
}

// errNotRead means that the ledger could not be read.
var errNotRead = errors.New("the ledger of OOM kills is not read yet")

// Kills returns the recorded kills, oldest first; they must not be modified. It reads the ledger if this process has not
// read it yet.
func (r *Recorder) Kills(ctx context.Context) ([]oom.Kill, error) {
	r.mu.Lock()
	last := r.ledger
	r.mu.Unlock()

	if last != nil {
		return last.Kills(), nil
	}

	book, err := r.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotRead, err)
	}

	return book.ledger.Kills(), nil
}
