// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption_test

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/cli"
	"crane.io/crane/internal/recommendation/savingsrecord"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/savings"
	"crane.io/crane/test/integration/harness"
)

// report is the part of crane report -o json that is checked.
type report struct {
	ObservedHours float64
	Unknown       int
	Accounts      []savings.Account
}

// runReport runs crane report for the current month.
func runReport() (report, error) {
	var stdout, stderr bytes.Buffer
	var out report
	if code := cli.Main([]string{"crane", "report", "-o", "json", "--kubeconfig", control.Kubeconfig()}, strings.NewReader(""), &stdout, &stderr); code != 0 {
		return out, fmt.Errorf("exit %d: %s", code, stderr.String())
	}

	return out, json.Unmarshal(stdout.Bytes(), &out)
}

// TestSavings checks that craned records what an adoption saves, that another craned continues the record, and that crane report prints it.
func TestSavings(t *testing.T) {
	f := newFixture(t)
	forged := newFixture(t)

	book := filepath.Join(t.TempDir(), "prices.yaml")
	prices := "currency: EUR\nsource: this test\ndate: \"2026-01-01\"\ndefault: {prices: {cpu: 1, memory: 0.5}}\n"
	if err := os.WriteFile(book, []byte(prices), 0o600); err != nil {
		t.Fatal(err)
	}

	flags := append(fastSettings(), "--controllers=adoption,oom,cost", "--cost-interval=10s", "--price-book="+book)
	craned := harness.StartCraned(t, waitTimeout, control, binary, harness.NoPrometheus, flags...)
	f.Deploy("web", 2)
	before := f.Pods("web")[0].Spec.Containers[0].Resources.Requests
	f.recommend("web", auto, "600m", "512Mi")
	f.AwaitPods("web", "have the recommended requests", checkRequests("600m", "512Mi"))
	f.awaitPhase("web", adoption.Resting)

	// The owner of a workload can write its annotations: a size that no node has is no saving.
	forged.Deploy("web", 1)
	forged.recommend("web", auto, "900m", "512Mi")
	forged.awaitFirstStep("web")
	state := forged.state("web")
	enormous := state.Original.Containers["app"]
	*enormous.CPURequest *= 1_000_000

	text, err := json.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}

	d, err := forged.deployment(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}

	patch := client.MergeFrom(d.DeepCopy())
	d.Annotations["analysis.crane.io/adoption"] = string(text)
	if err := admin.Patch(t.Context(), d, patch); err != nil {
		t.Fatal(err)
	}

	// 2 pods release CPU at 1 a core and memory at 0.5 a GiB.
	cores := float64(before.Cpu().MilliValue()-600) / 1000
	gib := float64(before.Memory().Value()-512<<20) / (1 << 30)
	saved := 2 * (cores + gib/2)

	await := func(hours float64) report {
		var last report
		harness.Eventually(t.Context(), t, waitTimeout, "crane report prints the saving", func(context.Context) error {
			r, err := runReport()
			if err != nil {
				return err
			}

			last = r
			if r.ObservedHours <= hours || r.Accounts[0].Namespaces[f.Name].Realized <= 0 {
				return fmt.Errorf("%+v", r)
			}

			return nil
		})

		return last
	}

	first := await(0)
	// Rates are compared between two reports, because the adoption was in progress at first.
	second := await(first.ObservedHours)
	hours := second.ObservedHours - first.ObservedHours

	then := first.Accounts[0].Namespaces[f.Name]
	now := second.Accounts[0].Namespaces[f.Name]
	if got := (now.Realized - then.Realized) / hours; math.Abs(got-saved) > saved/100 {
		t.Errorf("%v an hour was realized, want %v", got, saved)
	}

	if got := (now.Promised - then.Promised) / hours; math.Abs(got-saved) > saved/100 {
		t.Errorf("%v an hour was promised, want %v", got, saved)
	}
	if got := second.Accounts[0].Namespaces[forged.Name].Realized; got > 1 || second.Unknown == 0 || second.Accounts[0].Currency != "EUR" {
		t.Errorf("the forged state saves %v, want at most 1 and an unknown target: %+v", got, second)
	}

	craned.Stop(t)
	harness.StartCraned(t, waitTimeout, control, binary, harness.NoPrometheus, flags...)

	third := await(second.ObservedHours)
	if third.Accounts[0].Namespaces[f.Name].Realized <= now.Realized {
		t.Errorf("the record is %+v after %+v, want a higher saving", third, second)
	}

	record := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: savingsrecord.ConfigMapName}}
	if err := admin.Delete(t.Context(), record); err != nil {
		t.Fatal(err)
	}
}
