// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"context"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// stubChecker answers for every pod.
type stubChecker struct {
	unavailable, refused, unknown string
	checked                       []PodCheck
}

func (s *stubChecker) Unavailable() string { return s.unavailable }

func (s *stubChecker) Check(_ context.Context, c PodCheck) (refused, unknown string) {
	s.checked = append(s.checked, c)
	return s.refused, s.unknown
}

func cpu(text string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse(text)}
}

func newLimitRange(item corev1.LimitRangeItem) *corev1.LimitRange {
	return &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "limits"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}},
	}
}

func newQuota(hard, used string) *corev1.ResourceQuota {
	list := func(text string) corev1.ResourceList {
		return corev1.ResourceList{"requests.cpu": apiresource.MustParse(text)}
	}
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "team"},
		Spec:       corev1.ResourceQuotaSpec{Hard: list(hard)},
		Status:     corev1.ResourceQuotaStatus{Hard: list(hard), Used: list(used)},
	}
}

// preview previews the Recommendation of a request for the only pod of shop/web, which requests one core.
func preview(t *testing.T, checker PodChecker, recommended string, reach analysisv1alpha1.AdoptionReach, objects ...client.Object) Preview {
	t.Helper()

	previewer, rec := newFixture(t, objects...)
	previewer.Pods = checker
	rec.Status.RecommendedValue = strings.Replace(rec.Status.RecommendedValue, "500m", recommended, 1)
	rec.Spec.Adoption = &analysisv1alpha1.AdoptionSpec{Reach: reach}

	out, err := previewer.Preview(t.Context(), rec, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}

	return out
}

// TestDecide_Rules checks that a size is bounded or refused by the objects of its namespace before it is stored, with every reach.
func TestDecide_Rules(t *testing.T) {
	for _, reach := range []analysisv1alpha1.AdoptionReach{
		analysisv1alpha1.AdoptionReachInPlace, analysisv1alpha1.AdoptionReachInPlaceOrRecreate, analysisv1alpha1.AdoptionReachRecreate, analysisv1alpha1.AdoptionReachNewPods,
	} {
		for name, c := range map[string]struct {
			recommended string
			object      client.Object
			want        string // the CPU request of the stored size, empty for none
			text        string
		}{
			"minimum":        {"500m", newLimitRange(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: cpu("800m")}), "800m", "LimitRange limits"},
			"minimum of all": {"500m", newLimitRange(corev1.LimitRangeItem{Type: corev1.LimitTypePod, Min: cpu("800m")}), "800m", "LimitRange limits"},
			"at the minimum": {"500m", newLimitRange(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: cpu("1")}), "", "LimitRange limits"},
			"maximum":        {"2", newLimitRange(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: cpu("1500m")}), "1500m", "LimitRange limits"},
			"quota":          {"2", newQuota("1500m", "1"), "", "ResourceQuota team has no room: 1 of 1500m requests.cpu are used, and 1 more are needed"},
			"quota, lowered": {"500m", newQuota("1", "1"), "500m", ""},
		} {
			out := preview(t, nil, c.recommended, reach, c.object)
			state := out.Plan.State
			got := ""
			if request := state.Current.Containers["app"].CPURequest; request != nil && state.Phase != adoption.Untouched {
				got = cpuQuantity(request).String()
			}

			if text := out.Plan.Summary + "\n" + strings.Join(out.Plan.Remarks, "\n"); got != c.want || !strings.Contains(text, c.text) || strings.Contains(text, "as recommended") {
				t.Errorf("%s, reach %q: stored %q, want %q; text %q, want %q", name, reach, got, c.want, text, c.text)
			}
		}
	}
}

// TestDecide_DryRun checks that a refused size is not stored, and that one about which nothing is known is not given to new pods.
func TestDecide_DryRun(t *testing.T) {
	for name, c := range map[string]struct {
		checker        *stubChecker
		stored, given  bool
		text           string
		recommendation string
	}{
		"refused":     {&stubChecker{refused: "denied"}, false, false, "the API server refuses a pod of this size: denied", "500m"},
		"unknown":     {&stubChecker{unknown: "time-out"}, true, false, "time-out", "500m"},
		"admitted":    {&stubChecker{}, true, true, "", "500m"},
		"unavailable": {&stubChecker{unavailable: "no right", refused: "denied"}, true, true, "LimitRanges and ResourceQuotas alone decide", "500m"},
	} {
		out := preview(t, c.checker, c.recommendation, analysisv1alpha1.AdoptionReachNewPods)
		_, given := out.Plan.State.NewPodSize()
		text := out.Plan.Summary + "\n" + strings.Join(out.Plan.Remarks, "\n")
		if stored := out.Plan.State.Phase != adoption.Untouched; stored != c.stored || given != c.given || !strings.Contains(text, c.text) {
			t.Errorf("%s: stored %t, given to new pods %t, text %q, want %t, %t, %q", name, stored, given, text, c.stored, c.given, c.text)
		}

		for _, check := range c.checker.checked {
			before := check.Pod.Spec.Containers[0].Resources.Requests.Cpu().String()
			after := check.Next.Spec.Containers[0].Resources.Requests.Cpu().String()
			if before != "1" || after != "500m" || len(check.Next.OwnerReferences) != 1 {
				t.Errorf("%s: checked pods with %s and %s, owners %v, want 1, 500m and the controller", name, before, after, check.Next.OwnerReferences)
			}
		}
	}
}

