// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	model "crane.io/crane/pkg/elastic"
)

// account is the annotation with what a node offers and why.
type account struct {
	At          time.Time
	Ended       bool
	CPU, Memory terms
}

// terms are the values of a resource as quantities.
type terms struct {
	Advertised, Was, Phase, Offer, Allocatable, Reserve, Need, From, Forecast, Use, Margin, Stable, Allocated, Deficit, Problem string

	StableSince *time.Time
}

// offered is the state of a node at a time.
type offered struct {
	account     account
	cpu, memory shown
}

// shown is a resource of a node in millicores or bytes.
type shown struct {
	capacity, allocatable int64
	absent                bool
	terms                 terms
	// unit is the granularity of the offer.
	unit int64
}

// amount parses a quantity in the unit of the resource.
func (s *shown) amount(quantity string) int64 {
	q, err := resource.ParseQuantity(quantity)
	if err != nil {
		return 0
	}

	if s.unit > 1 {
		return q.MilliValue()
	}

	return q.Value()
}

func offeredBy(node *corev1.Node) (offered, error) {
	out := offered{cpu: shown{unit: 1000}, memory: shown{unit: 1}}
	text := node.Annotations[ensurancev1alpha1.AnnotationElasticResources]
	if text == "" {
		return out, errors.New("the node has no account of what it offers")
	}

	if err := json.Unmarshal([]byte(text), &out.account); err != nil {
		return out, err
	}

	out.cpu.terms, out.memory.terms = out.account.CPU, out.account.Memory
	for name, s := range map[corev1.ResourceName]*shown{ensurancev1alpha1.ResourceReclaimedCPU: &out.cpu, ensurancev1alpha1.ResourceReclaimedMemory: &out.memory} {
		capacity, some := node.Status.Capacity[name]
		allocatable, more := node.Status.Allocatable[name]
		s.absent = !some && !more
		s.capacity, s.allocatable = s.amount(capacity.String()), s.amount(allocatable.String())
	}

	return out, nil
}

// wrong returns where the node's status contradicts its annotation, or the values do not add up.
func (o *offered) wrong() error {
	return errors.Join(o.cpu.wrong("cpu", o.account.Ended), o.memory.wrong("memory", o.account.Ended))
}

func (s *shown) wrong(name string, ended bool) error {
	t := &s.terms
	advertised := s.amount(t.Advertised)
	allocated := s.amount(t.Allocated)
	offer := s.amount(t.Offer)
	allocatable := s.amount(t.Allocatable)
	need := s.amount(t.Need)

	margin := s.amount(t.Margin)
	var errs []error
	check := func(ok bool, what string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: %s: shows %d of %d, %+v", name, what, s.allocatable, s.capacity, *t))
		}
	}

	check(s.capacity == s.allocatable, "capacity and allocatable differ")
	// A kubelet that registers its node again sets both to 0.
	check(s.allocatable == advertised || s.allocatable == 0, "it does not show what it says")
	check(advertised >= allocated || ended, "less than what pods hold")

	if t.Problem != "" || t.Offer == "" || ended {
		return errors.Join(errs...)
	}

	check(need == max(s.amount(t.Use), s.amount(t.Forecast)), "the need is neither what is used nor what is expected")
	check(margin >= need/10 && margin <= need/10+1, "the margin is no tenth of the need")
	check(offer == max(allocatable-s.amount(t.Reserve)-need-margin, 0)/s.unit*s.unit, "the terms do not add up to the offer")
	check(advertised <= max(offer+s.material(), allocated), "more than the offer, though pods do not hold it")
	check(s.amount(t.Deficit) == max(allocated-offer, 0), "the deficit is not what pods hold above the offer")

	return errors.Join(errs...)
}

// material returns the least change that is written.
func (s *shown) material() int64 { return max(s.amount(s.terms.Allocatable)/50+1, s.unit) }

// rise returns what is wrong with a rise of the advertised amount. Only a starting agent continues from the previous one.
func (s *shown) rise(before *shown, at time.Time, begins bool) error {
	now := s.amount(s.terms.Advertised)
	then := before.amount(before.terms.Advertised)
	if now <= then || now <= s.amount(s.terms.Allocated) || begins {
		return nil
	}

	policy := model.Memory()
	most := int64(float64(policy.Growth) * float64(s.amount(s.terms.Allocatable)))
	switch since := s.terms.StableSince; {
	case since == nil || at.Sub(*since) < policy.Stable:
		return fmt.Errorf("it rises from %d though the offer has not been higher for %s: %+v", then, policy.Stable, s.terms)
	case now-then > most+s.unit:
		return fmt.Errorf("it rises from %d by more than %d at once: %+v", then, most, s.terms)
	}

	return nil
}

// trace is the sequence of a node's states.
type trace struct {
	mu   sync.Mutex
	all  []offered
	errs []error
}

