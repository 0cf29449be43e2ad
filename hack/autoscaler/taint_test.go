// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpenter "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	cloud "sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	testv1alpha1 "sigs.k8s.io/karpenter/pkg/test/v1alpha1"

	"crane.io/crane/internal/nodeload/controller"
)

// TestKarpenterAddsNodeForLoadTaint simulates a pod that plugin Dynamic rejected, because the only node is too loaded.
// By requests the node is nearly empty. Karpenter adds a node only if the loaded one has the taint that craned sets.
func TestKarpenterAddsNodeForLoadTaint(t *testing.T) {
	for name, c := range map[string]struct {
		taints         []corev1.Taint
		onOld, onAdded int
	}{
		"without the taint": {onOld: 1},
		"with the taint":    {taints: []corev1.Taint{controller.LoadTaint()}, onAdded: 1},
	} {
		t.Run(name, func(t *testing.T) {
			results := simulate(t, loadedNode(c.taints), rejectedPod())
			if len(results.PodErrors) > 0 {
				t.Fatalf("Karpenter places no pod, want a new node: %v", results.PodErrors)
			}

			onOld, onAdded := 0, 0
			for _, n := range results.ExistingNodes {
				onOld += len(n.Pods)
			}

			for _, n := range results.NewNodeClaims {
				onAdded += len(n.Pods)
			}

			if onOld != c.onOld || onAdded != c.onAdded || len(results.NewNodeClaims) != c.onAdded {
				t.Errorf("%d pods on the loaded node, %d on %d new nodes; want %d and %d", onOld, onAdded, len(results.NewNodeClaims), c.onOld, c.onAdded)
			}
		})
	}
}

// simulate returns where Karpenter's provisioner would place the pending pods of a cluster with one node pool.
func simulate(t *testing.T, node *corev1.Node, pod *corev1.Pod) scheduling.Results {
	t.Helper()

	ctx := options.ToContext(t.Context(), &options.Options{
		CPURequests: 1000, PreferencePolicy: options.PreferencePolicyRespect, MinValuesPolicy: options.MinValuesPolicyStrict, IgnoreDRARequests: true,
	})
	pool := &karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "pool", UID: "pool"}}
	pool.Spec.Template.Spec.NodeClassRef = &karpenter.NodeClassReference{Group: testv1alpha1.Group, Kind: "TestNodeClass", Name: "default"}
	pool.StatusConditions().SetTrue(karpenter.ConditionTypeValidationSucceeded)
	pool.StatusConditions().SetTrue(karpenter.ConditionTypeNodeClassReady)

	provider := cloud.NewCloudProvider()
	provider.InstanceTypes = []*cloudprovider.InstanceType{cloud.NewInstanceType("four-cores", cloud.WithResources(resources("4", "8Gi")))}
	kube := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(pool, node, pod).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
			p, _ := o.(*corev1.Pod)
			return []string{p.Spec.NodeName}
		}).Build()

	cluster := state.NewCluster(clock.RealClock{}, kube, provider)
	if err := cluster.UpdateNode(ctx, node); err != nil {
		t.Fatal(err)
	}

	provisioner := provisioning.NewProvisioner(kube, events.NewRecorder(&record.FakeRecorder{}), provider, cluster, clock.RealClock{}, nil, nil)
	results, err := provisioner.Schedule(ctx)
	if err != nil {
		t.Fatal(err)
	}

	return results
}

func loadedNode(taints []corev1.Taint) *corev1.Node {
	has := resources("8", "16Gi")
	has[corev1.ResourcePods] = resource.MustParse("110")
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "loaded", Labels: map[string]string{
			corev1.LabelHostname: "loaded", corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
		}},
		Spec: corev1.NodeSpec{ProviderID: "fake://loaded", Taints: taints},
		Status: corev1.NodeStatus{
			Capacity: has, Allocatable: has, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

// rejectedPod has the condition that a scheduler sets for a pod that fits on no node.
func rejectedPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: "web-0"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: resources("1", "1Gi")}}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable},
		}},
	}
}

func resources(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}
