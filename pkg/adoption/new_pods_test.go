// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/rightsize"
)

// refuse makes the creation of a pod fail from now on.
func (b *fixture) refuse(message string) {
	b.in.Creation = Creation{Missing: 1, RefusedAt: b.in.Now.Truncate(time.Second), Message: message}
}

func (b *fixture) expectNewPods(want rightsize.Resources) {
	b.t.Helper()

	if size, ok := b.in.State.NewPodSize(); !ok || !size.Equal(appSize(want)) {
		b.t.Errorf("NewPodSize = %s, %t, want %s; %s, remarks %v", size, ok, appSize(want), b.plan.Summary, b.plan.Remarks)
	}
}

func (b *fixture) expectNewPodsFromTemplate() {
	b.t.Helper()

	if size, ok := b.in.State.NewPodSize(); ok {
		b.t.Errorf("NewPodSize = %s, want none: new pods keep the size of their template; %s", size, b.plan.Summary)
	}
}

// TestDecide_UncreatablePods: pods that are not created since a step undo it for running and new pods at once, whatever the phase, and
// adoption holds.
func TestDecide_UncreatablePods(t *testing.T) {
	for name, progress := range map[string]time.Duration{"watching": 3 * time.Minute, "second step": 13 * time.Minute, "resting": 5 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t, 4, requests(1000, 1000), requests(500, 1000))
			b.wait(progress)
			b.refuse(`pods "web-x" is forbidden: minimum cpu usage per Container is 1`)
			b.reconcile()
			b.expectNewPodsFromTemplate()
			b.wait(time.Minute)
			b.expectSize(requests(1000, 1000))
			b.expectPhase(Held)

			if !strings.Contains(b.plan.Summary, "minimum cpu usage per Container is 1") {
				t.Errorf("summary %q, want the answer of the API server", b.plan.Summary)
			}

			b.wait(5 * time.Hour)
			b.expectSize(requests(1000, 1000))
			b.expectNewPodsFromTemplate()
		})
	}
}

// TestDecide_UncreatableRaisedPods: the hold after pods of a raised size were not created also delays the next raise.
func TestDecide_UncreatableRaisedPods(t *testing.T) {
	b := newFixture(t, 4, requests(1000, 1000), requests(2000, 1000))
	b.wait(3 * time.Minute)
	b.expectNewPods(requests(2000, 1000))
	b.refuse("denied by a policy")
	b.reconcile()
	b.in.Creation = Creation{}
	b.wait(5 * time.Hour)
	b.expectSize(requests(1000, 1000))
	b.expectNewPodsFromTemplate()
	b.wait(2 * time.Hour)
	b.expectSize(requests(2000, 1000))
}

// TestDecide_UncreatableForAnotherReason: refusals from before a step, by a quota that the original size would exceed even more, and those of
// a workload without an adopted size undo nothing.
func TestDecide_UncreatableForAnotherReason(t *testing.T) {
	lowered := newFixture(t, 4, requests(1000, 1000), requests(500, 1000))
	lowered.wait(3 * time.Minute)

	for name, creation := range map[string]Creation{
		"earlier":        {Missing: 1, RefusedAt: noon.Add(-time.Minute), Message: "earlier"},
		"quota":          {Missing: 1, RefusedAt: lowered.in.Now, Message: "exceeded quota", ByQuota: true},
		"all pods exist": {RefusedAt: lowered.in.Now, Message: "over"},
	} {
		in := lowered.in
		in.Creation = creation
		if plan := Decide(in); plan.State.Phase == RollingBack || plan.State.Phase == Held {
			t.Errorf("%s: phase %s, %s, want no undone step", name, plan.State.Phase, plan.State.Reason)
		}
	}

	b := newFixture(t, 4, requests(1000, 1000), requests(500, 1000))
	b.refuse("webhook denied the request")
	b.wait(time.Hour)
	b.expectPhase(Untouched)

	if want := "cannot be created: webhook denied the request"; !strings.Contains(b.plan.Summary, want) {
		t.Errorf("summary %q, want %q", b.plan.Summary, want)
	}
}

