// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package poddryrun

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"crane.io/crane/internal/adoption/targetsnapshot"
)

var _ targetsnapshot.PodChecker = (*Checker)(nil)

// fixture answers the creation of pods by their image.
type fixture struct {
	*Checker
	t *testing.T
	// answers are the errors by image, nil to admit; allowed is the right to create pods.
	answers map[string]error
	allowed bool
	// sent are the images of the pods that were tried.
	sent  []string
	clock *testingclock.FakeClock
	live  client.Client
}

func newFixture(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()

	f := &fixture{t: t, answers: map[string]error{}, allowed: true, clock: testingclock.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))}
	f.live = fake.NewClientBuilder().WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			switch o := o.(type) {
			case *authorizationv1.SelfSubjectAccessReview:
				o.Status.Allowed = f.allowed
				return nil
			case *corev1.Pod:
				options := (&client.CreateOptions{}).ApplyOptions(opts)
				if !slices.Equal(options.DryRun, []string{metav1.DryRunAll}) {
					t.Errorf("a pod is created with %+v, want a dry run", options)
				}

				image := o.Spec.Containers[0].Image
				f.sent = append(f.sent, image)
				return f.answers[image]
			}

			return errors.New("unexpected creation")
		},
	}).Build()
	f.Checker = New(f.live, f.live, "crane-system", f.clock)
	f.setPermission("")

	return f
}

func newPod(namespace, image string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: image}}}}
}

func (f *fixture) check(namespace, present, next string) (refused, unknown string) {
	f.t.Helper()
	return f.Check(f.t.Context(), targetsnapshot.PodCheck{Pod: newPod(namespace, present), Next: newPod(namespace, next)})
}

func forbidden(text string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", errors.New(text))
}

