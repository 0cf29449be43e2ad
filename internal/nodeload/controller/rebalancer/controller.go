// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rebalancer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/kube/optout"
	"crane.io/crane/internal/nodeload/controller"
	"crane.io/crane/internal/nodeload/policyfile"
	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/rebalance"
)

// roundTimeout bounds the reads of one round.
const roundTimeout = 2 * time.Minute

// Settings are the limits of rebalancing. DefaultSettings returns the defaults.
type Settings struct {
	// DryRun reports moves without evicting.
	DryRun bool
	// Interval is the interval between rounds.
	Interval time.Duration
	// Rounds is the number of consecutive readings above the mark evict before a move.
	Rounds int
	// PerRound, PerNode and PerHour are the maximum moves of a round, of one node in a round, and of any hour.
	PerRound, PerNode, PerHour int
	// CoolDown is how long a node that pods have left, and a workload that lost one, are excluded.
	CoolDown time.Duration
	// Protected namespaces keep their pods.
	Protected []string
	// Schedulers are the names of the scheduler profiles that run plugin Dynamic. Only their pods are moved.
	Schedulers []string
}

// DefaultSettings returns conservative settings: one pod of a node in ten minutes, when its load, a five-minute
// average, reflects the last move; five at once in a cluster and thirty in an hour. Three readings are nine minutes
// with the default policy.
func DefaultSettings() Settings {
	return Settings{
		DryRun:     true,
		Interval:   30 * time.Second,
		Rounds:     3,
		PerRound:   5,
		PerNode:    1,
		PerHour:    30,
		CoolDown:   10 * time.Minute,
		Protected:  []string{"kube-system"},
		Schedulers: []string{"crane-scheduler"},
	}
}

// Config configures a Controller.
type Config struct {
	Settings Settings
	Policy   *policyfile.File
	// Format is the time format of annotations.
	Format nodeload.Format
	// Nodes lists nodes from a cache; Live lists pods and budgets, only when a node is hot.
	Nodes, Live client.Reader
	// OptOuts reads the namespaces and workloads that have opted out, only when a node is hot.
	OptOuts func(context.Context) (optout.Set, error)
	// Usage returns the usage of pods.
	Usage   Vectors
	Evictor Evictor
	Patches controller.Patcher
	Events  events.EventRecorder
	Metrics *Metrics
	Clock   clock.WithTicker
}

// Controller moves pods. It is a manager.Runnable that only the leader runs; Round is not safe for concurrent use.
type Controller struct {
	cfg     Config
	streaks rebalance.Streaks
	rules   *nodeload.Rules
	// cooling holds the end of the cool-down of nodes ("node/...") and workloads.
	cooling map[string]time.Time
	moves   []time.Time // times of the last hour
	// departures are the moves of the last day by workload and node.
	departures map[departure]*departureRecord
	// reported holds the time before which nothing more is reported about a node.
	reported map[string]time.Time
	failing  bool
}

// New returns a controller. It returns an error for missing or invalid fields.
func New(cfg Config) (*Controller, error) {
	s := cfg.Settings
	if cfg.Policy == nil || cfg.Nodes == nil || cfg.Live == nil || cfg.OptOuts == nil || cfg.Usage == nil || cfg.Evictor == nil || cfg.Patches == nil || cfg.Events == nil || cfg.Metrics == nil || cfg.Clock == nil {
		return nil, errors.New("a rebalancing controller needs a policy, nodes, pods, usage, an evictor, a writer of nodes, events, metrics and a clock")
	}

	if s.Interval <= 0 || s.Rounds < 1 || s.PerRound < 1 || s.PerNode < 1 || s.PerHour < 1 || s.CoolDown < 0 {
		return nil, fmt.Errorf("checking the settings of rebalancing: out of range: %+v", s)
	}

	return &Controller{
		cfg:        cfg,
		cooling:    map[string]time.Time{},
		reported:   map[string]time.Time{},
		departures: map[departure]*departureRecord{},
	}, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (c *Controller) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable.
func (c *Controller) Start(ctx context.Context) error {
	ticker := c.cfg.Clock.NewTicker(c.cfg.Settings.Interval)
	defer ticker.Stop()

	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}

		err := c.Round(ctx)
		if ctx.Err() != nil {
			return nil
		}

		if err != nil && !c.failing {
			ctrl.LoggerFrom(ctx).WithName("rebalance").Error(err, "round failed without moves, further failures are only counted until one succeeds")
		}

		c.failing = err != nil
		c.cfg.Metrics.round(err)
	}
}

// Round evaluates all nodes and executes the plan. After an error nothing was moved.
func (c *Controller) Round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()

	now := c.cfg.Clock.Now()
	if err := c.applyPolicy(); err != nil {
		return err
	}

	c.expire(now)
	// Without a water mark no node can be hot.
	if len(c.rules.Policy.Marks) == 0 {
		c.cfg.Metrics.hot(0, 0)
		return nil
	}

	var list corev1.NodeList
	if err := c.cfg.Nodes.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}

	c.dropExpiredHolds(ctx, list.Items, now)
	heats, above, due := c.hotNodes(list.Items, now)
	c.cfg.Metrics.hot(above, len(due))

	// Pods, budgets and usage are read when a node is hot for long enough, which is rare.
	if len(due) == 0 {
		return nil
	}

	s, err := read(ctx, c.cfg.Live, list.Items, due, c.rules.Horizon(), now)
	if err != nil {
		return err
	}

	optedOut, err := c.cfg.OptOuts(ctx)
	if err != nil {
		return err
	}

	s.optedOut = optedOut

	use, err := c.use(ctx, s, now)
	if err != nil {
		return err
	}

	plan := rebalance.Decide(c.input(s, heats, use, now))
	c.act(ctx, s, plan, now)
	return nil
}

