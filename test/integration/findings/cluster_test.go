// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package findings_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
)

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(clientgoscheme.AddToScheme(scheme), analysisv1alpha1.AddToScheme(scheme), autoscalingv1alpha1.AddToScheme(scheme))
}

// newAdminClient returns an uncached client with administrator permissions.
func newAdminClient() (client.Client, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}

	return client.New(control.Config(), client.Options{Scheme: scheme})
}

// objectCreator creates objects and keeps the first error.
type objectCreator struct {
	ctx context.Context
	c   client.Client
	err error
}

func (m *objectCreator) create(o client.Object) {
	if m.err != nil {
		return
	}

	if err := m.c.Create(m.ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
		m.err = fmt.Errorf("%T %s/%s: %w", o, o.GetNamespace(), o.GetName(), err)
	}
}

// createStatus creates an object and sets its status as its controller or kubelet would.
func (m *objectCreator) createStatus(o client.Object, set func()) {
	m.create(o)
	if m.err != nil {
		return
	}

	set()
	if err := m.c.Status().Update(m.ctx, o); err != nil {
		m.err = fmt.Errorf("status of %T %s/%s: %w", o, o.GetNamespace(), o.GetName(), err)
	}
}

// createCluster creates nodes, workloads with pods, volumes and services.
func createCluster(ctx context.Context) error {
	c, err := newAdminClient()
	if err != nil {
		return err
	}

	m := &objectCreator{ctx: ctx, c: c}
	for _, ns := range []string{"shop", "ai", "big", "sized"} {
		m.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	}

	for _, name := range []string{"busy", "low", "empty", "new", "dark", "gpus", "pool-1", "pool-2", "master"} {
		m.node(name)
		m.daemonPod(name)
	}

	for _, a := range fixtureApps() {
		m.app(a)
	}

	m.app(fixtureApp{namespace: "shop", name: "paused", cpu: "1", memory: "1Gi"})
	m.create(statefulSet("db"))
	m.volumes()
	m.services()

	return m.err
}

func (m *objectCreator) node(name string) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	switch name {
	case "pool-1", "pool-2":
		n.Labels["pool"] = "big"
		n.Spec.Taints = []corev1.Taint{{Key: "pool", Value: "big", Effect: corev1.TaintEffectNoSchedule}}
	case "master":
		n.Labels["node-role.kubernetes.io/control-plane"] = ""
	}

	m.createStatus(n, func() {
		has := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi"), corev1.ResourcePods: resource.MustParse("110")}
		if name == "gpus" {
			has["nvidia.com/gpu"] = resource.MustParse("8")
		}

		n.Status.Capacity = has
		n.Status.Allocatable = has
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	})
}

func (m *objectCreator) daemonPod(node string) {
	m.pod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "kube-system", Name: "agent-" + node,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "agent", Controller: new(true)}},
	}, Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "agent", Image: "i"}}}})
}

// pod creates a pod, running if it has a node.
func (m *objectCreator) pod(p *corev1.Pod) {
	p.Spec.AutomountServiceAccountToken = new(false)
	m.createStatus(p, func() {
		if p.Spec.NodeName == "" {
			p.Status.Phase = corev1.PodPending
			return
		}

		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	})
}

// app creates a Deployment with its ReplicaSet and pod, or one scaled to zero.
func (m *objectCreator) app(a fixtureApp) {
	labels := map[string]string{"app": a.name}
	requests := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(a.cpu), corev1.ResourceMemory: resource.MustParse(a.memory)}

	limits := corev1.ResourceList{}
	if a.cpuLimit != "" {
		limits[corev1.ResourceCPU] = resource.MustParse(a.cpuLimit)
	}

	if a.gpus != "" {
		requests["nvidia.com/gpu"] = resource.MustParse(a.gpus)
		limits["nvidia.com/gpu"] = resource.MustParse(a.gpus)
	}

	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "app", Image: "i", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits},
		}}},
	}

	if a.pool != "" {
		template.Spec.NodeSelector = map[string]string{"pool": a.pool}
		template.Spec.Tolerations = []corev1.Toleration{{Key: "pool", Operator: corev1.TolerationOpExists}}
	}

	if a.name == "web" {
		template.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "mounted"},
		}}}
	}

	replicas := int32(1)
	if a.name == "paused" {
		replicas = 0
	}

	selector := &metav1.LabelSelector{MatchLabels: labels}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: a.name, Labels: labels},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: selector, Template: template},
	}
	m.createStatus(d, func() {
		d.Status.Replicas = replicas
		d.Status.ReadyReplicas = replicas
		d.Status.AvailableReplicas = replicas
	})

	if replicas == 0 {
		return
	}

	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: a.replicaSetName(), Labels: labels, OwnerReferences: ownerReferences("Deployment", d)},
		Spec:       appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: selector, Template: template},
	}
	m.create(rs)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: a.podName(), Labels: labels, OwnerReferences: ownerReferences("ReplicaSet", rs)}, Spec: template.Spec}
	p.Spec.NodeName = a.node
	m.pod(p)
}

func ownerReferences(kind string, by client.Object) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: by.GetName(), UID: by.GetUID(), Controller: new(true)}}
}

// statefulSet returns a StatefulSet that is scaled to zero and has a claim for its first pod.
func statefulSet(name string) *appsv1.StatefulSet {
	labels := map[string]string{"app": name}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "db", Image: "i"}}},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*claimOf("data", "")},
		},
	}
}

func claimOf(name, volume string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeName: volume, StorageClassName: new(""),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")}},
		},
	}
}

func (m *objectCreator) volumes() {
	volume := func(name, claim string, phase corev1.PersistentVolumePhase, since time.Time) {
		v := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
				PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d.example", VolumeHandle: name}},
				ClaimRef:                      &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "shop", Name: claim},
			},
		}

		m.createStatus(v, func() {
			v.Status.Phase = phase
			v.Status.LastPhaseTransitionTime = new(metav1.NewTime(since))
		})
	}

	longAgo := now.Add(-clockOffset)
	for claim, name := range map[string]string{"mounted": "pv-mounted", "orphan": "pv-orphan", "recent": "pv-recent", "data-db-0": "pv-set", "blind": "pv-blind"} {
		m.create(claimOf(claim, name))
		volume(name, claim, corev1.VolumeBound, longAgo)
	}

	volume("pv-released", "gone", corev1.VolumeReleased, longAgo)
	volume("pv-fresh", "gone-too", corev1.VolumeReleased, now.Add(-3*time.Hour))
}

func (m *objectCreator) services() {
	service := func(name, app string, kind corev1.ServiceType) {
		m.create(&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec:       corev1.ServiceSpec{Type: kind, Selector: map[string]string{"app": app}, Ports: []corev1.ServicePort{{Port: 80}}},
		})
	}

	service("lb-orphan", "nobody", corev1.ServiceTypeLoadBalancer)
	service("lb-web", "web", corev1.ServiceTypeLoadBalancer)
	service("lb-paused", "paused", corev1.ServiceTypeLoadBalancer)
	service("lb-blind", "nobody", corev1.ServiceTypeLoadBalancer)
	service("lb-quiet", "forgotten", corev1.ServiceTypeLoadBalancer)
	service("ip-orphan", "nobody", corev1.ServiceTypeClusterIP)
}
