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

// Follower follows the policy file for all who use it, and tells in events what became of it. It is a manager.Runnable
// that only the leader runs.
type Follower struct {
	Policy    *policyfile.File
	Events    events.EventRecorder
	Namespace string
	// Loaded is called when a new policy is in force; it may be nil.
	Loaded func()
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (Follower) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable.
func (f Follower) Start(ctx context.Context) error {
	f.Policy.Run(ctx, observer{Follower: f, log: ctrl.LoggerFrom(ctx).WithName("nodeload")})
	return nil
}

// digest tells events about different contents apart, of which only the first would be written otherwise.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:4])
}

// observer tells what became of the policy file.
type observer struct {
	Follower
	log logr.Logger
}

// PolicyLoaded implements nodeloadpolicy.Observer.
func (o observer) PolicyLoaded(p *nodeload.Policy) {
	o.log.Info("Policy loaded", "metrics", len(p.Metrics))
	o.Events.Eventf(regarding(o.Namespace), nil, corev1.EventTypeNormal, reasonPolicyLoaded, actionPolicy, "a new policy of %d metrics is in force", len(p.Metrics))
	if o.Loaded != nil {
		o.Loaded()
	}
}

// PolicyRefused implements nodeloadpolicy.Observer.
func (o observer) PolicyRefused(err error) {
	o.log.Error(err, "The policy file is bad: the old policy stays in force")
	o.Events.Eventf(regarding(o.Namespace), nil, corev1.EventTypeWarning, reasonPolicyRefused, actionPolicy+"/"+digest(err.Error()), "%s", note("the old policy stays in force: "+err.Error()))
}
