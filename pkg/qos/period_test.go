// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/units"
)

// policyOfCPU returns a policy that throttles by halves above 4 cores.
func policyOfCPU() Policy {
	return Policy{Limits: DefaultLimits(), Rules: []Rule{{
		Name: "cpu", Metric: "cpu_total_usage", Threshold: 4000, TriggerCount: 1, RestoreCount: 1, MaxAge: time.Minute,
		Action: Action{Name: "calm", CoolDown: time.Second, Throttle: &CPUThrottling{Floor: 0.1, Step: 0.5}},
	}}}
}

// TestThrottleShortPeriod checks that a quota is not planned below the least one that the kernel accepts in the container's period, where it
// would be planned again and again, and that it is restored in steps.
func TestThrottleShortPeriod(t *testing.T) {
	policy := policyOfCPU()
	var s State
	const least = 100 // 1 ms in a period of 10 ms
	quota := Unlimited
	throttles := 0
	for i := range 12 {
		o := observation(i, "cpu_total_usage", 7000)
		m := Measurement[units.MilliCPU]{min(units.MilliCPU(quota), 3000), o.At}
		c := Container{ID: "c", Name: "main", Quota: quota, UsedCPU: m, MinQuota: least}
		o.Pods = []Pod{{UID: "u", Namespace: "shop", Name: "web", Class: Burstable, Allowed: []string{"calm"}, UsedCPU: m, Containers: []Container{c}}}
		for _, th := range Decide(&policy, o, &s).Throttles {
			s.RecordThrottle(th)
			quota = max(th.To, least) // as the kernel requires
			throttles++
		}
	}

	if quota != least || throttles > 6 {
		t.Errorf("quota %s after %d throttles, want 100m after at most 6", quota, throttles)
	}

	// The node is calm: the first step is small.
	for i := 12; i < 20 && quota == least; i++ {
		o := observation(i, "cpu_total_usage", 1000)
		m := Measurement[units.MilliCPU]{least, o.At}
		o.Pods = []Pod{{UID: "u", Namespace: "shop", Name: "web", Class: Burstable, Allowed: []string{"calm"}, UsedCPU: m, Containers: []Container{{ID: "c", Name: "main", Quota: quota, UsedCPU: m, MinQuota: least}}}}
		for _, th := range Decide(&policy, o, &s).Throttles {
			s.RecordThrottle(th)
			quota = th.To
		}
	}

	if quota == Unlimited || quota <= least {
		t.Errorf("quota after the first step of the restore = %s, want more than 100m and not all at once", quota)
	}
}

// TestThrottleSandboxed checks that a pod whose processes are outside of its containers' cgroups is not throttled, and that the rule says why.
func TestThrottleSandboxed(t *testing.T) {
	policy := policyOfCPU()
	for name, test := range map[string]struct {
		used units.MilliCPU // of the container
		want string
	}{
		"in a virtual machine":     {0, "Kata or gVisor"},
		"a rest in the container":  {20, "Kata or gVisor"},
		"in the container's group": {2900, ""},
	} {
		var s State
		o := observation(0, "cpu_total_usage", 7000)
		o.Pods = []Pod{{
			UID: "u", Namespace: "shop", Name: "web", Class: Burstable, Allowed: []string{"calm"}, UsedCPU: Measurement[units.MilliCPU]{3000, o.At},
			Containers: []Container{{ID: "c", Name: "main", Quota: Unlimited, UsedCPU: Measurement[units.MilliCPU]{test.used, o.At}}},
		}}

		plan := Decide(&policy, o, &s)
		if (len(plan.Throttles) == 0) != (test.want != "") || !strings.Contains(plan.Rules[0].Reason, test.want) {
			t.Errorf("%s: throttles %+v with reason %q, want %q", name, plan.Throttles, plan.Rules[0].Reason, test.want)
		}
	}
}

// TestRaisedRequest checks that a throttled container whose request a resize raises gets the new request at once, while the rule still fires.
func TestRaisedRequest(t *testing.T) {
	policy := policyOfCPU()
	var s State
	quota := Unlimited
	for i := range 10 {
		request := units.MilliCPU(200)
		if i >= 6 {
			request = 2000
		}

		o := observation(i, "cpu_total_usage", 7000)
		m := Measurement[units.MilliCPU]{min(units.MilliCPU(quota), 3000), o.At}
		c := Container{ID: "c", Name: "main", Quota: quota, UsedCPU: m, Request: request}
		o.Pods = []Pod{{UID: "u", Namespace: "shop", Name: "web", Class: Burstable, Allowed: []string{"calm"}, UsedCPU: m, Containers: []Container{c}}}
		for _, th := range Decide(&policy, o, &s).Throttles {
			s.RecordThrottle(th)
			quota = th.To
		}

		if quota < Quota(request) || i == 5 && quota > 400 {
			t.Errorf("measurement %d: quota %s with a request of %dm, want a throttle that is not below it", i, quota, request)
		}
	}
}
