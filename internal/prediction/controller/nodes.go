// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/kube/objectname"
)

// NodeReconciler keeps one TimeSeriesPrediction for each node that a ClusterNodePrediction selects.
type NodeReconciler struct {
	Client client.Client
	// Live confirms that an object missing from the cache does not exist before it is created.
	Live  client.Reader
	Clock clock.PassiveClock
	// SystemNamespace is Crane's own namespace, in which an empty nodeSelector selects all nodes, and the number of nodes is not bounded.
	SystemNamespace string
}

// indexOwner indexes TimeSeriesPredictions by the UID of their ClusterNodePrediction.
const indexOwner = "crane.io/cluster-node-prediction"

// refusedRetry is the retry interval for objects that are rejected or owned by another object.
const refusedRetry = 5 * time.Minute

// maxTenantNodes is the maximum number of nodes of an object outside Crane's own namespace. Without it, a selector that every node matches, such as
// kubernetes.io/os=linux, creates as many objects as the cluster has nodes, and changes all of them with one request of a tenant.
const maxTenantNodes = 20

// listedFailures is the maximum number of failed objects named in a condition.
const listedFailures = 5

// Reconcile implements reconcile.Reconciler.
func (r *NodeReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cnp := &predictionv1alpha1.ClusterNodePrediction{}
	if err := r.Client.Get(ctx, req.NamespacedName, cnp); err != nil {
		// Garbage collection deletes its TimeSeriesPredictions.
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}

	if cnp.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}

	nodes, existing, err := r.observe(ctx, cnp)
	if err != nil {
		return ctrl.Result{}, err
	}

	p := planNodes(cnp, nodes, r.maxNodes(cnp), existing)
	failures := r.act(ctx, cnp, p)
	if err := r.report(ctx, cnp, p, failures); err != nil {
		return ctrl.Result{}, err
	}

	if err := retriableErrors(failures); err != nil || len(failures) == 0 {
		return ctrl.Result{}, err
	}

	return ctrl.Result{RequeueAfter: refusedRetry}, nil
}

// observe lists the selected nodes and the existing TimeSeriesPredictions.
func (r *NodeReconciler) observe(
	ctx context.Context, cnp *predictionv1alpha1.ClusterNodePrediction,
) ([]string, []predictionv1alpha1.TimeSeriesPrediction, error) {
	var names []string
	if r.selectsNone(cnp) {
		list, err := r.listOwned(ctx, cnp)
		return nil, list, err
	}

	var nodes metav1.PartialObjectMetadataList
	nodes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))

	if err := r.Client.List(ctx, &nodes, client.MatchingLabels(cnp.Spec.NodeSelector)); err != nil {
		return nil, nil, fmt.Errorf("listing the nodes of %s/%s: %w", cnp.Namespace, cnp.Name, err)
	}

	for i := range nodes.Items {
		if nodes.Items[i].DeletionTimestamp == nil {
			names = append(names, nodes.Items[i].Name)
		}
	}

	slices.Sort(names)
	list, err := r.listOwned(ctx, cnp)
	return names, list, err
}

// selectsNone reports whether the selector is empty outside Crane's own namespace.
func (r *NodeReconciler) selectsNone(cnp *predictionv1alpha1.ClusterNodePrediction) bool {
	return len(cnp.Spec.NodeSelector) == 0 && cnp.Namespace != r.SystemNamespace
}

func (r *NodeReconciler) listOwned(
	ctx context.Context, cnp *predictionv1alpha1.ClusterNodePrediction,
) ([]predictionv1alpha1.TimeSeriesPrediction, error) {
	var list predictionv1alpha1.TimeSeriesPredictionList
	if err := r.Client.List(ctx, &list, client.InNamespace(cnp.Namespace), client.MatchingFields{indexOwner: string(cnp.UID)}); err != nil {
		return nil, fmt.Errorf("listing the predictions of %s/%s: %w", cnp.Namespace, cnp.Name, err)
	}

	return list.Items, nil
}

// maxNodes returns the maximum number of nodes of an object.
func (r *NodeReconciler) maxNodes(cnp *predictionv1alpha1.ClusterNodePrediction) int {
	if cnp.Namespace == r.SystemNamespace {
		return math.MaxInt
	}

	return maxTenantNodes
}