// TestDecide_UncreatableTemplate: a size that was written into the template is taken out of it again.
func TestDecide_UncreatableTemplate(t *testing.T) {
	b := newFixture(t, 4, requests(1000, 1000), requests(900, 1000))
	b.in.UpdateTemplate = true
	b.wait(time.Hour)
	if want := appSize(requests(900, 1000)); !b.in.Template.Equal(want) {
		t.Fatalf("template %s, want %s", b.in.Template, want)
	}

	b.refuse("denied")
	b.reconcile()
	b.wait(time.Minute)

	if want := appSize(requests(1000, 1000)); !b.in.Template.Equal(want) || b.in.State.Template != nil {
		t.Errorf("template %s, recorded %v, want %s and none", b.in.Template, b.in.State.Template, want)
	}

	b.expectPhase(Held)
	b.expectSize(requests(1000, 1000))
}

// TestDecide_NewPodsFollowRunningPods: new pods get a size that a running pod has, and no other.
func TestDecide_NewPodsFollowRunningPods(t *testing.T) {
	b := newFixture(t, 2, requests(1000, 1000), requests(800, 1000))
	b.refusing = map[string]bool{"uid-0": true, "uid-1": true}
	b.wait(2 * time.Hour)
	b.expectNewPodsFromTemplate()

	if b.plan.Summary == asRecommended || !strings.Contains(strings.Join(b.plan.Remarks, "\n"), "no running pod has it") {
		t.Errorf("summary %q, remarks %v, want both to say that the size is not applied", b.plan.Summary, b.plan.Remarks)
	}

	b.refusing = map[string]bool{"uid-1": true}
	b.wait(time.Minute)
	b.expectNewPods(requests(800, 1000))
}

// TestDecide_NewPodsWithRecreation: with reach InPlaceOrRecreate, new pods get a size that no running pod has only if a pod has to be evicted for it.
func TestDecide_NewPodsWithRecreation(t *testing.T) {
	for name, status := range map[string]ResizeStatus{"in place": ResizeDone, "never in place": ResizeInfeasible} {
		n := newEvictionFixture(t, 4, InPlaceOrRecreate, requests(1000, 1000), requests(2000, 1000))
		n.reconcile()
		n.expectNewPodsFromTemplate()

		for i := range n.in.Pods {
			n.in.Pods[i].ResizeStatus = status
		}

		n.in.Now = n.in.Now.Add(time.Minute)
		n.reconcile()
		n.expectNewPods(requests(2000, 1000))
		n.in.Now = n.in.Now.Add(time.Minute)
		n.reconcile()

		if evicted := n.created > 0; evicted != (status == ResizeInfeasible) {
			t.Errorf("%s: a pod is evicted: %t; %s, remarks %v", name, evicted, n.plan.Summary, n.plan.Remarks)
		}
	}
}

// TestDecide_NewPodsBesideUntriedPods: the replacement of a pod that has to be evicted gets the size although other pods were not tried. One that must
// not be evicted, or that runs no more, needs no replacement.
func TestDecide_NewPodsBesideUntriedPods(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Pod)
		given  bool
	}{
		"to be evicted": {func(*Pod) {}, true},
		"protected":     {func(p *Pod) { p.Protected = "karpenter.sh/do-not-disrupt is true" }, false},
		"ended":         {func(p *Pod) { p.NotResizable = "it has ended" }, false},
	} {
		n := newEvictionFixture(t, 4, InPlaceOrRecreate, requests(1000, 1000), requests(2000, 1000))
		n.reconcile()
		n.in.Pods[0].ResizeStatus = ResizeInfeasible
		c.change(&n.in.Pods[0])

		for i := range n.in.Pods[1:] {
			n.in.Pods[i+1].Containers[0].Size = requests(1000, 1000)
		}

		n.in.Now = n.in.Now.Add(time.Minute)
		n.reconcile()

		if size, given := n.in.State.NewPodSize(); given != c.given {
			t.Errorf("%s: NewPodSize = %s, %t, want a size: %t; remarks %v", name, size, given, c.given, n.plan.Remarks)
		}
	}
}

