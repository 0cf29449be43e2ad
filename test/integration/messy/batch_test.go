// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package messy_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/adoption/targetindex"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/test/messy"
)

// pollInterval is the time of the system between two decisions about what is under way.
const pollInterval = time.Second

// parallel bounds the cases whose events or checks run at once.
const parallel = 12

// batch runs cases beside each other. The sequence of jumps and restarts depends on its seed and on the round alone.
type batch struct {
	seed   uint64
	rng    *rand.Rand
	clock  *jumpClock
	world  *world
	hooks  *webhooks
	policy adoption.Policy
	// without creates pods that craned's webhook does not change.
	without client.Client
	// triesPods reports that craned may try the creation of pods.
	triesPods bool

	writes   *recorder
	craned   *craned
	runs     []*run
	restarts int
}

// maxRestore is the number of minutes of craned's clock after which everything is restored.
const maxRestore = 12

// run is a case in its namespace.
type run struct {
	messy.Case

	batch     *batch
	index     int
	namespace string
	// skipped is set for a case that an overloaded API server has interrupted.
	skipped   bool
	workloads []*workload
	// rulesAt is the last change of a rule or template by the owner, policyAt that of the policy, of craned's clock.
	rulesAt, policyAt time.Time
	round             int
	// calm reports that the last round had no event, and earlier is the number of violations before adoption was switched off.
	calm    bool
	earlier int

	mu         sync.Mutex
	violations []string
	counts     counts
	// generations are those of pods after their last resize, and evicted the pods that craned evicted.
	generations map[string]int64
	evicted     []*corev1.Pod
}

// counts are what a run is judged by.
type counts struct {
	events, acted, refused, restarts, lowered int
}

func (c *counts) add(other counts) {
	c.events += other.events
	c.acted += other.acted
	c.refused += other.refused
	c.restarts += other.restarts
	c.lowered += other.lowered
}

// workload is what the checks remember of a workload.
type workload struct {
	messy.Workload

	// off and optedOut are what the events say.
	off, optedOut bool
	// owned is the template as its owner wants it.
	owned *corev1.PodTemplateSpec
	// lows are the lowest requests that craned gave to a running pod.
	lows map[amountKey]low
	// natural are the requests of new pods without Crane; nil if they are not known.
	natural map[amountKey]int64
	// state is the adoption state at the last check, and stopped is set if its phase was ever Stopped.
	state   string
	stopped bool
	// uncreatable is the time of the system at which a pod was first not created because of a rule that craned cannot read.
	uncreatable time.Time
}

func (w *workload) key(namespace string) targetindex.Key {
	return targetindex.Key{Group: "apps", Kind: w.Kind, Namespace: namespace, Name: w.Name}
}

// violatef records that an invariant is violated. The first violations of a case are enough.
func (r *run) violatef(invariant int, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if len(r.violations) < 5 {
		r.violations = append(r.violations, fmt.Sprintf("invariant %d, round %d: %s", invariant, r.round, fmt.Sprintf(format, args...)))
	}
}

func (r *run) find(namespace, name string) *workload {
	if r.namespace != namespace {
		return nil
	}

	for _, w := range r.workloads {
		if w.Name == name {
			return w
		}
	}

	return nil
}

// fixture is what all batches share.
type fixture struct {
	t       *testing.T
	world   *world
	hooks   *webhooks
	without client.Client
	clock   *jumpClock
}

var batches atomic.Int64

// runBatch runs cases to their end and returns them with their violations.
func (f *fixture) runBatch(ctx context.Context, seed uint64, cases []messy.Case) (*batch, error) {
	b := &batch{
		seed:      seed,
		rng:       rand.New(rand.NewPCG(seed, 37)),
		clock:     f.clock,
		world:     f.world,
		hooks:     f.hooks,
		without:   f.without,
		policy:    adoption.DefaultPolicy(),
		writes:    newRecorder(),
		triesPods: seed%2 == 1,
	}

	// Cases must not depend on each other, and craned polls in the time of the system.
	b.policy.PollInterval = pollInterval
	b.policy.MaxPerCluster = 1 << 20
	b.policy.MaxPerNamespace = 1 + b.rng.IntN(2)
	b.policy.BreakerMinWorkloads = 1 << 20

	number := batches.Add(1)
	rounds := 0
	for i, c := range cases {
		r := &run{Case: c, batch: b, index: i, namespace: fmt.Sprintf("messy-%d-%d", number, i), generations: map[string]int64{}}
		b.runs = append(b.runs, r)
		rounds = max(rounds, len(c.Events))
	}

	b.writes.evicting = b.rememberEvicted
	handler := b.podChanged
	f.world.podChanged.Store(&handler)
	if err := b.allowDryRuns(ctx); err != nil {
		return b, err
	}

	defer b.cleanUp(context.WithoutCancel(ctx))
	if err := b.start(ctx); err != nil {
		return b, err
	}

	if err := b.each(ctx, (*run).create); err != nil {
		return b, err
	}

	for round := range rounds {
		if err := b.playRound(ctx, round); err != nil {
			return b, err
		}
	}

	return b, b.finish(ctx)
}

