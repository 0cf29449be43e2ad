// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
)

// lease is the lock that one replica holds. It tells when another has taken it: client-go's elector would go on trying
// to renew for the rest of its deadline, and two would lead meanwhile.
type lease struct {
	resourcelock.Interface
	// held tells that this replica has been the holder.
	held atomic.Bool
	// lost gets the name of who holds the lease instead, once.
	lost chan string
	// events tell who leads.
	events record.EventBroadcaster
}

// newLease builds the lock on a Lease. Its client is its own: one that shares the rate limit of the controllers' would be
// late, and the lease lost, whenever they have much to write.
func newLease(config *rest.Config, o *Options) (*lease, error) {
	own := rest.AddUserAgent(rest.CopyConfig(config), "leader-election")
	own.RateLimiter = nil
	// One try that hangs must leave time for another before the deadline.
	own.Timeout = max(o.LeaderElection.RenewDeadline/2, time.Second)
	clients, err := kubernetes.NewForConfig(own)
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
	return &lease{Interface: lock, lost: make(chan string, 1), events: events}, nil
}

// close ends what writes events.
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
	return l.recordWrite(record, l.Interface.Create(ctx, record))
}

// Update implements resourcelock.Interface. The record that gives the lease back has no holder.
func (l *lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.recordWrite(record, l.Interface.Update(ctx, record))
}

func (l *lease) recordWrite(record resourcelock.LeaderElectionRecord, err error) error {
	if err == nil {
		l.held.Store(record.HolderIdentity == l.Identity())
	}
	return err
}

// observeHolder compares who holds the lease with who did.
func (l *lease) observeHolder(holder string) {
	if holder == l.Identity() || !l.held.Load() {
		return
	}
	select {
	case l.lost <- holder:
	default:
	}
}
