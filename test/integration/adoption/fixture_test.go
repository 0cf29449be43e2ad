// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/test/integration/harness"
)

const (
	// waitTimeout bounds each wait. On an idle machine a wait takes seconds.
	waitTimeout = 2 * time.Minute
	// watchPeriod is the time for which craned watches a step.
	watchPeriod = 3 * time.Second
)

// fastSettings returns flags with short periods for craned and crane adopt.
func fastSettings() []string {
	return []string{
		"--adoption-watch=" + watchPeriod.String(), "--adoption-look-interval=300ms", "--adoption-settle=4s", "--adoption-ready-grace=20s",
		"--adoption-pods-at-once=0.5", "--adoption-step=0.3", "--adoption-max-per-namespace=10", "--adoption-cool-down=1h",
		"--adoption-breaker-least=100",
	}
}

// startCraned runs craned with adoption and the OOM recorder until the test ends.
func startCraned(t *testing.T, flags ...string) *harness.Craned {
	t.Helper()
	flags = slices.Concat([]string{"--controllers=adoption,oom"}, fastSettings(), flags)
	return harness.StartCraned(t, waitTimeout, control, binary, harness.NoPrometheus, flags...)
}

// fixture is a namespace of one test.
type fixture struct{ *harness.Namespace }

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return &fixture{harness.NewNamespace(t, admin, "adopt-", waitTimeout)}
}

// deployment reads a Deployment.
func (f *fixture) deployment(ctx context.Context, name string) (*appsv1.Deployment, error) {
	d := &appsv1.Deployment{}
	return d, f.Get(ctx, f.Key(name), d)
}

// checkRequests checks that each pod has these requests in its spec and that its node reports the CPU request as allocated.
func checkRequests(cpu, memory string) func([]corev1.Pod) error {
	return func(pods []corev1.Pod) error {
		for i := range pods {
			p := &pods[i]
			got := p.Spec.Containers[0].Resources.Requests
			if want := harness.ResourceList(cpu, memory); got.Cpu().Cmp(*want.Cpu()) != 0 || got.Memory().Cmp(*want.Memory()) != 0 {
				return fmt.Errorf("pod %s requests %s and %s", p.Name, got.Cpu(), got.Memory())
			}

			s := p.Status.ContainerStatuses
			if len(s) == 0 || s[0].Resources == nil || s[0].Resources.Requests.Cpu().Cmp(*got.Cpu()) != 0 {
				return fmt.Errorf("pod %s: its node does not report %s as allocated", p.Name, got.Cpu())
			}
		}

		return nil
	}
}

// checkGeneration checks the generation of each pod, which counts the changes of its spec.
func checkGeneration(t *testing.T, pods []corev1.Pod, generation int64) {
	t.Helper()

	for _, p := range pods {
		if p.Generation != generation {
			t.Errorf("pod %s has generation %d, want %d", p.Name, p.Generation, generation)
		}
	}
}

// checkUntouched checks that the pods of a Deployment are unchanged and that no adoption of it has started.
func (f *fixture) checkUntouched(name string) {
	f.T.Helper()

	pods := f.Pods(name)
	if len(pods) == 0 {
		f.T.Fatalf("%s has no pods, want one or more", name)
	}

	checkGeneration(f.T, pods, 1)
	if s := f.state(name); s.Phase != adoption.Untouched {
		f.T.Errorf("%s has adoption state %+v, want none", name, s)
	}
}

// managedBy reports whether a field manager owns fields of an object.
func managedBy(o client.Object, manager string) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == manager })
}

// recommend creates a Recommendation of requests for a Deployment, with its name.
func (f *fixture) recommend(target string, adoptionType analysisv1alpha1.AdoptionType, cpu, memory string) *analysisv1alpha1.Recommendation {
	f.T.Helper()
	return f.recommendTarget(f.deploymentRef(target), target, adoptionType, cpu, memory)
}

// recommendTarget creates a Recommendation of requests for a target of any kind.
func (f *fixture) recommendTarget(
	target corev1.ObjectReference, name string, adoptionType analysisv1alpha1.AdoptionType, cpu, memory string,
) *analysisv1alpha1.Recommendation {
	f.T.Helper()

	rec := f.createRecommendation(target, name, analysisv1alpha1.AnalysisTypeResource, adoptionType)
	setRequests(f.T, rec, cpu, memory)
	return rec
}

// recommendReplicas creates a Recommendation of replicas for a Deployment, with adoption type Auto.
func (f *fixture) recommendReplicas(target, name string, replicas int) *analysisv1alpha1.Recommendation {
	f.T.Helper()

	rec := f.createRecommendation(f.deploymentRef(target), name, analysisv1alpha1.AnalysisTypeReplicas, auto)
	setReplicas(f.T, rec, replicas)
	return rec
}

func (f *fixture) createRecommendation(
	target corev1.ObjectReference, name string, kind analysisv1alpha1.AnalysisType, adoptionType analysisv1alpha1.AdoptionType,
) *analysisv1alpha1.Recommendation {
	f.T.Helper()

	rec := &analysisv1alpha1.Recommendation{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Name, Name: name},
		Spec:       analysisv1alpha1.RecommendationSpec{TargetRef: target, Type: kind, AdoptionType: adoptionType},
	}

	if err := f.Create(f.T.Context(), rec); err != nil {
		f.T.Fatal(err)
	}

	return rec
}

func (f *fixture) deploymentRef(name string) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: f.Name, Name: name}
}

