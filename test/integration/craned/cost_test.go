// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/cli"
	"crane.io/crane/test/integration/harness"
)

// prices is a price book: 1 for a core and 0.5 for a GiB, and less on nodes of the cheap pool.
const prices = `
currency: EUR
source: this test
date: "2026-01-01"
default: {prices: {cpu: 1, memory: 0.5}}
groups:
  - name: cheap
    selector: {matchLabels: {pool: cheap}}
    prices: {cpu: 0.4, memory: 0.1}
`

// writePriceBook returns the path of a price book.
func writePriceBook(t *testing.T, content string) string {
	t.Helper()

	path := filepath.Join(t.TempDir(), "prices.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}

func node(name, pool string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": pool}}}
}

// boundPod returns a pod that is bound to a node.
func boundPod(namespace, name, on string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{NodeName: on, Containers: []corev1.Container{{
			Name: "app", Image: "example.com/app",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("2Gi"),
			}},
		}}},
	}
}

// createNodes creates two nodes of 4 cores and 8 GiB with one pod each. Their names start with the namespace, because without a
// kubelet pods remain after the test.
func createNodes(t *testing.T, c client.Client, namespace string) {
	t.Helper()

	for _, n := range []*corev1.Node{node(namespace+"-expensive", "x"), node(namespace+"-cheap", "cheap")} {
		if err := c.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { _ = c.Delete(context.Background(), n) })
		// The node controllers write the status as well.
		before := n.DeepCopy()
		n.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")}
		if err := c.Status().Patch(t.Context(), n, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}

	create(t, c, boundPod(namespace, "one", namespace+"-expensive"), boundPod(namespace, "two", namespace+"-cheap"))
}

// TestCost checks that the costs of the command line add up and that craned reports the same cost in its metrics.
func TestCost(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	createNodes(t, c, "money")
	book := writePriceBook(t, prices)

	var out, stderr bytes.Buffer
	code := cli.Main([]string{"crane", "cost", "-o", "json", "--kubeconfig", control.Kubeconfig(), "--prometheus", prom.URL(), "--price-book", book},
		strings.NewReader(""), &out, &stderr)
	if code != 0 {
		t.Fatalf("crane cost: exit %d, want 0: %s", code, stderr.String())
	}

	type total struct{ Total float64 }
	type shares struct{ ByRequest, ByUse, ByMax total }
	var got struct {
		Workloads []struct {
			Namespace, Name string
			Cost            shares
		}
		Cluster struct {
			Nodes           total
			Workloads, Idle shares
		}
	}

	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}

	cost := map[string]float64{}
	for _, w := range got.Workloads {
		cost[w.Namespace+"/"+w.Name] = w.Cost.ByRequest.Total
	}

	same := func(what string, got, want float64) {
		t.Helper()

		if math.Abs(got-want) > 1e-8 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}

	same("money/one", cost["money/one"], 1+2*0.5)
	same("money/two", cost["money/two"], 0.4+2*0.1)
	all := got.Cluster
	same("nodes", all.Nodes.Total, 4+4+1.6+0.8)
	same("by request", all.Workloads.ByRequest.Total+all.Idle.ByRequest.Total, all.Nodes.Total)
	same("by use", all.Workloads.ByUse.Total+all.Idle.ByUse.Total, all.Nodes.Total)
	same("by max", all.Workloads.ByMax.Total+all.Idle.ByMax.Total, all.Nodes.Total)

	craned := startCraned(t, prom.URL(), "--price-book="+book)
	want := `crane_cost_workload_hourly{basis="request",currency="EUR",namespace="money",owner_kind="Pod",owner_name="one"} 2`
	eventually(t, "the cost metric", func(ctx context.Context) error {
		page, err := craned.Metrics(ctx)
		if err == nil && !containsLine(page, want) {
			err = fmt.Errorf("no %s", want)
		}

		return err
	})
}

// TestSavingsInStatus checks that the status of a Recommendation contains the savings at the prices of the price book.
func TestSavingsInStatus(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	createNodes(t, c, "coins")
	create(t, c, deployment("shop", "web"))
	startCraned(t, prom.URL(), "--price-book="+writePriceBook(t, prices))
	create(t, c, rule("savings", "24h", "shop"))
	awaitRule(t, c, "savings", "RoundCompleted")

	recs, err := recommendations(t.Context(), c, "savings")
	if err != nil {
		t.Fatal(err)
	}

	s := recs["shop/web"].Status.Savings
	if s == nil || s.Currency != "EUR" || s.CPU.Sign() <= 0 || s.Monthly == "" || s.Monthly[0] == '-' || s.PricedFrom == "" {
		t.Errorf("savings %+v of %+v, want a saving in EUR with its source", s, recs)
	}
}

// TestBadPriceBook checks that craned does not start with an invalid price and that its error contains the field.
func TestBadPriceBook(t *testing.T) {
	book := writePriceBook(t, strings.Replace(prices, "cpu: 0.4", "cpu: 0", 1))
	craned := startCraned(t, harness.NoPrometheus, "--price-book="+book)
	<-craned.Done()

	if text := craned.Log.String(); craned.Err() == nil || !strings.Contains(text, "groups[0].prices.cpu: \"0\": a price must be above zero") {
		t.Errorf("craned ended with %v, want an error about the price:\n%s", craned.Err(), text)
	}
}
