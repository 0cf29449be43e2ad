// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package podwebhook

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// mutator is a function with a name.
type mutator struct {
	name string
	f    func(*corev1.Pod) ([]Operation, error)
}

func (m mutator) Name() string                                { return m.name }
func (m mutator) Mutate(pod *corev1.Pod) ([]Operation, error) { return m.f(pod) }

// label adds a label, and expects those that mutators before it added.
func label(t *testing.T, name string, before ...string) Mutator {
	return mutator{name, func(pod *corev1.Pod) ([]Operation, error) {
		for _, b := range before {
			if pod.Labels[b] == "" {
				t.Errorf("%s does not see label %s, want that of the mutator before it", name, b)
			}
		}

		if pod.Namespace != "shop" {
			t.Errorf("%s sees the namespace %q, want shop", name, pod.Namespace)
		}

		pod.Labels["scribble"] = "x" // Invisible to the other mutators.
		return []Operation{{Operation: "add", Path: "/metadata/labels/" + name, Value: "yes"}}, nil
	}}
}

func fails(name string, f func(*corev1.Pod) ([]Operation, error)) Mutator { return mutator{name, f} }

func request(t *testing.T, namespace string) admission.Request {
	t.Helper()

	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: "p-", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "i"}}},
	}

	raw, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}

	// A field of a newer API server stays.
	raw = []byte(strings.Replace(string(raw), `"spec":{`, `"spec":{"fromTheFuture":true,`, 1))
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Namespace: namespace, Object: runtime.RawExtension{Raw: raw},
	}}
}

// result is the JSON of the pod as it would be stored.
func result(t *testing.T, req admission.Request, answer admission.Response) string {
	t.Helper()

	if !answer.Allowed {
		t.Fatalf("the pod was refused: %v, want it allowed", answer.Result)
	}

	if len(answer.Patches) == 0 {
		return string(req.Object.Raw)
	}

	text, err := json.Marshal(answer.Patches)
	if err != nil {
		t.Fatal(err)
	}

	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		t.Fatal(err)
	}

	out, err := patch.Apply(req.Object.Raw)
	if err != nil {
		t.Fatal(err)
	}

	return string(out)
}

func TestHandle_Mutators(t *testing.T) {
	req := request(t, "shop")
	chain := NewChain([]Mutator{
		label(t, "one"),
		fails("error", func(*corev1.Pod) ([]Operation, error) { return nil, errors.New("no") }),
		fails("panic", func(*corev1.Pod) ([]Operation, error) { panic("no") }),
		fails("no-patch", func(*corev1.Pod) ([]Operation, error) { return []Operation{{Operation: "dance", Path: "/"}}, nil }),
		fails("no-such-path", func(*corev1.Pod) ([]Operation, error) {
			return []Operation{{Operation: "replace", Path: "/spec/nothing/0", Value: 1}}, nil
		}),
		fails("no-pod", func(*corev1.Pod) ([]Operation, error) {
			return []Operation{{Operation: "replace", Path: "/spec/containers", Value: "text"}}, nil
		}),
		fails("not-json", func(*corev1.Pod) ([]Operation, error) {
			return []Operation{{Operation: "add", Path: "/metadata/labels/x", Value: func() {}}}, nil
		}),
		fails("nothing", func(*corev1.Pod) ([]Operation, error) { return nil, nil }),
		label(t, "two", "one"),
	})

	answer := chain.Handle(t.Context(), req)
	got := result(t, req, answer)
	for _, want := range []string{`"one":"yes"`, `"two":"yes"`, `"fromTheFuture":true`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is missing in %s", want, got)
		}
	}

	if strings.Contains(got, "scribble") || strings.Contains(got, `"text"`) {
		t.Errorf("the patched pod is %s, want nothing of a mutator's copy or of a failed one", got)
	}
	if by := answer.AuditAnnotations["changed-by"]; by != "one,two" {
		t.Errorf("changed-by is %q, want one,two", by)
	}

	for _, warning := range answer.Warnings {
		if strings.Contains(warning, "panic: no") {
			t.Errorf("Handle returned warning %q, want none with the value of a panic", warning)
		}
	}
	if got := answer.Warnings; len(got) != 6 || got[0] != "crane: the pod is created without the changes of error: no" {
		t.Errorf("Handle returned warnings %q, want one for each of the 6 mutators that fail", got)
	}

	for name, result := range map[string]string{"one": "changed", "two": "changed", "nothing": "unchanged", "panic": "failed", "no-pod": "failed"} {
		if n := testutil.ToFloat64(chain.calls.WithLabelValues(name, result)); n != 1 {
			t.Errorf("mutator %s was counted as %s %v times, want once", name, result, n)
		}
	}
}