// TestDecide_PodsOfAnOldSize: a pod with the size that new pods get is Crane's, however many sizes came since.
func TestDecide_PodsOfAnOldSize(t *testing.T) {
	b := newFixture(t, 2, requests(1000, 1000), requests(2000, 1000))
	b.wait(time.Minute)
	b.in.Creation.Unknown = "time-out"

	for i := range int64(2 * maxEarlierSizes) {
		b.in.DesiredSize = appSize(requests(2500+500*i, 1000))
		b.wait(time.Minute)
	}

	b.expectNewPods(requests(2000, 1000))
	replaced := newPod(7, requests(2000, 1000))
	replaced.Created = b.in.Now.Add(-time.Second)
	b.in.Pods[0] = replaced
	b.wait(time.Minute)
	b.expectSize(b.in.DesiredSize.Containers["app"])
}

// TestDecide_NewPodsWhileUnknown: while it is unknown whether pods of a size are created, running pods alone get it, and none is evicted.
func TestDecide_NewPodsWhileUnknown(t *testing.T) {
	for reach, want := range map[Reach]rightsize.Resources{InPlace: requests(900, 1000), NewPods: requests(1000, 1000), Recreate: requests(1000, 1000)} {
		n := newEvictionFixture(t, 4, reach, requests(1000, 1000), requests(900, 1000))
		n.in.Creation.Unknown = "the dry run timed out"
		n.wait(time.Hour)
		n.expectSize(want)
		n.expectNewPodsFromTemplate()

		if n.created > 0 {
			t.Errorf("reach %q: %d pods evicted, want none", reach, n.created)
		}

		n.in.Creation.Unknown = ""
		n.wait(time.Hour)
		n.expectNewPods(requests(900, 1000))
	}
}

// TestDecide_RefusedSize: a size that would be refused is neither stored nor called as recommended, up or down, with every reach.
func TestDecide_RefusedSize(t *testing.T) {
	for _, reach := range []Reach{InPlace, NewPods, Recreate, InPlaceOrRecreate} {
		for verb, want := range map[string]rightsize.Resources{"raised": requests(2000, 1000), "lowered": requests(900, 1000)} {
			n := newEvictionFixture(t, 4, reach, requests(1000, 1000), want)
			n.in.Creation.Refused = []RefusedSize{{appSize(want), "ResourceQuota team has no room"}}
			n.wait(time.Hour)
			n.expectSize(requests(1000, 1000))
			n.expectPhase(Untouched)

			if text := "not " + verb + " to " + appSize(want).String() + ": ResourceQuota team has no room"; n.plan.Summary != text {
				t.Errorf("reach %q: summary %q, want %q", reach, n.plan.Summary, text)
			}
			if n.plan.RequeueAfter <= 0 {
				t.Errorf("reach %q: no next decision, want one: the quota may get room", reach)
			}
		}
	}
}

// TestDecide_TemplateBackToOriginal: a recommendation that returns to the original size also returns in a template that adoption has changed.
func TestDecide_TemplateBackToOriginal(t *testing.T) {
	b := newFixture(t, 4, requests(1000, 1000), requests(900, 1000))
	b.in.UpdateTemplate = true
	b.wait(time.Hour)
	b.in.DesiredSize = appSize(requests(1000, 1000))
	b.wait(time.Hour)

	if want := appSize(requests(1000, 1000)); !b.in.Template.Equal(want) {
		t.Errorf("template %s, want %s; %s", b.in.Template, want, b.plan.Summary)
	}
	b.expectSize(requests(1000, 1000))
}

// TestDecide_ProtectedPods: pods that must not be evicted keep their size, and the others are replaced.
func TestDecide_ProtectedPods(t *testing.T) {
	n := newEvictionFixture(t, 4, Recreate, requests(1000, 1000), requests(500, 1000))
	n.in.Pods[1].Protected = "karpenter.sh/do-not-disrupt is true"
	n.wait(3 * time.Hour)

	got := n.sizes()
	if got[appSize(requests(1000, 1000)).String()] != 1 || got[appSize(requests(500, 1000)).String()] != 3 || n.evicted["web-1"] != 0 {
		t.Errorf("pods have %v, %d evictions of web-1, want one protected pod as before", got, n.evicted["web-1"])
	}
	if text := strings.Join(n.plan.Remarks, "\n"); !strings.Contains(text, "karpenter.sh/do-not-disrupt is true") || n.plan.Summary == asRecommended {
		t.Errorf("summary %q, remarks %q, want both to name the protected pod", n.plan.Summary, text)
	}
}

