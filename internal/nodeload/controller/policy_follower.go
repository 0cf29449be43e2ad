// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"

	"crane.io/crane/internal/nodeload/policyfile"
	"crane.io/crane/pkg/nodeload"
)

// Reasons of events about the policy file.
const (
	reasonPolicyLoaded  = "PolicyLoaded"
	reasonPolicyRefused = "PolicyRefused"
	actionPolicy        = "LoadPolicy"
)

// Follower reloads the policy file and reports the result in events. It is a manager.Runnable that only the leader
// runs.
type Follower struct {
	Policy    *policyfile.File
	Events    events.EventRecorder
	Namespace string
	// Loaded is called after a new policy is in force; it may be nil.
	Loaded func()
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (Follower) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable.
func (f Follower) Start(ctx context.Context) error {
	f.Policy.Run(ctx, observer{Follower: f, log: ctrl.LoggerFrom(ctx).WithName("nodeload")})
	return nil
}

// contentHash distinguishes events about different contents, of which otherwise only the first would be written.
func contentHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:4])
}

// observer reports loaded and rejected policy files.
type observer struct {
	Follower
	log logr.Logger
}

// PolicyLoaded implements policyfile.Observer.
func (o observer) PolicyLoaded(p *nodeload.Policy) {
	o.log.Info("loaded policy", "metrics", len(p.Metrics))
	o.Events.Eventf(policyReference(o.Namespace), nil, corev1.EventTypeNormal, reasonPolicyLoaded, actionPolicy, "a new policy of %d metrics is in force", len(p.Metrics))

	if o.Loaded != nil {
		o.Loaded()
	}
}

// PolicyRefused implements policyfile.Observer.
func (o observer) PolicyRefused(err error) {
	o.log.Error(err, "invalid policy file, the old policy stays in force")
	o.Events.Eventf(policyReference(o.Namespace), nil, corev1.EventTypeWarning, reasonPolicyRefused, actionPolicy+"/"+contentHash(err.Error()), "%s", truncateNote("the old policy stays in force: "+err.Error()))
}
