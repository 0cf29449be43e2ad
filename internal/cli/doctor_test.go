// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"crane.io/crane/internal/kube/installation"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/prometheus"
)

// TestLeaderOutsideCluster checks that a craned outside the cluster is detected by its lease.
func TestLeaderOutsideCluster(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	lease := func(namespace, holder string, age time.Duration) *coordinationv1.Lease {
		renewed := metav1.NewMicroTime(now.Add(-age))
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: installation.CranedLease},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &renewed},
		}
	}

	for name, c := range map[string]struct {
		lease  *coordinationv1.Lease
		status installation.Status
		want   string
	}{
		"renewed":  {lease("crane-system", "vm_1", 10*time.Second), installation.OK, "crane-system/craned"},
		"old":      {lease("crane-system", "vm_1", time.Hour), installation.Warn, "does not run"},
		"tenant's": {lease("shop", "vm_1", 10*time.Second), installation.Warn, "does not run"},
		"released": {lease("crane-system", "", time.Second), installation.Warn, "does not run"},
	} {
		d := &diagnosis{options: &doctorOptions{cranedNamespace: "crane-system"}, now: now}
		d.checkLeader(t.Context(), fake.NewClientset(c.lease))

		if len(d.checks) != 1 || d.checks[0].Status != c.status || !strings.Contains(d.checks[0].Detail, c.want) {
			t.Errorf("%s: checks %+v, want one with status %s and %q", name, d.checks, c.status, c.want)
		}
	}
}

// TestAbsentMetrics checks that the metric of jobs may be absent only if kube-state-metrics exports other metrics.
func TestAbsentMetrics(t *testing.T) {
	report := metrics.SourceReport{Metrics: []metrics.MetricPresence{
		{Metric: "container_cpu_usage_seconds_total", Required: true, Series: 3}, {Metric: "kube_pod_owner"}, {Metric: "kube_job_owner", Impact: "guessed"},
	}}
	check := func() map[string]installation.Status {
		d := &diagnosis{}
		d.checkMetrics(report, true)

		out := map[string]installation.Status{}
		for _, c := range d.checks {
			out[c.Name] = c.Status
		}

		return out
	}

	if got := check(); got["kube_job_owner"] != installation.Warn || got["kube_pod_owner"] != installation.Warn {
		t.Errorf("checks without kube-state-metrics = %v, want warnings of both owners", got)
	}

	report.Metrics[1].Series = 3
	if got := check(); got["kube_job_owner"] != installation.OK {
		t.Errorf("checks with kube-state-metrics = %v, want kube_job_owner ok", got)
	}
}

// TestKillKinds checks that doctor names the kinds of OOM kills that the history shows.
func TestKillKinds(t *testing.T) {
	const (
		reason   = "kube_pod_container_status_last_terminated_reason"
		restarts = "kube_pod_container_status_restarts_total"
		events   = "container_oom_events_total"
		owner    = "kube_pod_owner"
	)

	for name, c := range map[string]struct {
		exported []string
		status   installation.Status
		want     []string
	}{
		"nothing": {nil, installation.Warn, []string{"not visible: containers that restart, containers that do not restart, as of Jobs, sidecars"}},
		"all": {
			[]string{owner, reason, restarts, events},
			installation.OK,
			[]string{"visible: containers that restart, each further kill of a container, processes in a container", "once there is one, unless the metric is dropped: containers that do not restart"},
		},
		"no cAdvisor":           {[]string{owner, reason, restarts}, installation.Warn, []string{"not visible: processes in a container"}},
		"no kube-state-metrics": {[]string{events}, installation.Warn, []string{"visible: processes in a container that goes on; not visible: containers that restart"}},
	} {
		report := metrics.SourceReport{}
		for _, metric := range []string{owner, reason, restarts, events, "kube_pod_container_status_terminated_reason", "kube_pod_init_container_status_last_terminated_reason"} {
			presence := metrics.MetricPresence{Metric: metric}
			if slices.Contains(c.exported, metric) {
				presence.Series = 1
			}

			report.Metrics = append(report.Metrics, presence)
		}

		d := &diagnosis{}
		d.checkKills(report)
		got := d.checks[0]
		for _, want := range c.want {
			if got.Status != c.status || !strings.Contains(got.Detail, want) || (got.Advice == "") != (c.status == installation.OK) {
				t.Errorf("%s: checkKills added %+v, want status %s, advice for a warning, and the text %q", name, got, c.status, want)
			}
		}
	}
}

