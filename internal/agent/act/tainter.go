// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
)

const (
	// compareInterval is the interval at which the watched node is compared with the desired state.
	compareInterval = 5 * time.Second
	// taintTimeout bounds the requests of one comparison.
	taintTimeout = 10 * time.Second
	// minRetry and maxRetry bound the pause after a failed write.
	minRetry = time.Second
	maxRetry = 30 * time.Second
)

// TainterConfig configures a Tainter.
type TainterConfig struct {
	// Name is the node's name.
	Name  string
	Nodes typedcorev1.NodeInterface
	// Node returns the watched node; nil if unknown.
	Node  func() *corev1.Node
	Clock clock.WithTicker
	Log   logr.Logger
	// Beat is called after each comparison.
	Beat func(step string)
	// Keep reports at the end that the taint stays; nil for never.
	Keep func() bool
	// Report is called when the taint was changed or could not be; it may be nil.
	Report func(TaintOutcome)
}

// TaintOutcome is the outcome of a change of the taint.
type TaintOutcome struct {
	// Avoided reports whether the taint was to be set or removed.
	Avoided bool
	Reason  string
	Err     error
}

// Tainter sets or removes the taint that keeps new pods away and states the reason in a condition of the node. It works beside the loop:
// the latest desired state counts and is retried until it is reached. Its methods are safe for concurrent use.
type Tainter struct {
	cfg  TainterConfig
	wake chan struct{}

	// writePending reports an unreported write of the taint whose outcome may be seen later; pendingTaint is the state it sets. Both are
	// used by Run only.
	writePending, pendingTaint bool

	mu      sync.Mutex
	desired *taintState
}

type taintState struct {
	taint  bool
	reason string
}

// NewTainter returns a tainter to be started with Run.
func NewTainter(cfg TainterConfig) *Tainter { return &Tainter{cfg: cfg, wake: make(chan struct{}, 1)} }

// Name implements Manager.
func (t *Tainter) Name() string { return "taint" }

// SetDesired sets the desired state without waiting.
func (t *Tainter) SetDesired(want bool, why string) {
	t.mu.Lock()
	changed := t.desired == nil || t.desired.taint != want
	t.desired = &taintState{want, why}
	t.mu.Unlock()

	if !changed {
		return
	}

	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *Tainter) desiredState() *taintState {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.desired
}

// Run applies the desired state until ctx ends and then removes the taint. Without any desired state the node is left unchanged.
func (t *Tainter) Run(ctx context.Context) error {
	t.cfg.Beat("begin")
	pause := time.Duration(0)
	logged := ""
	for {
		// After a failure a new desired state waits too, so that not all nodes load a failing API server.
		wait := compareInterval

		wake := t.wake
		if pause > 0 {
			wait = pause + rand.N(pause/2)
			wake = nil
		}

		timer := t.cfg.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return t.removeTaint(ctx)
		case <-wake:
			timer.Stop()
		case <-timer.C():
		}

		err := t.apply(ctx, t.cfg.Node(), t.desiredState())
		t.cfg.Beat("compare")

		if err == nil {
			pause = 0
			logged = ""
			continue
		}

		pause = min(max(2*pause, minRetry), maxRetry)
		if logged != err.Error() && ctx.Err() == nil {
			logged = err.Error()
			t.cfg.Log.Error(err, "updating the taint or condition of the node; retrying")
		}
	}
}

// apply applies a desired state.
func (t *Tainter) apply(ctx context.Context, node *corev1.Node, state *taintState) error {
	if state == nil {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, taintTimeout)
	defer cancel()

	changed, err := t.Sync(ctx, node, state.taint, state.reason)
	if t.cfg.Report != nil && changed { // The taint; the condition may have failed.
		t.cfg.Report(TaintOutcome{Avoided: state.taint, Reason: state.reason})
	}
	if t.cfg.Report != nil && err != nil {
		t.cfg.Report(TaintOutcome{Avoided: state.taint, Reason: state.reason, Err: err})
	}

	return err
}

// removeTaint removes the taint after a fresh read.
func (t *Tainter) removeTaint(ctx context.Context) error {
	if t.desiredState() == nil || t.cfg.Keep != nil && t.cfg.Keep() {
		return nil
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), taintTimeout)
	defer cancel()

	err := RetryAtEnd(ctx, t.cfg.Clock, func(ctx context.Context) error { return t.apply(ctx, nil, &taintState{reason: "the agent has ended"}) })
	if err != nil {
		return fmt.Errorf("taint at the end: %w", err)
	}

	return nil
}

// fieldManager owns the agent's fields of API objects.
const fieldManager = "crane-agent"

const (
	// maxTaintConflicts is the number of attempts after conflicting writes before the next comparison.
	maxTaintConflicts = 3
	// messageInterval is the least time between changes of the condition's message while its status stays.
	messageInterval = time.Minute

	reasonRuleFires   = "RuleFires"
	reasonNoRuleFires = "NoRuleFires"
)