// nodePlan lists the changes for a ClusterNodePrediction.
type nodePlan struct {
	// desired is the number of nodes that match.
	desired int
	create  []*predictionv1alpha1.TimeSeriesPrediction
	// update holds pairs of current and desired objects.
	update    [][2]*predictionv1alpha1.TimeSeriesPrediction
	remove    []*predictionv1alpha1.TimeSeriesPrediction
	unchanged int
}

// planNodes compares the first nodes, at most limit, with the existing objects. Without a template all objects are deleted.
func planNodes(cnp *predictionv1alpha1.ClusterNodePrediction, nodes []string, limit int, existing []predictionv1alpha1.TimeSeriesPrediction) nodePlan {
	p := nodePlan{desired: len(nodes)}
	byName := map[string]*predictionv1alpha1.TimeSeriesPrediction{}
	for i := range existing {
		byName[existing[i].Name] = &existing[i]
	}

	if cnp.Spec.Template != nil {
		for _, node := range nodes[:min(len(nodes), limit)] {
			want := newPrediction(cnp, node)
			have := byName[want.Name]
			delete(byName, want.Name)

			switch {
			case have == nil:
				p.create = append(p.create, want)
			case !equality.Semantic.DeepEqual(have.Spec, want.Spec):
				changed := have.DeepCopy()
				changed.Spec = want.Spec
				p.update = append(p.update, [2]*predictionv1alpha1.TimeSeriesPrediction{have, changed})
			default:
				p.unchanged++
			}
		}
	}

	// What is left belongs to nodes that are gone or no longer selected.
	for _, obsolete := range byName {
		p.remove = append(p.remove, obsolete)
	}

	slices.SortFunc(p.remove, func(a, b *predictionv1alpha1.TimeSeriesPrediction) int { return cmp.Compare(a.Name, b.Name) })
	return p
}

// newPrediction returns the TimeSeriesPrediction of a node.
func newPrediction(cnp *predictionv1alpha1.ClusterNodePrediction, node string) *predictionv1alpha1.TimeSeriesPrediction {
	controller := true
	block := false
	tsp := &predictionv1alpha1.TimeSeriesPrediction{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cnp.Namespace, Name: predictionName(cnp.Name, node),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: predictionv1alpha1.GroupVersion.String(), Kind: "ClusterNodePrediction",
				Name: cnp.Name, UID: cnp.UID, Controller: &controller, BlockOwnerDeletion: &block,
			}},
		},
		Spec: *cnp.Spec.Template.Spec.DeepCopy(),
	}

	tsp.Spec.TargetRef = &corev1.ObjectReference{APIVersion: "v1", Kind: kindNode, Name: node}
	return tsp
}

// predictionName returns <cnp>-<node>, as in gocrane. Longer names are truncated and made unique by a hash.
func predictionName(cnp, node string) string { return objectname.Shorten(cnp + "-" + node) }

// act executes the plan; a failure of one object does not stop the others.
func (r *NodeReconciler) act(ctx context.Context, cnp *predictionv1alpha1.ClusterNodePrediction, p nodePlan) []error {
	var failures []error
	note := func(what string, tsp *predictionv1alpha1.TimeSeriesPrediction, err error) {
		if err != nil {
			failures = append(failures, fmt.Errorf("%s %s: %w", what, tsp.Name, err))
		}
	}

	for _, tsp := range p.create {
		note("creating", tsp, r.create(ctx, cnp, tsp))
	}

	for _, pair := range p.update {
		note("updating", pair[1], r.Client.Patch(ctx, pair[1], client.MergeFromWithOptions(pair[0], client.MergeFromWithOptimisticLock{})))
	}

	for _, tsp := range p.remove {
		note("deleting", tsp, client.IgnoreNotFound(r.Client.Delete(ctx, tsp, client.Preconditions{UID: &tsp.UID})))
	}

	return failures
}

// errNameTaken means that an object of the name has another owner.
var errNameTaken = errors.New("an object of this name exists and does not belong to this ClusterNodePrediction")