// start starts craned.
func (b *batch) start(ctx context.Context) error {
	c, err := startCraned(ctx, cranedConfig{clock: b.clock, settings: targetsnapshot.Settings{Policy: b.policy}, writes: b.writes})
	if err != nil {
		return err
	}

	b.craned = c
	b.hooks.craned.Store(c.chain)
	return nil
}

// stop stops craned. Its caches are gone at once, as is its webhook.
func (b *batch) stop() error {
	b.hooks.craned.Store(nil)
	return b.craned.close()
}

// each calls a function for all runs.
func (b *batch) each(ctx context.Context, do func(*run, context.Context) error) error {
	work := make(chan *run)
	errs := make(chan error, len(b.runs))
	var workers sync.WaitGroup
	for range parallel {
		workers.Go(func() {
			for r := range work {
				if r.skipped {
					continue
				}

				err := do(r, ctx)
				if err != nil && isOverloaded(err) {
					r.skipped = true // Nothing is known about it any more.
				} else if err != nil {
					errs <- fmt.Errorf("case %d: %w", r.index, err)
				}
			}
		})
	}

	for _, r := range b.runs {
		work <- r
	}

	close(work)
	workers.Wait()
	close(errs)
	return <-errs
}

// isOverloaded reports whether the API server gave no answer.
func isOverloaded(err error) bool {
	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) ||
		strings.Contains(err.Error(), "timed out") || errors.Is(err, context.DeadlineExceeded)
}

// jumps are the times that pass after an event. Most are long enough for the watch of a step, one for the pause after a rollback.
func jumps() []time.Duration {
	return []time.Duration{15 * time.Second, time.Minute, 11 * time.Minute, 11 * time.Minute, 11 * time.Minute, 7 * time.Hour}
}

// playRound applies an event to each case, lets time pass, and checks the invariants.
func (b *batch) playRound(ctx context.Context, round int) error {
	restart := b.rng.IntN(3) == 0
	late := b.rng.IntN(2) == 0
	wait := jumps()[b.rng.IntN(len(jumps()))]
	for _, r := range b.runs {
		r.round = round + 1
	}

	if restart {
		if err := b.stop(); err != nil {
			return err
		}
	}

	if restart && !late {
		if err := b.start(ctx); err != nil {
			return err
		}
	}

	if err := b.each(ctx, (*run).applyEvent); err != nil {
		return err
	}

	if restart && late {
		if err := b.start(ctx); err != nil {
			return err
		}
	}

	if restart {
		b.restarts++
	}

	for _, d := range []time.Duration{0, wait} {
		if err := b.pass(ctx, d); err != nil {
			return err
		}
	}

	return b.each(ctx, func(r *run, ctx context.Context) error {
		if restart {
			r.counts.restarts++
		}

		return r.check(ctx)
	})
}

// pass lets time pass and waits for what craned does then.
func (b *batch) pass(ctx context.Context, d time.Duration) error {
	if d > 0 {
		if err := b.clock.jump(ctx, d); err != nil {
			return err
		}

		for _, r := range b.runs {
			for _, w := range r.workloads {
				b.craned.wakeTarget(w.key(r.namespace))
			}
		}
	}

	return b.world.settle(ctx, b.writes)
}

// finish switches adoption off and checks what is left.
func (b *batch) finish(ctx context.Context) error {
	if err := b.each(ctx, (*run).switchOff); err != nil {
		return err
	}

	for _, r := range b.runs {
		r.round++
	}

	for _, r := range b.runs {
		r.earlier = len(r.violations)
	}

	for range maxRestore {
		if err := b.pass(ctx, time.Minute); err != nil {
			return err
		}

		if err := b.each(ctx, (*run).checkRestored); err != nil {
			return err
		}

		if !slices.ContainsFunc(b.runs, func(r *run) bool { return len(r.violations) > r.earlier }) {
			break
		}
	}

	return nil
}

// cleanUp stops craned and deletes the namespaces.
func (b *batch) cleanUp(ctx context.Context) {
	b.world.podChanged.Store(nil)
	if b.craned != nil {
		_ = b.stop()
	}

	_ = b.each(ctx, func(r *run, ctx context.Context) error {
		return client.IgnoreNotFound(admin.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}}))
	})
}

// allowDryRuns grants craned the right to try the creation of pods, or takes it.
func (b *batch) allowDryRuns(ctx context.Context) error {
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "craned-pod-dry-runs"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create"}}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: systemNamespace, Name: "craned"}},
	}

	for _, o := range []client.Object{role, binding} {
		if err := client.IgnoreNotFound(admin.Delete(ctx, o.DeepCopyObject().(client.Object))); err != nil { //nolint:forcetypeassert // It is a copy.
			return err
		}

		if !b.triesPods {
			continue
		}

		if err := admin.Create(ctx, o); err != nil {
			return err
		}
	}

	return nil
}

// failed returns the runs with violations.
func (b *batch) failed() []*run {
	return slices.DeleteFunc(slices.Clone(b.runs), func(r *run) bool { return len(r.violations) == 0 || r.skipped })
}
