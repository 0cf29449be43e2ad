// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"slices"
	"testing"
	"time"

	"crane.io/crane/pkg/rightsize"
)

// effectiveFixture is a workload whose template has no CPU request and whose pods request two cores: because of the limit in its
// template, or because of a LimitRange.
func effectiveFixture(t *testing.T, limited bool) *fixture {
	t.Helper()

	template := requests(0, 256)
	pods := requests(2000, 256)
	desired := requests(300, 256)
	if limited {
		template = requestsAndLimits(0, 2000, 256, 512)
		pods = requestsAndLimits(2000, 2000, 256, 512)
		desired = requestsAndLimits(300, 2000, 256, 512)
	}

	b := newFixture(t, 8, template, desired)
	for i := range b.in.Pods {
		b.in.Pods[i].Containers[0].Size = pods
	}

	if !limited {
		b.in.Effective = appSize(pods)
	}

	return b
}

// TestDecide_EffectiveRequest checks that a request that the template does not say is lowered like any other: in steps, within windows
// and budgets, with a rollback, and restored when adoption is switched off.
func TestDecide_EffectiveRequest(t *testing.T) {
	for name, limited := range map[string]bool{"limit without a request": true, "default of a LimitRange": false} {
		t.Run(name, func(t *testing.T) {
			b := effectiveFixture(t, limited)
			original := b.in.Pods[0].size()

			b.in.Allowance = Allowance{WindowClosed: "no maintenance window is open", BudgetSpent: "the budget is spent"}
			b.wait(3 * time.Minute)
			if got := b.in.Pods[0].size(); !got.Equal(original) || len(b.events) > 0 {
				t.Fatalf("outside of the window the pods have %s after events %v, want %s and none", got, b.events, original)
			}

			b.in.Allowance = Allowance{}
			b.wait(time.Minute)
			step := *b.in.Pods[0].size().Containers["app"].CPURequest
			if step != 1600 || b.in.State.Steps != 1 || b.in.State.Phase == Resting {
				t.Fatalf("after the first step the pods request %d, phase %s, step %d, want 1600 and step 1", step, b.in.State.Phase, b.in.State.Steps)
			}

			b.in.Pods[3].Containers[0].KilledAt = b.in.Now
			b.wait(time.Minute)
			if got := b.in.Pods[0].size(); !got.Equal(original) || !slices.Contains(b.events, "AdoptionRolledBack") {
				t.Errorf("after an OOM kill the pods have %s after events %v, want %s", got, b.events, original)
			}

			b.in.Pods[3].Containers[0].KilledAt = time.Time{}
			b.wait(26 * time.Hour)
			if got := b.in.Pods[0].size(); got.Equal(original) {
				t.Errorf("a day after the rollback the pods have %s, want less", got)
			}

			b.in.DesiredSize = Size{}
			b.wait(20 * time.Minute)
			if got := b.in.Pods[0].size(); !got.Equal(original) || b.in.State.Phase != Untouched {
				t.Errorf("switched off, the pods have %s in phase %q, want %s and no state", got, b.in.State.Phase, original)
			}
		})
	}
}

// TestDecide_EffectiveRequestWaits checks that each reason to lower nothing also delays a request that the template does not say, which must not
// count as a raise.
func TestDecide_EffectiveRequestWaits(t *testing.T) {
	for name, obstruct := range map[string]func(*Input){
		"window":       func(in *Input) { in.Allowance.WindowClosed = "no maintenance window is open" },
		"budget":       func(in *Input) { in.Allowance.BudgetSpent = "the budget is spent" },
		"stale":        func(in *Input) { in.Stale = "the last evaluation of the recommendation failed" },
		"roll-out":     func(in *Input) { in.RolloutInProgress = true },
		"pod unready":  func(in *Input) { in.Pods[7].Ready = false },
		"recent kill":  func(in *Input) { in.Signals.KilledAt = in.Now },
		"missing pods": func(in *Input) { in.Creation = Creation{Missing: 1, RefusedAt: in.Now, Message: "denied"} },
	} {
		for _, limited := range []bool{true, false} {
			b := effectiveFixture(t, limited)
			original := b.in.Pods[0].size()
			obstruct(&b.in)
			b.wait(3 * time.Minute)

			if got := b.sizes(); got[original.String()] != len(b.in.Pods) || len(b.events) > 0 {
				t.Errorf("%s, limit in the template %t: pods have %v after events %v, want %s and none", name, limited, got, b.events, original)
			}
		}
	}
}

