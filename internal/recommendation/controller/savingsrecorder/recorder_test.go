// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package savingsrecorder

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/component/notification"
	"crane.io/crane/internal/recommendation/savingsrecord"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/savings"
	"crane.io/crane/pkg/units"
)

// fixedLedger is a cluster of one node that costs 2 an hour.
type fixedLedger struct{ unknown bool }

func (l *fixedLedger) Latest() (*cost.Tariff, cost.Allocation, bool) {
	split := cost.Split{CPU: 2e9}
	return &cost.Tariff{Currency: "USD"}, cost.Allocation{Currency: "USD", Cluster: split}, !l.unknown
}

// TestWeeklyReport: the report of a week is sent once after its end, also if another leader takes over; unreadable months are kept and
// counted as failures, as is a cost that is not known.
func TestWeeklyReport(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Date(2026, 11, 1, 23, 40, 0, 0, time.UTC)) // A Sunday.
	c := fake.NewClientBuilder().Build()
	var sent []notification.Event
	ledger := &fixedLedger{}
	newRecorder := func() *Recorder {
		return New(Config{
			Ledger: ledger, Live: c, Writer: c, Namespace: "crane-system", Interval: 5 * time.Minute, Clock: clk,
			Notify: func(e notification.Event) { sent = append(sent, e) }, Report: savings.Schedule{Day: time.Monday, Zone: time.UTC},
		})
	}

	r := newRecorder()
	for i := range 12 {
		if i == 6 {
			r = newRecorder() // The next leader.
		}

		r.observe(t.Context(), r.recordSample(t.Context()))
		clk.Step(5 * time.Minute)
	}

	if len(sent) != 1 || sent[0].Reason != notification.ReasonWeeklyReport || !strings.Contains(sent[0].Message, "from 2026-10-26 to 2026-11-01") ||
		!strings.Contains(sent[0].Message, "the nodes cost 0.67") || !strings.Contains(sent[0].Message, "167.7 of 168 hours") {
		t.Errorf("sent %+v, want one weekly report of 167.7 hours", sent)
	}

	record, err := savingsrecord.Load(t.Context(), c, "crane-system")
	if err != nil || len(record.Months) != 1 || record.Months["2026-11"][0].Days[2].Cost == 0 {
		t.Fatalf("record %+v, error %v, want one month with a cost on the third day", record, err)
	}

	ledger.unknown = true
	r.observe(t.Context(), r.recordSample(t.Context()))
	ledger.unknown = false

	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: savingsrecord.ConfigMapName}}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatal(err)
	}

	object.Data["2026-11"] = "unreadable"
	if err := c.Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}

	r.observe(t.Context(), r.recordSample(t.Context()))
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil || object.Data["2026-11"] != "unreadable" {
		t.Errorf("the unreadable month became %q, error %v, want it unchanged", object.Data["2026-11"], err)
	}
	if err := testutil.CollectAndCompare(r, strings.NewReader(`# HELP crane_savings_record_failures_total Samples of savings that could not be recorded.
# TYPE crane_savings_record_failures_total counter
crane_savings_record_failures_total 2
`), "crane_savings_record_failures_total"); err != nil {
		t.Error(err)
	}
}

// TestHostileStates checks that a state which names a Recommendation of another namespace has no saving, and that sizes and savings which tenants write
// are bounded by a node and by the cost of the cluster.
func TestHostileStates(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := analysisv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	builder := fake.NewClientBuilder().WithScheme(scheme)
	for i := range 10 {
		rec := &analysisv1alpha1.Recommendation{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("web-%d", i)}}
		rec.Spec.Type = analysisv1alpha1.AnalysisTypeResource
		rec.Spec.TargetRef = corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: rec.Name}
		rec.Status.RecommendedValue = "resourceRequest:\n  containers:\n  - containerName: app\n    target:\n      cpu: 100m\n"
		rec.Status.Savings = &analysisv1alpha1.Savings{Monthly: "1000", Currency: "USD"}
		builder.WithObjects(rec)
	}

	r := New(Config{Recommendations: builder.Build()})
	for namespace, want := range map[string]bool{"shop": true, "evil": false} {
		state := `{"phase":"Resting","by":"shop/web-0","earlier":{"containers":{"app":{"cpuRequest":1000}}},"current":{"containers":{"app":{"cpuRequest":100}}}}`
		workload := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "web", Annotations: map[string]string{analysisv1alpha1.AnnotationAdoption: state},
		}}
		if _, ok, err := r.adoptedSize(t.Context(), workload); err != nil || ok != want {
			t.Errorf("adoptedSize of a workload in namespace %s = %v, %v, want %v", namespace, ok, err, want)
		}
	}

	sample := savings.Sample{Currency: "USD", Cluster: 2, Namespaces: map[string]savings.Amounts{"shop": {Cost: 1}}}
	if err := r.addAvailable(t.Context(), nil, &sample); err != nil {
		t.Fatal(err)
	}
	if got := sample.Namespaces["shop"].Available; got != 2 {
		t.Errorf("ten savings of 1000 a month are %v an hour, want the cost of the cluster, 2", got)
	}

	cpu := units.MilliCPU(600)
	size := adoption.Size{Containers: map[string]rightsize.Resources{"a": {CPURequest: &cpu}, "b": {CPURequest: &cpu}}}
	if fits(size, cost.Amounts{CPU: 1000}) || !fits(size, cost.Amounts{CPU: 1200}) {
		t.Error("two containers of 600m fit a node of 1000m, or not one of 1200m, want the opposite")
	}
}