// IsTainted reports whether a node has the taint that keeps new pods away.
func IsTainted(node *corev1.Node) bool {
	return node != nil && slices.ContainsFunc(node.Spec.Taints, isTaint)
}

// isTaint reports whether a taint is the agent's; one of the same key with another effect is not.
func isTaint(t corev1.Taint) bool {
	return t.Key == ensurancev1alpha1.TaintKey && t.Effect == corev1.TaintEffectPreferNoSchedule
}

// Sync sets the desired taint and condition, without a request if the watched node already has them; nil stands for an unknown node. It
// writes only after a fresh read. changed reports that the taint was changed since the last report, including by a write whose outcome was
// unknown. Sync is not safe for concurrent use.
func (t *Tainter) Sync(ctx context.Context, node *corev1.Node, want bool, why string) (changed bool, err error) {
	if node != nil && IsTainted(node) == want && t.condition(node, want, why) == nil {
		return t.confirmWrite(want), nil
	}

	for range maxTaintConflicts {
		var fresh *corev1.Node
		if fresh, err = t.cfg.Nodes.Get(ctx, t.cfg.Name, metav1.GetOptions{}); err != nil {
			return false, fmt.Errorf("reading node %s: %w", t.cfg.Name, err)
		}

		var reached bool
		if reached, err = t.write(ctx, fresh, want, why); reached && t.confirmWrite(want) {
			changed = true
		}

		if !apierrors.IsConflict(err) {
			break
		}
	}

	return changed, err
}

// confirmWrite reports whether the node reached the desired state by an unreported write of this tainter.
func (t *Tainter) confirmWrite(want bool) bool {
	changed := t.writePending && t.pendingTaint == want
	t.writePending = false
	return changed
}

// write patches the differences with at most two requests; if one fails the other is still tried. is reports that the taint is as desired.
func (t *Tainter) write(ctx context.Context, node *corev1.Node, want bool, why string) (reached bool, err error) {
	taintErr := t.writeTaint(ctx, node, want)
	if apierrors.IsConflict(taintErr) {
		return false, taintErr
	}

	var conditionErr error
	if c := t.condition(node, want, why); c != nil {
		conditionErr = t.patch(ctx, types.StrategicMergePatchType, map[string]any{"status": map[string]any{"conditions": []any{c}}}, "status")
	}

	return taintErr == nil, errors.Join(taintErr, conditionErr)
}

// writeTaint replaces the list of taints, which has no merge keys, provided the node is unchanged since it was read, so that no taint of
// others is lost.
func (t *Tainter) writeTaint(ctx context.Context, node *corev1.Node, want bool) error {
	if IsTainted(node) == want {
		return nil
	}

	t.writePending = true
	t.pendingTaint = want

	taints := slices.DeleteFunc(slices.Clone(node.Spec.Taints), isTaint)
	if want {
		taints = append(taints, corev1.Taint{Key: ensurancev1alpha1.TaintKey, Effect: corev1.TaintEffectPreferNoSchedule})
	}

	return t.patch(ctx, types.MergePatchType, map[string]any{
		"metadata": map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion}, "spec": map[string]any{"taints": taints},
	})
}

func (t *Tainter) patch(ctx context.Context, kind types.PatchType, body any, subresources ...string) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding the patch of node %s: %w", t.cfg.Name, err)
	}

	if _, err := t.cfg.Nodes.Patch(ctx, t.cfg.Name, kind, raw, metav1.PatchOptions{FieldManager: fieldManager}, subresources...); err != nil {
		return fmt.Errorf("patching node %s: %w", t.cfg.Name, err)
	}

	return nil
}

// condition returns the new condition of a node; nil if none or its current one is right. A node that never fired a rule gets none.
func (t *Tainter) condition(node *corev1.Node, want bool, why string) *corev1.NodeCondition {
	at := metav1.NewTime(t.cfg.Clock.Now().Truncate(time.Second))
	next := corev1.NodeCondition{
		Type:               ensurancev1alpha1.ConditionInterferenceIdentified,
		Status:             corev1.ConditionFalse,
		Reason:             reasonNoRuleFires,
		Message:            why,
		LastHeartbeatTime:  at,
		LastTransitionTime: at,
	}

	if want {
		next.Status = corev1.ConditionTrue
		next.Reason = reasonRuleFires
	}

	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == next.Type })
	if i < 0 {
		if !want {
			return nil
		}

		return &next
	}

	// A message that changes with each measurement is written once a minute at most.
	last := &node.Status.Conditions[i]
	if last.Status == next.Status {
		next.LastTransitionTime = last.LastTransitionTime

		if !want || last.Message == why || at.Sub(last.LastHeartbeatTime.Time) < messageInterval {
			return nil
		}
	}

	return &next
}