// rulesQuerier answers the query of doctor for rules.
type rulesQuerier struct {
	metrics.Querier
	samples []metrics.Sample
	err     error
}

func (q rulesQuerier) Instant(context.Context, string, time.Time) ([]metrics.Sample, error) {
	return q.samples, q.err
}

// TestMetricRules checks that doctor names each rule without effect with what to do, and reports an unknown answer as unknown.
func TestMetricRules(t *testing.T) {
	check := func(q rulesQuerier) []installation.Check {
		d := &diagnosis{}
		d.checkMetricRules(t.Context(), q)
		return d.checks
	}

	if got := check(rulesQuerier{}); len(got) > 0 {
		t.Errorf("checkMetricRules without such rules = %v, want none", got)
	}

	refused := metrics.Sample{Labels: metrics.Labels{"rule": "rules[2]", "reason": "refused"}, Value: 1}
	got := check(rulesQuerier{samples: []metrics.Sample{refused}})
	if len(got) != 1 || got[0].Status != installation.Warn || !strings.Contains(got[0].Detail, "rules[2]") || !strings.Contains(got[0].Detail, "invalid") || got[0].Advice == "" {
		t.Errorf("checkMetricRules with a refused rule = %+v, want a warning with rules[2]", got)
	}

	got = check(rulesQuerier{err: errors.New("down")})
	if len(got) != 1 || !strings.Contains(got[0].Detail, "unknown: down") {
		t.Errorf("checkMetricRules after a failure = %+v, want an unknown answer", got)
	}
}

// TestDoctorFitsTerminal checks that lines do not exceed the width of the terminal.
func TestDoctorFitsTerminal(t *testing.T) {
	checks := []installation.Check{
		{Name: "container_memory_total_active_file_bytes", Status: installation.Warn, Detail: strings.Repeat("some words ", 20), Advice: strings.Repeat("some advice ", 20)},
		{Name: "API server", Status: installation.OK, Detail: "https://127.0.0.1:6443", Advice: ""},
	}

	for _, columns := range []int{60, 80, 100, 120, 160} {
		out := formatChecks(checks, columns)
		for line := range strings.Lines(out) {
			if len(line)-1 > columns {
				t.Errorf("a line of %d columns in a terminal of %d, want it to fit: %s", len(line)-1, columns, line)
			}
		}

		if !strings.Contains(out, checks[0].Name) || !strings.Contains(out, "advice") {
			t.Errorf("checks in %d columns lack a name or an advice, want both:\n%s", columns, out)
		}
	}
}

// TestIdentityChecks checks the lines about series whose objects are unknown or mixed.
func TestIdentityChecks(t *testing.T) {
	d := &diagnosis{}
	d.checkMetrics(metrics.SourceReport{
		Metrics: []metrics.MetricPresence{
			{Metric: "container_cpu_usage_seconds_total", Required: true, Series: 3},
			{Metric: "kube_pod_owner", Series: 1},
			{Metric: "kube_job_owner", Impact: "each of its series has the label exported_namespace", Renamed: 2},
		},
		Warnings: []string{"series of kube_job_owner are ignored: honorLabels", "3 running pods have no usage, on nodes n1"},
	}, true)
	d.checkClusters(&prometheus.SeveralClustersError{Object: "shop/db-0", Label: "cluster", Values: []string{"eu", "us"}})
	d.checkClusters(nil)

	got := map[string]installation.Status{}
	for _, c := range d.checks {
		got[c.Name] = c.Status
	}

	want := map[string]installation.Status{
		checkMetrics: installation.OK, "kube_job_owner": installation.Warn, "renamed labels": installation.Warn,
		"pods without usage": installation.Warn, checkClusters: installation.Missing,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("checks differ (-want +got):\n%s", diff)
	}
}