// TestDecide_UnreadableQuotas: without the right to read the quotas of the namespace, new pods keep the size of their template. Without its
// LimitRanges, what pods request is unknown, and Preview returns an error.
func TestDecide_UnreadableQuotas(t *testing.T) {
	previewer, rec := newFixture(t)
	c, ok := previewer.Live.(client.WithWatch)
	if !ok {
		t.Fatalf("the client is %T, want a client.WithWatch", previewer.Live)
	}

	previewer.Live = interceptor.NewClient(c, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if _, quotas := list.(*corev1.ResourceQuotaList); quotas {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "resourcequotas"}, "", nil)
		}

		return c.List(ctx, list, opts...)
	}})

	rec.Spec.Adoption = &analysisv1alpha1.AdoptionSpec{Reach: analysisv1alpha1.AdoptionReachNewPods}
	out, err := previewer.Preview(t.Context(), rec, nil, time.Now())
	if _, given := out.Plan.State.NewPodSize(); err != nil || given || !strings.Contains(strings.Join(out.Plan.Remarks, "\n"), "forbidden") {
		t.Errorf("Preview = %+v, %v, want no size for new pods, with the reason", out.Plan, err)
	}
}

// TestDecide_RaiseInHold: the pause after a rollback does not keep a raise from being checked.
func TestDecide_RaiseInHold(t *testing.T) {
	previewer, rec := newFixture(t, newQuota("1500m", "1"))
	rec.Status.RecommendedValue = strings.Replace(rec.Status.RecommendedValue, "500m", "2", 1)

	now := time.Now()
	size := adoption.Size{Containers: map[string]rightsize.Resources{"app": {CPURequest: new(units.MilliCPU(1000)), MemoryRequest: new(units.Bytes(1 << 30))}}}
	held, err := adoption.State{
		Phase:      adoption.Held,
		PhaseSince: now.Add(-time.Hour),
		Original:   size,
		Previous:   size,
		Current:    size,
		Rollbacks:  1,
		HeldUntil:  now.Add(time.Hour),
		Reason:     "an OOM kill",
	}.Encode()
	if err != nil {
		t.Fatal(err)
	}

	c, ok := previewer.Live.(client.Client)
	if !ok {
		t.Fatalf("the reader is %T, want a client.Client", previewer.Live)
	}
	web := &appsv1.Deployment{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, web); err != nil {
		t.Fatal(err)
	}
	web.Annotations = map[string]string{analysisv1alpha1.AnnotationAdoption: held}
	if err := c.Update(t.Context(), web); err != nil {
		t.Fatal(err)
	}

	out, err := previewer.Preview(t.Context(), rec, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	if state := out.Plan.State; state.Phase != adoption.Held || !state.Current.Equal(size) {
		t.Errorf("Preview of a raise above the quota: phase %s, size %s, want %s and %s; %s", state.Phase, state.Current, adoption.Held, size, out.Plan.Summary)
	}
}

// TestChangesSize_Rollback checks that new pods get a size by a rollback unchecked only if they had it before the step.
func TestChangesSize_Rollback(t *testing.T) {
	size := func(cpu units.MilliCPU) adoption.Size {
		return adoption.Size{Containers: map[string]rightsize.Resources{"app": {CPURequest: &cpu}}}
	}
	given := size(800)
	before := adoption.State{Phase: adoption.Watching, Original: size(1000), Previous: given, Current: size(640)}
	after := adoption.State{Phase: adoption.RollingBack, Original: size(1000), Previous: given, Current: given, NewPods: &given}

	if !changesSize(before, after) {
		t.Error("changesSize of a rollback to a size that new pods did not have = false, want true")
	}

	after.PreviousGiven = true
	if changesSize(before, after) {
		t.Error("changesSize of a rollback to a size that new pods had = true, want false")
	}
}

// TestPodChanges_Reach checks that running pods count against a quota only with a reach that changes them.
func TestPodChanges_Reach(t *testing.T) {
	for reach, want := range map[adoption.Reach]int{adoption.InPlace: 1, adoption.InPlaceOrRecreate: 1, adoption.Recreate: 1, adoption.NewPods: 0} {
		spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{Requests: cpu("1")}}}}
		s := &TargetSnapshot{Pods: []corev1.Pod{{Spec: spec, Status: corev1.PodStatus{Phase: corev1.PodRunning}}}}
		in := adoption.Input{Pods: []adoption.Pod{ConvertPod(&s.Pods[0])}}
		size := adoption.Size{Containers: map[string]rightsize.Resources{"app": {CPURequest: new(units.MilliCPU(1200))}}}

		if got := s.podChanges(in, adoption.State{Reach: reach, Current: size}); len(got) != want {
			t.Errorf("reach %q: podChanges returned %d changes, want %d", reach, len(got), want)
		}
	}
}
