// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package effectiveresources

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	api "k8s.io/kubernetes/pkg/apis/core"
	apiv1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
)

// TestNewPodAgainstKubernetes compares NewPod with the defaulting and the LimitRange admission of Kubernetes on random templates.
func TestNewPodAgainstKubernetes(t *testing.T) {
	const cases = 2000
	random := rand.New(rand.NewPCG(1, 2))
	for i := range cases {
		template := randomSpec(random)
		ranges := randomRanges(random)

		got := resourcesOf(NewPod(template, ranges))
		want := resourcesOf(admitted(t, template, ranges))
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b apiresource.Quantity) bool { return a.Cmp(b) == 0 })); diff != "" {
			t.Fatalf("case %d: NewPod(%+v, %+v), want as Kubernetes admits it (-want +got):\n%s", i, resourcesOf(template), ranges, diff)
		}
	}
}

// admitted returns the spec of a pod of a template after the defaulting and the LimitRange admission of Kubernetes.
func admitted(t *testing.T, template *corev1.PodSpec, ranges []corev1.LimitRange) *corev1.PodSpec {
	t.Helper()

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: *template.DeepCopy()}
	apiv1.SetObjectDefaults_Pod(pod)
	var internal api.Pod
	if err := apiv1.Convert_v1_Pod_To_core_Pod(pod, &internal, nil); err != nil {
		t.Fatal(err)
	}

	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	indexer := factory.Core().V1().LimitRanges().Informer().GetIndexer()
	for i := range ranges {
		stored := ranges[i].DeepCopy()
		for j := range stored.Spec.Limits {
			apiv1.SetDefaults_LimitRangeItem(&stored.Spec.Limits[j])
		}

		if err := indexer.Add(stored); err != nil {
			t.Fatal(err)
		}
	}

	plugin, err := limitranger.NewLimitRanger(&limitranger.DefaultLimitRangerActions{})
	if err != nil {
		t.Fatal(err)
	}

	plugin.SetExternalKubeInformerFactory(factory)
	plugin.SetExternalKubeClientSet(client)
	plugin.SetReadyFunc(func() bool { return true })
	attributes := admission.NewAttributesRecord(&internal, nil, api.Kind("Pod").WithVersion("version"), "shop", "web",
		api.Resource("pods").WithVersion("version"), "", admission.Create, &metav1.CreateOptions{}, false, nil)
	if err := plugin.Admit(t.Context(), attributes, nil); err != nil {
		t.Fatal(err)
	}

	var out corev1.Pod
	if err := apiv1.Convert_core_Pod_To_v1_Pod(&internal, &out, nil); err != nil {
		t.Fatal(err)
	}

	return &out.Spec
}

// resourcesOf returns the resources of a spec by container, without empty lists.
func resourcesOf(spec *corev1.PodSpec) map[string]corev1.ResourceList {
	out := map[string]corev1.ResourceList{}
	add := func(name string, r corev1.ResourceRequirements) {
		for kind, list := range map[string]corev1.ResourceList{"requests": r.Requests, "limits": r.Limits} {
			if len(list) > 0 {
				out[name+" "+kind] = list
			}
		}
	}

	for _, c := range containersOf(spec) {
		add(c.Name, c.Resources)
	}
	if spec.Resources != nil {
		add("the pod", *spec.Resources)
	}

	return out
}

func randomSpec(random *rand.Rand) *corev1.PodSpec {
	spec := &corev1.PodSpec{}
	always := corev1.ContainerRestartPolicyAlways
	for i := range random.IntN(3) {
		c := corev1.Container{Name: fmt.Sprint("init-", i), Resources: randomResources(random)}
		if random.IntN(2) == 0 {
			c.RestartPolicy = &always
		}

		spec.InitContainers = append(spec.InitContainers, c)
	}

	for i := range 1 + random.IntN(3) {
		spec.Containers = append(spec.Containers, corev1.Container{Name: fmt.Sprint("app-", i), Resources: randomResources(random)})
	}

	if random.IntN(3) == 0 {
		level := randomResources(random)
		spec.Resources = &level
	}

	return spec
}

func randomResources(random *rand.Rand) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: randomList(random), Limits: randomList(random)}
}

// randomList returns amounts, 0 among them, of resources of all kinds.
func randomList(random *rand.Rand) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, "hugepages-2Mi", "nvidia.com/gpu"} {
		if random.IntN(3) == 0 {
			out[name] = *apiresource.NewQuantity(int64(random.IntN(5)), apiresource.DecimalSI)
		}
	}

	if len(out) == 0 && random.IntN(2) == 0 {
		return nil
	}

	return out
}

// randomRanges returns no LimitRange or one: with several, the API server takes any of their defaults.
func randomRanges(random *rand.Rand) []corev1.LimitRange {
	if random.IntN(3) == 0 {
		return nil
	}

	out := corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "limits"}}
	for range 1 + random.IntN(3) {
		kinds := []corev1.LimitType{corev1.LimitTypeContainer, corev1.LimitTypeContainer, corev1.LimitTypePod, corev1.LimitTypePersistentVolumeClaim}
		out.Spec.Limits = append(out.Spec.Limits, corev1.LimitRangeItem{
			Type:           kinds[random.IntN(len(kinds))],
			Default:        randomList(random),
			DefaultRequest: randomList(random),
			Max:            randomList(random),
			Min:            randomList(random),
		})
	}

	return []corev1.LimitRange{out}
}