// record starts a trace; each state is checked, and the end of the test reports errors.
func (f fixture) record(t testing.TB) *trace {
	t.Helper()

	// Longer than any test, otherwise it ends at a random time.
	w, err := f.Client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + f.Name(), TimeoutSeconds: new(int64(3600))})
	if err != nil {
		t.Fatal(err)
	}

	tr := &trace{}
	done := make(chan struct{})
	go func() {
		defer close(done)

		for event := range w.ResultChan() {
			if node, ok := event.Object.(*corev1.Node); ok && event.Type != watch.Deleted {
				tr.add(node)
			}
		}
	}()

	t.Cleanup(func() {
		w.Stop()
		<-done

		if len(tr.all) == 0 {
			t.Error("the watch saw no state of the node, want at least one")
		}

		for _, err := range tr.errs {
			t.Error(err)
		}
	})

	return tr
}

func (tr *trace) add(node *corev1.Node) {
	now, err := offeredBy(node)
	tr.mu.Lock()
	defer tr.mu.Unlock()

	if err != nil {
		return // There is no agent yet.
	}

	if n := len(tr.all); n > 0 {
		before := &tr.all[n-1]
		err = errors.Join(
			now.cpu.rise(&before.cpu, now.account.At, tr.begins(func(o *offered) *terms { return &o.cpu.terms })),
			now.memory.rise(&before.memory, now.account.At, tr.begins(func(o *offered) *terms { return &o.memory.terms })),
		)
	}

	if err := errors.Join(err, now.wrong()); err != nil {
		tr.errs = append(tr.errs, err)
	}
	tr.all = append(tr.all, now)
}

// begins reports whether an agent started after another has ended and does not know all of a resource yet.
func (tr *trace) begins(of func(*offered) *terms) bool {
	for _, o := range slices.Backward(tr.all) {
		switch {
		case o.account.Ended:
			return true
		case of(&o).Problem == "":
			return false
		}
	}

	return false
}

// last returns the last state, or an error if there is none.
func (tr *trace) last() (offered, error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()

	if len(tr.all) == 0 {
		return offered{}, errors.New("the node has no account of what it offers")
	}

	return tr.all[len(tr.all)-1], nil
}

// since returns the states from the n-th on, len their number.
func (tr *trace) since(n int) []offered {
	tr.mu.Lock()
	defer tr.mu.Unlock()

	return slices.Clone(tr.all[n:])
}

func (tr *trace) len() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()

	return len(tr.all)
}

// awaitOffer waits until the node's state is as expected.
func (f fixture) awaitOffer(t testing.TB, tr *trace, what string, ok func(offered) bool) (found offered) {
	t.Helper()

	f.Eventually(t, what, func() (err error) {
		if found, err = tr.last(); err == nil && !ok(found) {
			err = fmt.Errorf("it shows %+v", found)
		}

		return err
	})

	return found
}

// leaveBehind sets the state that a stopped agent leaves: a core and some memory requested by pods, and all memory offered before, so that
// nothing has to grow for minutes.
func (f fixture) leaveBehind(t testing.TB, memory string) {
	t.Helper()

	all := f.object(t).Status.Allocatable[corev1.ResourceMemory]
	text, err := json.Marshal(map[string]any{
		"at": time.Now().UTC(), "ended": true,
		"cpu":    map[string]string{"advertised": "1", "was": "1", "allocated": "1"},
		"memory": map[string]string{"advertised": memory, "was": all.String(), "allocated": memory},
	})
	if err != nil {
		t.Fatal(err)
	}

	f.show(t, "1", memory, map[string]string{ensurancev1alpha1.AnnotationElasticResources: string(text)})
}

// showNothing sets the resources to 0, as a starting kubelet that registers its node again does.
func (f fixture) showNothing(t testing.TB) {
	t.Helper()
	f.show(t, "0", "0", map[string]string{})
}

// show writes the node's state.
func (f fixture) show(t testing.TB, cpu, memory string, annotations map[string]string) {
	t.Helper()

	list := map[corev1.ResourceName]string{ensurancev1alpha1.ResourceReclaimedCPU: cpu, ensurancev1alpha1.ResourceReclaimedMemory: memory}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": annotations}, "status": map[string]any{"capacity": list, "allocatable": list},
	})
	if err != nil {
		t.Fatal(err)
	}

	if _, err := f.Client.CoreV1().Nodes().Patch(t.Context(), f.Name(), types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

// object returns the Node.
func (f fixture) object(t testing.TB) *corev1.Node {
	t.Helper()

	node, err := f.Client.CoreV1().Nodes().Get(t.Context(), f.Name(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	return node
}

// metric returns a series of the agent.
func (d *deployment) metric(ctx context.Context, series string) (float64, error) {
	text, err := d.scrape(ctx, d.pod)
	if err != nil {
		return 0, err
	}

	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}

	return 0, fmt.Errorf("no series %s", series)
}
