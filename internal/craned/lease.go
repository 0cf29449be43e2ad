// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/kube/slimclient"
)

// lease is the leader election lock. It reports when another replica has acquired it: client-go's elector would retry renewals
// for the rest of its deadline, and there would be two leaders meanwhile. It also reports when it was not renewed in time: the elector stops
// leading only after its last request and one that releases the lease have failed, which is too late if the API server does not answer.
type lease struct {
	resourcelock.Interface
	clock clock.WithDelayedExecution
	// limit is the time after the start of the last renewal at which this replica must have ended.
	limit time.Duration
	// leading reports whether this replica has been the holder.
	leading atomic.Bool
	// lost receives the reason why this replica is no longer the holder, once.
	lost chan error
	// events records changes of the leader.
	events record.EventBroadcaster

	mu sync.Mutex
	// expiry fires at the limit; nil unless this replica is the holder.
	expiry clock.Timer
}

// newLease returns a lock on a Lease. It has a client of its own, because with the controllers' rate limit a renewal could be
// late whenever they write much.
func newLease(config *rest.Config, o *Options) (*lease, error) {
	leaseConfig := rest.AddUserAgent(rest.CopyConfig(config), "leader-election")
	leaseConfig.RateLimiter = nil

	// A request that hangs must leave time for another before the deadline.
	leaseConfig.Timeout = max(o.LeaderElection.RenewDeadline/2, time.Second)

	clients, err := slimclient.NewForConfig(leaseConfig)
	if err != nil {
		return nil, fmt.Errorf("building the client of the lease: %w", err)
	}

	name, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("naming this replica: %w", err)
	}

	events := record.NewBroadcaster()
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events(o.Namespace)})

	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, o.Namespace, leaderElectionID, clients.CoreV1(), clients.CoordinationV1(),
		resourcelock.ResourceLockConfig{
			// Two processes on one host are two replicas.
			Identity:      name + "_" + string(uuid.NewUUID()),
			EventRecorder: events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "craned"}),
		})
	if err != nil {
		events.Shutdown()
		return nil, fmt.Errorf("building the lease: %w", err)
	}

	return &lease{
		Interface: lock,
		clock:     clock.RealClock{},
		limit:     o.LeaderElection.limit(),
		lost:      make(chan error, 1),
		events:    events,
	}, nil
}

// limit returns how long a leader may run after its last renewal: as long as client-go's elector tries to renew, and always less than the lease.
func (l LeaderElection) limit() time.Duration {
	return min(l.RetryPeriod+l.RenewDeadline, (l.RenewDeadline+l.LeaseDuration)/2)
}

// close stops the event recorder.
func (l *lease) close() { l.events.Shutdown() }

// Get implements resourcelock.Interface.
func (l *lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.observeHolder(record.HolderIdentity)
	}

	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	sent := l.clock.Now()
	return l.recordWrite(record, sent, l.Interface.Create(ctx, record))
}

// releaseTries is how often a release is sent that conflicts with a renewal.
const releaseTries = 3

// Update implements resourcelock.Interface. The record that releases the lease has no holder. A renewal that was canceled while the
// API server processed it may be written just before a release, which then conflicts: it is sent again, as otherwise the next
// leader waits for the end of the lease.
func (l *lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	sent := l.clock.Now()
	err := l.Interface.Update(ctx, record)
	for try := 1; try < releaseTries && record.HolderIdentity == "" && apierrors.IsConflict(err); try++ {
		current, _, getErr := l.Interface.Get(ctx)
		if getErr != nil || current.HolderIdentity != l.Identity() {
			break
		}

		err = l.Interface.Update(ctx, record)
	}

	return l.recordWrite(record, sent, err)
}

// recordWrite records the holder after a write that was sent at some time.
func (l *lease) recordWrite(record resourcelock.LeaderElectionRecord, sent time.Time, err error) error {
	if err != nil {
		return err
	}

	leads := record.HolderIdentity == l.Identity()
	l.leading.Store(leads)
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.expiry != nil {
		l.expiry.Stop()
		l.expiry = nil
	}

	if leads {
		l.expiry = l.clock.AfterFunc(l.limit-l.clock.Since(sent), func() {
			l.report(fmt.Errorf("the lease %s was not renewed for %s", leaderElectionID, l.limit))
		})
	}

	return nil
}

// observeHolder compares the holder of the lease with the previous one.
func (l *lease) observeHolder(holder string) {
	if holder != l.Identity() && l.leading.Load() {
		l.report(fmt.Errorf("the lease %s was taken by %s", leaderElectionID, holder))
	}
}

func (l *lease) report(reason error) {
	select {
	case l.lost <- reason:
	default:
	}
}