// TestHandle_AlwaysAllows checks that the pod is created whatever the request is.
func TestHandle_AlwaysAllows(t *testing.T) {
	called := 0
	chain := NewChain([]Mutator{mutator{"counts", func(*corev1.Pod) ([]Operation, error) { called++; return nil, nil }}}, "kube-system")
	good := request(t, "shop")
	for name, req := range map[string]admission.Request{
		"system namespace": request(t, "kube-system"),
		"no pod":           {AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte("[")}}},
		"nothing":          {},
		"update":           {AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Update, Object: good.Object}},
		"eviction":         {AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Create, SubResource: "eviction", Object: good.Object}},
	} {
		if answer := chain.Handle(t.Context(), req); !answer.Allowed || len(answer.Patches) > 0 {
			t.Errorf("Handle of %s = %+v, want it allowed and unchanged", name, answer)
		}
	}

	chain.Stopped = func() bool { return true }
	if answer := chain.Handle(t.Context(), good); !answer.Allowed || len(answer.Patches) > 0 {
		t.Errorf("Handle while stopped = %+v, want it allowed and unchanged", answer)
	}

	chain.Stopped = func() bool { return false }
	if called != 0 {
		t.Errorf("a mutator was called %d times, want none", called)
	}
	if answer := chain.Handle(t.Context(), good); !answer.Allowed || called != 1 {
		t.Errorf("Handle = %+v, %d calls, want it allowed after one call", answer, called)
	}
}

// TestHandle_OptedOut checks that no mutator is called for a pod that has opted out, or for which this is unknown, and that the pod is created.
func TestHandle_OptedOut(t *testing.T) {
	for name, test := range map[string]struct {
		excluded bool
		err      error
		want     int
	}{"opted out": {true, nil, 0}, "unknown": {false, errors.New("not synced"), 0}, "not opted out": {false, nil, 1}} {
		called := 0
		chain := NewChain([]Mutator{mutator{"counts", func(*corev1.Pod) ([]Operation, error) { called++; return nil, nil }}})
		chain.OptedOut = func(_ context.Context, pod *corev1.Pod) (bool, error) {
			if pod.Namespace != "shop" || pod.Labels["app"] != "web" {
				t.Errorf("%s: OptedOut got pod %+v, want shop/web", name, pod.ObjectMeta)
			}

			return test.excluded, test.err
		}

		answer := chain.Handle(t.Context(), request(t, "shop"))
		if !answer.Allowed || len(answer.Patches) > 0 || called != test.want {
			t.Errorf("%s: %+v, %d mutators called, want %d", name, answer, called, test.want)
		}

		wantWarnings := 0
		if test.err != nil {
			wantWarnings = 1
		}
		if len(answer.Warnings) != wantWarnings || testutil.ToFloat64(chain.optOutReadErrors) != float64(wantWarnings) {
			t.Errorf("%s: Handle returned warnings %q and counted %v read failures, want %d", name, answer.Warnings, testutil.ToFloat64(chain.optOutReadErrors), wantWarnings)
		}
	}
}

// TestChain_FailureOfOneMutator checks that the creator of an unchanged pod gets a warning too, and that the log has one line a minute.
func TestChain_FailureOfOneMutator(t *testing.T) {
	chain := NewChain([]Mutator{fails("adoption", func(*corev1.Pod) ([]Operation, error) {
		return nil, errors.New("reading Deployment shop/web: not synced")
	})})
	fakeClock := clocktesting.NewFakePassiveClock(time.Now())
	chain.failureLog.clock = fakeClock
	lines := 0
	ctx := log.IntoContext(t.Context(), funcr.New(func(string, string) { lines++ }, funcr.Options{}))

	for _, step := range []struct {
		wait      time.Duration
		wantLines int
	}{{0, 1}, {0, 1}, {59 * time.Second, 1}, {time.Second, 2}} {
		fakeClock.SetTime(fakeClock.Now().Add(step.wait))
		answer := chain.Handle(ctx, request(t, "shop"))
		const want = "crane: the pod is created without the changes of adoption: reading Deployment shop/web: not synced"
		if !answer.Allowed || len(answer.Patches) > 0 || len(answer.Warnings) != 1 || answer.Warnings[0] != want {
			t.Errorf("Handle = %+v, want an unchanged pod with the warning %q", answer, want)
		}

		if lines != step.wantLines {
			t.Errorf("Handle logged %d lines after %s more, want %d", lines, step.wait, step.wantLines)
		}
	}
}

func TestLogLimiter_Bound(t *testing.T) {
	fakeClock := clocktesting.NewFakePassiveClock(time.Now())
	limiter := logLimiter{clock: fakeClock}
	for i := range maxLoggedKeys {
		if !limiter.allow(strconv.Itoa(i)) {
			t.Fatalf("allow(%d) = false, want true for the first %d keys", i, maxLoggedKeys)
		}
	}

	if limiter.allow("one more") {
		t.Errorf("allow of key %d in one minute = true, want false", maxLoggedKeys+1)
	}

	fakeClock.SetTime(fakeClock.Now().Add(logInterval))
	if !limiter.allow("one more") || len(limiter.lastLogged) != 1 {
		t.Errorf("a minute later %d keys are recorded, want the new one alone", len(limiter.lastLogged))
	}
}

func FuzzHandle(f *testing.F) {
	f.Add([]byte(`{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"a"}]}}`))
	f.Add([]byte(`{"spec":null}`))
	f.Add([]byte(`null`))
	chain := NewChain([]Mutator{mutator{"appends", func(p *corev1.Pod) ([]Operation, error) {
		return []Operation{{Operation: "add", Path: "/spec/containers/-", Value: slices.Clone(p.Spec.Containers)}}, nil
	}}})

	f.Fuzz(func(t *testing.T, raw []byte) {
		answer := chain.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw},
		}})
		if !answer.Allowed {
			t.Fatalf("Handle refused a pod: %v, want it allowed", answer.Result)
		}
	})
}