// setRequests writes recommended requests of the container app.
func setRequests(t *testing.T, rec *analysisv1alpha1.Recommendation, cpu, memory string) {
	t.Helper()
	setStatus(t, rec, "recommendedValue",
		fmt.Sprintf("resourceRequest:\n  containers:\n  - containerName: app\n    target:\n      cpu: %s\n      memory: %s\n", cpu, memory))
}

// setReplicas writes recommended replicas.
func setReplicas(t *testing.T, rec *analysisv1alpha1.Recommendation, replicas int) {
	t.Helper()
	setStatus(t, rec, "recommendedValue", fmt.Sprintf("replicasRecommendation:\n  replicas: %d\n", replicas))
}

// setStatus writes a text field of a Recommendation's status.
func setStatus(t *testing.T, rec *analysisv1alpha1.Recommendation, field, value string) {
	t.Helper()

	patch, err := json.Marshal(map[string]any{"status": map[string]any{field: value}})
	if err != nil {
		t.Fatal(err)
	}

	if err := admin.Status().Patch(t.Context(), rec, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
}

// setAdoptionType writes the adoption type of a Recommendation. Only Auto lets craned change the target.
func setAdoptionType(t *testing.T, rec *analysisv1alpha1.Recommendation, adoptionType analysisv1alpha1.AdoptionType) {
	t.Helper()

	patch := fmt.Appendf(nil, `{"spec":{"adoptionType":%q}}`, adoptionType)
	if err := admin.Patch(t.Context(), rec, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
}

// awaitRecommendation waits until a check of a Recommendation passes.
func (f *fixture) awaitRecommendation(name, what string, check func(*analysisv1alpha1.Recommendation) error) {
	f.T.Helper()
	harness.Await(f.Namespace, &analysisv1alpha1.Recommendation{}, name, what, check)
}

// awaitPhase waits until the adoption of a Recommendation is in a phase.
func (f *fixture) awaitPhase(name string, want adoption.Phase) {
	f.T.Helper()

	f.awaitRecommendation(name, "is in phase "+string(want), func(rec *analysisv1alpha1.Recommendation) error {
		if rec.Status.Adoption == nil || rec.Status.Adoption.Phase != string(want) {
			return fmt.Errorf("adoption %+v", rec.Status.Adoption)
		}

		return nil
	})
}

// awaitMessage waits until the message or a remark of the adoption status contains a text.
func (f *fixture) awaitMessage(name, want string) {
	f.T.Helper()

	f.awaitRecommendation(name, "has message "+want, func(rec *analysisv1alpha1.Recommendation) error {
		a := rec.Status.Adoption
		if a == nil || !strings.Contains(a.Message+"\n"+strings.Join(a.Remarks, "\n"), want) {
			return fmt.Errorf("adoption %+v", a)
		}

		return nil
	})
}

// awaitNotAdopted waits until condition Adopted is False with a reason.
func (f *fixture) awaitNotAdopted(name, reason string) {
	f.T.Helper()

	f.awaitRecommendation(name, "is not adopted with reason "+reason, func(rec *analysisv1alpha1.Recommendation) error {
		c := meta.FindStatusCondition(rec.Status.Conditions, analysisv1alpha1.ConditionAdopted)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != reason {
			return fmt.Errorf("condition %+v", c)
		}

		return nil
	})
}

// readState returns the adoption state in the annotation of a Deployment.
func (f *fixture) readState(ctx context.Context, name string) (adoption.State, error) {
	d, err := f.deployment(ctx, name)
	if err != nil {
		return adoption.State{}, err
	}

	return adoption.ParseState(d.Annotations[analysisv1alpha1.AnnotationAdoption])
}

// state is readState in a test that fails on an error.
func (f *fixture) state(name string) adoption.State {
	f.T.Helper()

	s, err := f.readState(f.T.Context(), name)
	if err != nil {
		f.T.Fatal(err)
	}

	return s
}

// awaitFirstStep waits until the state of a Deployment contains a step.
func (f *fixture) awaitFirstStep(name string) {
	f.T.Helper()

	f.Eventually("Deployment "+name+" has a first step", func(ctx context.Context) error {
		s, err := f.readState(ctx, name)
		if err == nil && s.Steps == 0 {
			err = fmt.Errorf("state %+v", s)
		}

		return err
	})
}

// awaitStateRemoved waits until Deployment web has no adoption state.
func (f *fixture) awaitStateRemoved() {
	f.T.Helper()

	f.Eventually("the adoption state is removed", func(ctx context.Context) error {
		d, err := f.deployment(ctx, "web")
		if err != nil {
			return err
		}

		if text, exists := d.Annotations[analysisv1alpha1.AnnotationAdoption]; exists {
			return errors.New(text)
		}

		return nil
	})
}

// countEvents returns the number of events about a Deployment with a reason.
func (f *fixture) countEvents(ctx context.Context, name, reason string) (int, error) {
	events, err := harness.Events(ctx, f, f.Name, "Deployment", name, reason)
	return len(events), err
}

// awaitEvent waits for an event about a Deployment.
func (f *fixture) awaitEvent(name, reason string) {
	f.T.Helper()

	f.Eventually("event "+reason+" about "+name, func(ctx context.Context) error {
		n, err := f.countEvents(ctx, name, reason)
		if err == nil && n == 0 {
			err = errors.New("no such event")
		}

		return err
	})
}

// patchAsOwner applies a strategic merge patch with the field manager of the object's owner.
func patchAsOwner(t *testing.T, o client.Object, text string) {
	t.Helper()

	if err := admin.Patch(t.Context(), o, client.RawPatch(types.StrategicMergePatchType, []byte(text)), client.FieldOwner("owner")); err != nil {
		t.Fatal(err)
	}
}

func containsAll(text string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}

	return true
}