// applyPolicy converts a changed policy into rules.
func (c *Controller) applyPolicy() error {
	policy := c.cfg.Policy.Policy()
	if c.rules != nil && c.rules.Policy == policy {
		return nil
	}

	rules, err := nodeload.NewRules(policy, nodeload.Strategy{})
	if err != nil {
		return fmt.Errorf("converting the node-load policy: %w", err)
	}

	c.rules = rules
	c.streaks = rebalance.Streaks{}
	return nil
}

// expire drops expired entries.
func (c *Controller) expire(now time.Time) {
	for key, until := range c.cooling {
		if !now.Before(until) {
			delete(c.cooling, key)
		}
	}

	for d, r := range c.departures {
		if now.Sub(r.at) >= returnWindow {
			delete(c.departures, d)
		}
	}

	c.moves = slices.DeleteFunc(c.moves, func(at time.Time) bool { return now.Sub(at) >= time.Hour })
}

// hotNodes returns where nodes are hot, how many are above a mark, and which have been for long enough.
func (c *Controller) hotNodes(nodes []corev1.Node, now time.Time) (heats [][]rebalance.Heat, above int, due map[int]bool) {
	heats = make([][]rebalance.Heat, len(nodes))
	due = map[int]bool{}
	present := make(map[string]bool, len(nodes))
	for i := range nodes {
		present[nodes[i].Name] = true
		samples, _ := c.rules.Read(c.cfg.Format, nodes[i].Annotations)
		heats[i] = c.streaks.Look(nodes[i].Name, c.rules.Policy, samples, now)
		if len(heats[i]) > 0 {
			above++
		}

		// Only marks that were exceeded in enough readings cause moves.
		heats[i] = slices.DeleteFunc(heats[i], func(h rebalance.Heat) bool { return h.Rounds < c.cfg.Settings.Rounds })
		if len(heats[i]) > 0 {
			due[i] = true
		}
	}

	c.streaks.Keep(func(name string) bool { return present[name] })
	for name := range c.reported {
		if !present[name] {
			delete(c.reported, name)
		}
	}

	return heats, above, due
}

// nodeLoad returns the load of a node with its arriving pods.
func (c *Controller) nodeLoad(n *corev1.Node, arrivals *nodeload.Arrivals, now time.Time) *nodeload.Node {
	samples, _ := c.rules.Read(c.cfg.Format, n.Annotations)
	return c.rules.NodeAt(nodeload.Report{Capacity: amountOf(n.Status.Capacity), Samples: samples}, arrivals, now)
}

// input builds the input of the decision.
func (c *Controller) input(
	s *snapshot, heats [][]rebalance.Heat, use func(namespace, pod string) (nodeload.Amount, bool), now time.Time,
) rebalance.Input {
	limits := rebalance.Limits{
		Total: min(c.cfg.Settings.PerRound, max(c.cfg.Settings.PerHour-len(c.moves), 0)), PerNode: c.cfg.Settings.PerNode, PerWorkload: 1,
	}
	in := rebalance.Input{
		Now:     now,
		Limits:  limits,
		Allowed: s.allowed,
		Nodes:   make([]rebalance.Node, len(s.nodes)),
	}

	count := c.rules.NewCount(now)
	byUID := map[string]*corev1.Pod{}
	for i := range s.nodes {
		// The holds of earlier moves are pending load, as in plugin Dynamic.
		holds, _ := nodeload.ParseHolds(s.nodes[i].Annotations[nodeload.HoldsKey])
		for _, h := range nodeload.ValidHolds(holds, now) {
			s.arriving[i].Add("hold/"+h.Pod, h.Use(), time.Time{})
		}

		_, cooling := c.cooling["node/"+s.nodes[i].Name]
		in.Nodes[i] = rebalance.Node{
			Name:    s.nodes[i].Name,
			Load:    c.nodeLoad(&s.nodes[i], &s.arriving[i], now),
			Hot:     heats[i],
			Cooling: cooling,
		}

		count.Add(in.Nodes[i].Load, s.requested[i])
		c.recordReturns(s.onHot[i])
		in.Nodes[i].Pods = s.candidates(i, use, c.blockReason(s.optedOut), c.coolDownReason)

		for _, pod := range s.onHot[i] {
			byUID[string(pod.UID)] = pod
		}
	}

	in.Fleet = count.Fleet(nodeload.DefaultMinFresh)
	in.Fits = func(p *rebalance.Pod, to int) string { return s.fits(byUID[p.UID], to) }
	in.Placed = func(p *rebalance.Pod, to int) { s.recordMove(byUID[p.UID], to) }

	return in
}

func (c *Controller) protected(namespace string) bool {
	return slices.Contains(c.cfg.Settings.Protected, namespace)
}

func (c *Controller) blockReason(optedOut optout.Set) func(pod *corev1.Pod, othersReady int) string {
	return func(pod *corev1.Pod, othersReady int) string {
		return blockReason(pod, c.cfg.Settings.Schedulers, c.protected, optedOut.Excludes, othersReady)
	}
}

// coolDownReason returns a reason if the pod's workload lost a pod recently, or if a pod of it has come back to the node.
func (c *Controller) coolDownReason(pod *corev1.Pod) string {
	if r := c.departures[departureOf(pod)]; r != nil && r.returned {
		return "a pod of its workload was moved off this node and one has come back"
	}

	if _, cooling := c.cooling["workload/"+workloadOf(pod)]; cooling {
		return "its workload lost a pod recently"
	}

	return ""
}
