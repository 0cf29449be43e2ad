// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/integration/harness"
	"crane.io/crane/test/nightly"
)

const (
	manyRows   = 20_000
	people     = 10
	memoryAim  = 128 << 20
	rowsTime   = 5 * time.Minute
	containers = `{"spec":{"template":{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"%dm","memory":"%dMi"}}}]}}}}`
)

// TestManyRecommendations measures the peak memory of the server with 20,000 Recommendations, and the requests to the API server while ten
// people open worklist and overview five times.
func TestManyRecommendations(t *testing.T) {
	nightly.Only(t)
	space := harness.NewNamespace(t, admin, "many-", rowsTime)
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(16)

	for i := range manyRows {
		group.Go(func() error { return createRecommendation(ctx, space.Name, i) })
	}

	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}

	f, pid := startServer(t)
	root := f.login("shop", "root")
	var list contract.Worklist
	begin := time.Now()

	harness.Eventually(t.Context(), t, rowsTime, "the worklist", func(context.Context) error {
		if status := root.get(contract.PathWorklist, &list); status != http.StatusOK {
			return fmt.Errorf("status %d", status)
		}

		return nil
	})

	cold := time.Since(begin)
	if len(list.Rows) < manyRows {
		t.Fatalf("%d rows, want %d or more", len(list.Rows), manyRows)
	}

	before := requestsOf(t)
	if before["recommendations LIST"] == 0 || before["selfsubjectreviews POST"] == 0 {
		t.Fatalf("the requests are %v, want Recommendations listed and reviews created", before)
	}

	looking, _ := errgroup.WithContext(t.Context())
	for i := range people {
		one := root
		if i%2 == 1 {
			one = f.login("shop", "ann")
		}

		looking.Go(func() error {
			for range 5 {
				for _, path := range []string{contract.PathWorklist, contract.PathOverview} {
					if status := one.get(path, nil); status != http.StatusOK {
						return fmt.Errorf("%s: status %d", path, status)
					}
				}
			}

			return nil
		})
	}

	if err := looking.Wait(); err != nil {
		t.Error(err)
	}

	after := requestsOf(t)
	for name, n := range after {
		after[name] = n - before[name]
	}

	peak := peakMemory(t, pid)
	t.Logf("%d rows: cold worklist %s, peak memory %d MiB, requests of %d people with 10 pages each: %v", len(list.Rows), cold.Round(time.Millisecond), peak>>20, people, after)

	if peak > memoryAim {
		t.Errorf("the server used %d MiB, want at most %d", peak>>20, memoryAim>>20)
	}
	// All people share what the server lists; it is read again after 30 s.
	if after["recommendations LIST"] > 200 {
		t.Errorf("Recommendations were listed in %v requests, want at most 200", after["recommendations LIST"])
	}
}

func createRecommendation(ctx context.Context, namespace string, i int) error {
	rec := &analysisv1alpha1.Recommendation{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: fmt.Sprintf("workload-%d-resource", i), Labels: map[string]string{"team": fmt.Sprintf("team-%d", i%50), "app": fmt.Sprintf("workload-%d", i)},
	}}
	rec.Spec.Type = analysisv1alpha1.AnalysisTypeResource
	rec.Spec.TargetRef = corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: namespace, Name: fmt.Sprintf("workload-%d", i)}
	rec.Status.Action = analysisv1alpha1.ActionPatch
	rec.Status.CurrentInfo = fmt.Sprintf(containers, 1000, 1024)
	rec.Status.RecommendedInfo = fmt.Sprintf(containers, 100+i%900, 256)
	rec.Status.Savings = &analysisv1alpha1.Savings{CPU: resource.MustParse("500m"), Memory: resource.MustParse("768Mi"), Monthly: strconv.Itoa(i % 997), Currency: "USD"}
	rec.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "RecommendationReady", LastTransitionTime: metav1.Now()}}

	return admin.Create(ctx, rec, client.FieldOwner("owner"))
}

// startServer starts the server as a process of its own, so that its memory can be measured.
func startServer(t *testing.T) (*fixture, int) {
	t.Helper()

	binary := os.Getenv("CRANE_CLI")
	if binary == "" {
		binary = filepath.Join(t.TempDir(), "crane")
		if err := harness.Build(t.Context(), binary, "crane"); err != nil {
			t.Fatal(err)
		}
	}

	kubeconfig, err := control.KubeconfigFor(t.Context(), "dashboard", controlplane.ServiceAccount("crane-system", "crane-dashboard"))
	if err != nil {
		t.Fatal(err)
	}

	cmd := exec.CommandContext(t.Context(), binary, "dashboard", "serve", "--kubeconfig", kubeconfig, "--prometheus", "http://127.0.0.1:1", "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "GOMEMLIMIT=200MiB")
	f := &fixture{t: t}

	cmd.Stderr = f
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = cmd.Wait() }) // killed with the context of the test
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the server printed no address, want one: %v, log %s", err, f.logged())
	}

	f.address = addressIn(line)
	return f, cmd.Process.Pid
}

// peakMemory returns the largest resident memory of a process, in bytes.
func peakMemory(t *testing.T, pid int) int64 {
	t.Helper()

	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skipf("the memory of processes cannot be read here: %v", err)
	}

	found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("no VmHWM in %s, want it there", text)
	}

	kib, err := strconv.ParseInt(string(found[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}

	return kib << 10
}

// requestsOf returns the requests that the API server has answered, of the resources that the dashboard asks for, by verb.
func requestsOf(t *testing.T) map[string]float64 {
	t.Helper()

	clients, err := kubernetes.NewForConfig(control.Config())
	if err != nil {
		t.Fatal(err)
	}

	text, err := clients.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	out := map[string]float64{}
	line := regexp.MustCompile(`(?m)^apiserver_request_total\{.*resource="(recommendations|selfsubjectaccessreviews|selfsubjectreviews|nodes|pods)".*verb="([A-Z]+)",version="[^"]*"\} (\S+)$`)
	for _, found := range line.FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.ParseFloat(found[3], 64)
		if err != nil {
			t.Fatal(err)
		}

		out[found[1]+" "+found[2]] += n
	}

	return out
}
