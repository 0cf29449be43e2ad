// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/test/integration/harness"
)

// timeout bounds every wait. Awaited changes take seconds on an idle machine.
const timeout = 90 * time.Second

func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	harness.Eventually(t.Context(), t, timeout, what, check)
}

func newClient(t *testing.T) client.Client {
	t.Helper()

	c, err := harness.NewClient(control.Config())
	if err != nil {
		t.Fatal(err)
	}

	return c
}

// prometheus is a server whose samples are set by a test.
type prometheus struct{ *promserver.Server }

func servePrometheus(t *testing.T, backfill ...promserver.Series) *prometheus {
	t.Helper()

	dir := t.TempDir()
	if len(backfill) > 0 {
		end := time.Now().Truncate(time.Minute)
		grid := promserver.Grid{Start: end.Add(-3 * time.Hour), End: end.Add(time.Hour), Step: 15 * time.Second}
		if _, err := promserver.WriteBlocks(t.Context(), dir, grid, backfill); err != nil {
			t.Fatal(err)
		}
	}

	return &prometheus{harness.OpenPrometheus(t, promserver.Options{Dir: dir})}
}

// sample is one value of a metric with labels, as alternating names and values.
type sample struct {
	value float64
	pairs []string
}

// set replaces all samples of a metric.
func (p *prometheus) set(t *testing.T, metric string, list ...sample) {
	t.Helper()

	var batch []promserver.Sample
	for _, s := range list {
		batch = append(batch, promserver.Sample{Labels: labels.FromStrings(append([]string{"__name__", metric}, s.pairs...)...), Value: s.value})
	}

	if err := p.Append(t.Context(), metric, time.Now(), batch); err != nil {
		t.Fatal(err)
	}
}

// craned is a craned with a node-load policy.
type craned struct {
	*harness.Craned
	policy string // path of the policy file
}

// startCraned runs craned with a policy.
func startCraned(t *testing.T, prometheusURL, policy string, flags ...string) *craned {
	t.Helper()

	c := &craned{policy: filepath.Join(t.TempDir(), "policy.yaml")}
	c.write(t, policy)
	t.Cleanup(func() { // runs after the process has been stopped
		if c.Craned != nil && c.Err() != nil {
			t.Errorf("craned ended with %v, want no error", c.Err())
		}
	})

	c.Craned = harness.StartCraned(t, timeout, control, binary, prometheusURL, append([]string{
		"--prometheus-timeout=5s", "--health-probe-bind-address=" + harness.FreeAddress(t), "--policy-config-path=" + c.policy, "--v=1",
	}, flags...)...)

	return c
}

func (c *craned) write(t *testing.T, policy string) {
	t.Helper()

	if err := os.WriteFile(c.policy, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
}

// awaitMetric waits until a metric has reached a value.
func (c *craned) awaitMetric(t *testing.T, series string, least float64) {
	t.Helper()

	eventually(t, fmt.Sprintf("%s of %v", series, least), func(ctx context.Context) error {
		v, err := c.Metric(ctx, series)
		if err == nil && v < least {
			err = fmt.Errorf("it is %v", v)
		}

		return err
	})
}

// awaitRounds waits for a number of further passes.
func (c *craned) awaitRounds(t *testing.T, more float64) {
	t.Helper()

	now, err := c.Metric(t.Context(), "crane_nodeload_rounds_total")
	if err != nil {
		t.Fatal(err)
	}

	c.awaitMetric(t, "crane_nodeload_rounds_total", now+more)
}

// makeNode creates a ready node with ten cores and removes it at the end of the test.
func makeNode(t *testing.T, c client.Client, name string, annotations map[string]string, addresses ...string) {
	t.Helper()

	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations, Labels: map[string]string{corev1.LabelHostname: name}}}
	if err := c.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := c.Delete(context.WithoutCancel(t.Context()), n); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})

	n.Spec.Taints = nil // admission adds the not-ready taint, and no controller removes it
	if err := c.Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}

	size := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("10"), corev1.ResourceMemory: resource.MustParse("100Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}

	n.Status = corev1.NodeStatus{
		Capacity: size, Allocatable: size, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}

	if err := c.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

func getNode(ctx context.Context, c client.Client, name string) (*corev1.Node, error) {
	n := &corev1.Node{}
	return n, c.Get(ctx, client.ObjectKey{Name: name}, n)
}

// awaitLoad waits until a node has a value of the metric in its annotation.
func awaitLoad(t *testing.T, c client.Client, name, metric, value string) {
	t.Helper()

	eventually(t, name+" carries "+value+" of "+metric, func(ctx context.Context) error {
		n, err := getNode(ctx, c, name)
		if err != nil {
			return err
		}

		if got := n.Annotations[metric]; !strings.HasPrefix(got, value+",") {
			return fmt.Errorf("it carries %q", got)
		}

		return nil
	})
}

// awaitEvent waits for an event about an object.
func awaitEvent(t *testing.T, c client.Client, kind, name, reason, text string) {
	t.Helper()

	eventually(t, fmt.Sprintf("event %s on %s %s", reason, kind, name), func(ctx context.Context) error {
		events, err := harness.Events(ctx, c, "", kind, name, reason)
		if err != nil {
			return err
		}

		for i := range events {
			if strings.Contains(events[i].Note, text) {
				return nil
			}
		}

		return errors.New("no such event")
	})
}

// runToEnd runs a craned that rejects its policy, and returns its output.
func runToEnd(t *testing.T, policy string) (string, error) {
	t.Helper()

	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()

	cmd := exec.CommandContext(ctx, binary, "--kubeconfig="+control.Kubeconfig(), "--prometheus-address=http://127.0.0.1:1",
		"--controllers=nodeload", "--policy-config-path="+path, "--metrics-bind-address=0", "--server-bind-port=0", "--health-probe-bind-address=0")

	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = ctx.Err()
	}

	return string(out), err
}