// TestCheck: only a refusal of the new size where the present one is admitted is a refusal of the size.
func TestCheck(t *testing.T) {
	denied := forbidden("denied by a policy")
	for name, c := range map[string]struct {
		next, present    error
		refused, unknown string
	}{
		"admitted":                     {nil, denied, "", ""},
		"refused":                      {denied, nil, "denied by a policy", ""},
		"invalid":                      {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", nil), nil, "is invalid", ""},
		"refused by a webhook":         {apierrors.NewBadRequest("admission webhook denied the request"), nil, "denied the request", ""},
		"both refused":                 {denied, denied, "", "present size"},
		"the present one unknown":      {denied, errors.New("EOF"), "", "present size"},
		"no dry run":                   {apierrors.NewBadRequest(`admission webhook "x" does not support dry run`), nil, "", "does not support dry run"},
		"no right any more":            {forbidden(`User "craned" cannot create resource "pods" in API group ""`), nil, "", "cannot create resource"},
		"time-out":                     {context.DeadlineExceeded, nil, "", "no answer"},
		"time-out of the API server":   {apierrors.NewTimeoutError("webhook", 1), nil, "", "failed"},
		"internal error":               {apierrors.NewInternalError(errors.New("failed calling webhook")), nil, "", "failed"},
		"too many requests":            {apierrors.NewTooManyRequests("slow down", 1), nil, "", "failed"},
		"quota, which is asked last":   {forbidden("exceeded quota: team, requested: cpu=1"), nil, "", ""},
		"a policy that names a quota":  {forbidden(`denied request: label "exceeded quota: team"`), nil, "denied request", ""},
		"no such namespace or account": {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop"), nil, "", "failed"},
	} {
		f := newFixture(t)
		f.answers["next"] = c.next
		f.answers["present"] = c.present

		refused, unknown := f.check("shop", "present", "next")
		if (refused == "") != (c.refused == "") || !strings.Contains(refused, c.refused) || (unknown == "") != (c.unknown == "") || !strings.Contains(unknown, c.unknown) {
			t.Errorf("%s: Check = %q, %q, want %q, %q", name, refused, unknown, c.refused, c.unknown)
		}
	}
}

// TestCheck_Once: an answer is reused until it is too old, and one namespace cannot use up the dry runs of another.
func TestCheck_Once(t *testing.T) {
	f := newFixture(t)
	for range 3 {
		f.check("shop", "a", "b")
	}
	if len(f.sent) != 1 {
		t.Errorf("%d dry runs for one size, want 1: %v", len(f.sent), f.sent)
	}

	f.clock.Step(answerTTL)
	f.check("shop", "a", "b")
	if len(f.sent) != 2 {
		t.Errorf("%d dry runs after the time of the answer, want 2: %v", len(f.sent), f.sent)
	}

	f.sent = nil
	for i := range 3 * maxAnswers {
		f.check("greedy", "a", fmt.Sprint(i))
	}
	if len(f.sent) > maxPerMinute {
		t.Errorf("%d dry runs of one namespace in a minute, want at most %d", len(f.sent), maxPerMinute)
	}
	if _, unknown := f.check("greedy", "a", "another"); unknown == "" {
		t.Error("Check above the limit = known, want unknown")
	}

	f.sent = nil
	f.answers["b"] = forbidden("denied")
	for i := range maxPerMinute {
		f.check("refused", fmt.Sprint(i), "b")
	}
	if len(f.sent) > maxPerMinute {
		t.Errorf("%d dry runs of refused sizes in a minute, want at most %d", len(f.sent), maxPerMinute)
	}
	if _, unknown := f.check("modest", "a", "another"); unknown != "" {
		t.Errorf("Check of another namespace = unknown (%s), want an answer", unknown)
	}
}

// TestCheck_NotReviewed: nothing is tried before the permission is known.
func TestCheck_NotReviewed(t *testing.T) {
	f := newFixture(t)
	f.reviewed = false

	if _, unknown := f.check("shop", "a", "b"); unknown == "" || len(f.sent) > 0 {
		t.Errorf("Check = unknown %q after dry runs %v, want unknown after none", unknown, f.sent)
	}
}

// TestPermitted: the right is used only while the shipped policy is bound.
func TestPermitted(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyBinding)
		without string // which objects are missing
		denied  bool
		want    string
	}{
		"as shipped": {},
		"no right":   {denied: true, want: "no right"},
		"no policy":  {without: "policy", want: "reading the admission policy"},
		"no binding": {without: "binding", want: "reading the binding"},
		"audit": {change: func(_ *admissionregistrationv1.ValidatingAdmissionPolicy, b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}
		}, want: "not bound"},
		"one namespace": {change: func(_ *admissionregistrationv1.ValidatingAdmissionPolicy, b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.MatchResources = &admissionregistrationv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
		}, want: "not bound"},
		"ignores failures": {change: func(p *admissionregistrationv1.ValidatingAdmissionPolicy, _ *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.FailurePolicy = new(admissionregistrationv1.Ignore)
		}, want: "not the one"},
		"another rule": {change: func(p *admissionregistrationv1.ValidatingAdmissionPolicy, _ *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.Validations[0].Expression = "true"
		}, want: "not the one"},
		"another condition": {change: func(p *admissionregistrationv1.ValidatingAdmissionPolicy, _ *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.MatchConditions[0].Expression = "false"
		}, want: "not the one"},
		"fewer resources": {change: func(p *admissionregistrationv1.ValidatingAdmissionPolicy, _ *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.MatchConstraints.ResourceRules[0].Resources = []string{"services"}
		}, want: "not the one"},
	} {
		policy, binding, err := shippedPolicy("crane-system")
		if err != nil {
			t.Fatal(err)
		}
		if c.change != nil {
			c.change(policy, binding)
		}

		var objects []client.Object
		if c.without != "policy" {
			objects = append(objects, policy)
		}
		if c.without != "binding" {
			objects = append(objects, binding)
		}

		f := newFixture(t, objects...)
		f.allowed = !c.denied
		reason, err := Permitted(t.Context(), f.live, f.live, "crane-system")
		if err != nil || (reason == "") != (c.want == "") || !strings.Contains(reason, c.want) {
			t.Errorf("%s: Permitted = %q, %v, want %q", name, reason, err, c.want)
		}
	}
}

// TestPermitted_Unknown: an error of the API server does not say that the policy is not bound.
func TestPermitted_Unknown(t *testing.T) {
	policy, binding, err := shippedPolicy("crane-system")
	if err != nil {
		t.Fatal(err)
	}

	f := newFixture(t, policy, binding)
	for _, kind := range []client.Object{policy, binding} {
		live := interceptor.NewClient(fake.NewClientBuilder().WithObjects(policy, binding).Build(), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if reflect.TypeOf(o) == reflect.TypeOf(kind) {
					return apierrors.NewInternalError(errors.New("etcd has no leader"))
				}

				return c.Get(ctx, key, o, opts...)
			},
		})
		if reason, err := Permitted(t.Context(), f.live, live, "crane-system"); reason != "" || err == nil {
			t.Errorf("Permitted without an answer about %T = %q, %v, want an error alone", kind, reason, err)
		}
	}
}