// TestDecide_EffectiveScalePoint checks that the usage at which an autoscaler adds pods stays: 60 % of two cores.
func TestDecide_EffectiveScalePoint(t *testing.T) {
	b := effectiveFixture(t, true)
	b.in.Targets = []Target{{Percent: 60}}
	for range 60 {
		b.wait(15 * time.Minute)
		point := float64(b.in.Targets[0].Percent) / 100 * float64(b.in.Pods[0].size().sumRequests(Target{}))
		if point < 1180 || point > 1220 {
			t.Fatalf("at %d %% of %s the autoscaler adds pods at %.0fm, want 1200m", b.in.Targets[0].Percent, b.in.Pods[0].size(), point)
		}
	}

	if got := *b.in.Pods[0].Containers[0].Size.CPURequest; got != 300 {
		t.Errorf("the pods request %dm in the end, want 300m", got)
	}
}

// TestDecide_EffectiveTemplate checks that switching off removes the request that adoption wrote into a template without one.
func TestDecide_EffectiveTemplate(t *testing.T) {
	b := effectiveFixture(t, true)
	template := b.in.Template.Clone()
	b.in.UpdateTemplate = true
	b.wait(15 * time.Hour)
	if got := b.in.Template.Containers["app"].CPURequest; got == nil || *got != 300 {
		t.Fatalf("the template has %s after all steps, want a request of 300m", b.in.Template)
	}

	b.in.DesiredSize = Size{}
	b.wait(20 * time.Minute)
	if !b.in.Template.Equal(template) || b.in.State.Phase != Untouched {
		t.Errorf("switched off, the template has %s in phase %q, want %s", b.in.Template, b.in.State.Phase, template)
	}
}

// TestDecide_EffectiveUncreatableTemplate checks that a template gets back what its owner wrote, without the amounts that pods have by default, when
// pods of the size in it are not created, and that this is no change by its owner.
func TestDecide_EffectiveUncreatableTemplate(t *testing.T) {
	for name, limited := range map[string]bool{"limit without a request": true, "default of a LimitRange": false} {
		b := effectiveFixture(t, limited)
		template := b.in.Template.Clone()
		b.in.UpdateTemplate = true
		b.wait(15 * time.Hour)
		if got := b.in.Template.Containers["app"].CPURequest; got == nil || *got != 300 {
			t.Fatalf("%s: the template has %s after all steps, want a request of 300m", name, b.in.Template)
		}

		written := b.in.Template.Clone()
		b.refuse("denied")
		b.reconcile()
		b.in.Template = written // The API server did not take the write.
		b.in.Creation = Creation{}
		b.wait(time.Hour)

		if !b.in.Template.Equal(template) || b.in.State.Template != nil || b.in.State.Phase != Held {
			t.Errorf("%s: the template has %s, recorded %v, in phase %s (%s), want %s, none and %s", name, b.in.Template, b.in.State.Template,
				b.in.State.Phase, b.in.State.Reason, template, Held)
		}
	}
}

// TestDecide_TemplateWithoutDefaults checks that amounts which pods have by default, and which adoption did not change, are not written into
// the template.
func TestDecide_TemplateWithoutDefaults(t *testing.T) {
	b := effectiveFixture(t, false)
	b.in.Template = appSize(rightsize.Resources{})
	b.in.UpdateTemplate = true
	b.wait(15 * time.Hour)
	if want := appSize(requests(300, 0)); !b.in.Template.Equal(want) {
		t.Fatalf("the template has %s after all steps, want %s", b.in.Template, want)
	}

	b.in.Effective = appSize(requests(300, 256))
	b.in.DesiredSize = appSize(requests(2000, 256))
	b.wait(20 * time.Minute)
	if want := appSize(requests(2000, 0)); !b.in.Template.Equal(want) {
		t.Fatalf("raised to what pods had before, the template has %s, want %s", b.in.Template, want)
	}

	b.in.Effective = appSize(requests(2000, 256))
	b.in.DesiredSize = Size{}
	b.wait(20 * time.Minute)
	if !b.in.Template.Empty() || b.in.State.Phase != Untouched {
		t.Errorf("switched off, the template has %s in phase %q, want nothing", b.in.Template, b.in.State.Phase)
	}
}