// TestDecide_WholeCores: a Guaranteed pod with whole cores never gets a fraction, in any step, and the status says why.
func TestDecide_WholeCores(t *testing.T) {
	for name, c := range map[string]struct{ now, desired, want int64 }{
		"nothing to take": {4000, 3060, 4000},
		"one core less":   {4000, 2900, 3000},
		"in steps":        {16000, 3500, 4000},
		"raised":          {2000, 2100, 3000},
		"a fraction now":  {3500, 2500, 2500},
	} {
		size := func(cpu int64) rightsize.Resources { return requestsAndLimits(cpu, cpu, 1024, 1024) }
		b := newFixture(t, 4, size(c.now), size(c.desired))
		for range 400 {
			b.wait(time.Minute)

			for text := range b.sizes() {
				if c.now%oneCore == 0 && strings.Contains(text, "m,") {
					t.Fatalf("%s: a pod has %s, want whole cores", name, text)
				}
			}
		}

		b.expectSize(size(c.want))
		if c.now%oneCore == 0 && (!strings.Contains(b.plan.Summary, "static CPU policy") || b.plan.Summary == asRecommended) {
			t.Errorf("%s: summary %q, want the reason for whole cores", name, b.plan.Summary)
		}
	}
}

// TestDecide_Bounds: a desired size that an object of the namespace bounds is not called as recommended.
func TestDecide_Bounds(t *testing.T) {
	for name, now := range map[string]rightsize.Resources{"nothing to change": requests(800, 1000), "lowered": requests(1000, 1000)} {
		b := newFixture(t, 4, now, requests(800, 1000))
		b.in.Bounds = []string{"LimitRange limits: container app needs cpu 800m or more, 300m is recommended"}
		b.wait(time.Hour)

		if !strings.Contains(b.plan.Summary, b.in.Bounds[0]) {
			t.Errorf("%s: summary %q, want it to contain %q", name, b.plan.Summary, b.in.Bounds[0])
		}
	}
}

// TestDecide_RequestAboveDefaultLimit: a workload whose pods are refused without Crane is not adopted, because there is no size to return to.
func TestDecide_RequestAboveDefaultLimit(t *testing.T) {
	b := newFixture(t, 0, requests(1200, 256), requests(1200, 576))
	b.in.Effective = appSize(requestsAndLimits(1200, 1000, 256, 1024))

	plan := b.reconcile()
	if want := "cpu 1200m of container app is above its limit, cpu limit 1"; plan.State.Phase != Untouched || !strings.Contains(plan.Summary, want) {
		t.Errorf("Decide = phase %q, %q, want an untouched workload and %q", plan.State.Phase, plan.Summary, want)
	}
}

// TestDecide_RollBackToUncheckedSize: new pods get the size of before a step only if they had it then. A raise that they were not given is part of it.
func TestDecide_RollBackToUncheckedSize(t *testing.T) {
	b := newFixture(t, 2, requests(1000, 1000), requests(500, 2000))
	b.in.Creation.Unknown = "the dry run timed out"
	b.wait(3 * time.Minute)
	b.expectSize(requests(800, 2000))
	b.in.Pods[0].Containers[0].KilledAt = b.in.Now
	b.wait(2 * time.Minute)

	b.expectPhase(Held)
	b.expectSize(requests(1000, 2000))
	b.expectNewPodsFromTemplate()
	b.in.Creation.Unknown = ""
	b.wait(time.Minute)
	b.expectNewPods(requests(1000, 2000))
}

// TestDecide_RollBackToGivenSize: new pods get the size of before a step at once if they had it.
func TestDecide_RollBackToGivenSize(t *testing.T) {
	b := newFixture(t, 2, requests(1000, 1000), requests(500, 1000))
	b.wait(13 * time.Minute)
	b.expectSize(requests(640, 1000))
	b.in.Creation.Unknown = "the dry run timed out"
	b.in.Pods[0].Containers[0].KilledAt = b.in.Now
	b.reconcile()
	b.expectNewPods(requests(800, 1000))
}