// create creates an object unless the cache has one of its name. After a ClusterNodePrediction is replaced, garbage collection deletes the objects of
// the old one after some time, and each deletion reconciles the new one: attempts for all missing objects each time would load the API server.
func (r *NodeReconciler) create(ctx context.Context, cnp *predictionv1alpha1.ClusterNodePrediction, tsp *predictionv1alpha1.TimeSeriesPrediction) error {
	cached := &predictionv1alpha1.TimeSeriesPrediction{}
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(tsp), cached)
	if err == nil {
		return checkOwner(cached, cnp)
	}
	if !apierrors.IsNotFound(err) {
		return err
	}

	if err = r.Client.Create(ctx, tsp); !apierrors.IsAlreadyExists(err) {
		return err
	}

	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(predictionv1alpha1.GroupVersion.WithKind("TimeSeriesPrediction"))

	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(tsp), found); err != nil {
		return err
	}

	return checkOwner(found, cnp) // The cache was stale.
}

func checkOwner(found client.Object, cnp *predictionv1alpha1.ClusterNodePrediction) error {
	if metav1.IsControlledBy(found, cnp) {
		return nil
	}

	return errNameTaken
}

// report writes the counts and the condition.
func (r *NodeReconciler) report(ctx context.Context, cnp *predictionv1alpha1.ClusterNodePrediction, p nodePlan, failures []error) error {
	changed := cnp.DeepCopy()
	missing := 0
	for _, err := range failures {
		if strings.HasPrefix(err.Error(), "creating") {
			missing++
		}
	}

	// Only failed creations reduce the count: an object that could not be updated or deleted exists.
	changed.Status.DesiredNumberCreated = p.desired
	changed.Status.CurrentNumberCreated = p.unchanged + len(p.update) + len(p.create) - missing
	c := metav1.Condition{
		Type:               predictionv1alpha1.ConditionReady,
		Status:             metav1.ConditionTrue,
		Reason:             predictionv1alpha1.ReasonAllCreated,
		ObservedGeneration: cnp.Generation,
		LastTransitionTime: metav1.NewTime(r.Clock.Now()),
	}

	switch {
	case cnp.Spec.Template == nil:
		c.Status = metav1.ConditionFalse
		c.Reason = predictionv1alpha1.ReasonNoTemplate
		c.Message = "spec.template is not set: no TimeSeriesPrediction is created"

	case r.selectsNone(cnp):
		c.Status = metav1.ConditionFalse
		c.Reason = predictionv1alpha1.ReasonNoNodeSelector
		c.Message = "spec.nodeSelector is empty: set labels, or move the object to Crane's own namespace to select all nodes"

	case len(failures) > 0:
		var texts []string
		for _, err := range failures[:min(len(failures), listedFailures)] {
			texts = append(texts, errorText(err))
		}

		c.Status = metav1.ConditionFalse
		c.Reason = predictionv1alpha1.ReasonNotCreated
		c.Message = sentence(fmt.Sprintf("%d of %d objects: %s", len(failures), p.desired, strings.Join(texts, "; ")))

	case p.desired > r.maxNodes(cnp):
		c.Status = metav1.ConditionFalse
		c.Reason = predictionv1alpha1.ReasonTooManyNodes
		c.Message = fmt.Sprintf("spec.nodeSelector matches %d nodes, of which the first %d by name have a TimeSeriesPrediction: "+
			"add labels to it, or move the object to Crane's own namespace", p.desired, r.maxNodes(cnp))
	}

	meta.SetStatusCondition(&changed.Status.Conditions, c)
	if equality.Semantic.DeepEqual(cnp.Status, changed.Status) {
		return nil
	}

	if err := client.IgnoreNotFound(r.Client.Status().Patch(ctx, changed, client.MergeFromWithOptions(cnp, client.MergeFromWithOptimisticLock{}))); err != nil {
		return fmt.Errorf("writing the status of the cluster node prediction %s/%s: %w", cnp.Namespace, cnp.Name, err)
	}

	return nil
}

// retriableErrors joins the errors that a prompt retry may resolve. A taken name and a rejected template need a
// change by a user, and no event reports a freed name, so these are retried after refusedRetry.
func retriableErrors(failures []error) error {
	var errs []error
	for _, err := range failures {
		if !errors.Is(err, errNameTaken) && !apierrors.IsInvalid(err) {
			errs = append(errs, err)
		}
	}

	return errors.Join(errs...)
}