// TestTemplateGoal checks that a changed limit is written with the request, which it would be otherwise.
func TestTemplateGoal(t *testing.T) {
	declared := appSize(requestsAndLimits(0, 2000, 0, 0))
	s := State{Original: appSize(requestsAndLimits(2000, 2000, 0, 0)), Declared: &declared, Current: appSize(requestsAndLimits(2000, 4000, 0, 0))}
	if got := s.templateGoal(); !got.Equal(s.Current) {
		t.Errorf("templateGoal of %s = %s, want the same", s.Current, got)
	}
}

// TestDecide_AmountsLearnedLater checks that an amount which the state does not have is lowered in steps and restored: a container that
// the owner added, a default of a new LimitRange, and a state of a release that knew only the template.
func TestDecide_AmountsLearnedLater(t *testing.T) {
	b := newFixture(t, 4, requests(1000, 256), requests(800, 256))
	b.wait(time.Minute)

	for name, side := range map[string]rightsize.Resources{"in the template": requests(2000, 256), "by default": {}} {
		t.Run(name, func(t *testing.T) {
			c := newFixture(t, 4, requests(1000, 256), requests(800, 256))
			c.in.State = b.in.State.Clone()
			c.in.Now = b.in.Now.Add(48 * time.Hour)
			c.in.Template.Containers["side"] = side
			c.in.Effective = c.in.Template.Clone()
			c.in.Effective.Containers["side"] = requests(2000, 256)
			c.in.DesiredSize.Containers["side"] = requests(300, 256)
			for i := range c.in.Pods {
				c.in.Pods[i].Containers[0].Size = requests(800, 256)
				c.in.Pods[i].Containers = append(c.in.Pods[i].Containers, Container{Name: "side", Size: requests(2000, 256)})
			}

			c.in.Allowance.WindowClosed = "no maintenance window is open"
			c.wait(10 * time.Minute)
			if got := *c.in.Pods[0].Containers[1].Size.CPURequest; got != 2000 {
				t.Fatalf("outside of the window the added container requests %dm, want 2000m: %v", got, c.events)
			}

			c.in.Allowance = Allowance{}
			c.wait(15 * time.Hour)
			if got := *c.in.Pods[0].Containers[1].Size.CPURequest; got != 300 || c.in.State.Phase == Stopped {
				t.Fatalf("after all steps the added container requests %dm in phase %s (%s), want 300m", got, c.in.State.Phase, c.in.State.Reason)
			}

			c.in.DesiredSize = Size{}
			c.wait(20 * time.Minute)
			if got := *c.in.Pods[0].Containers[1].Size.CPURequest; got != 2000 {
				t.Errorf("switched off, the added container requests %dm, want 2000m", got)
			}
		})
	}

	t.Run("an earlier release", func(t *testing.T) {
		c := effectiveFixture(t, true)
		c.in.State = State{
			Phase: Resting, PhaseSince: noon.Add(-time.Hour), Original: c.in.Template.Clone(),
			Previous: appSize(requestsAndLimits(300, 2000, 256, 512)), Current: appSize(requestsAndLimits(300, 2000, 256, 512)),
		}
		c.in.Allowance.WindowClosed = "no maintenance window is open"
		for i := range c.in.Pods {
			c.in.Pods[i].Containers[0].Size = requestsAndLimits(300, 2000, 256, 512)
		}

		c.wait(10 * time.Minute)
		if got := *c.in.Pods[0].Containers[0].Size.CPURequest; got != 2000 || c.in.State.Phase == Stopped {
			t.Errorf("the pods request %dm in phase %s (%s), want the 2000m that they had, to be lowered in steps", got, c.in.State.Phase, c.in.State.Reason)
		}
	})
}

// TestDecide_ChangedDefault checks that a pod that was created after a change of a LimitRange is left alone, and is no drift.
func TestDecide_ChangedDefault(t *testing.T) {
	b := effectiveFixture(t, false)
	b.wait(15 * time.Hour)

	b.in.Effective = appSize(requests(1000, 256))
	added := newPod(8, requests(1000, 256))
	added.Created = b.in.Now
	b.in.Pods = append(b.in.Pods, added)
	b.in.DesiredSize = appSize(requests(400, 256)) // A new phase, after which the pod is old.
	b.wait(2 * time.Hour)
	b.in.DesiredSize = appSize(requests(200, 256))
	b.wait(2 * time.Hour)

	if got := *b.in.Pods[8].Containers[0].Size.CPURequest; got != 1000 || b.in.State.Phase == Stopped {
		t.Errorf("the new pod requests %dm in phase %s (%s), want 1000m as it was created, and no stop", got, b.in.State.Phase, b.in.State.Reason)
	}
}
