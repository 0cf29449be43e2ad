// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/internal/agent/elasticrequest"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/kube/podqos"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/series"
)

// Pods are the pods of a node by UID. The zero value knows none.
type Pods struct {
	known map[string]Pod
	// names are of pods that nothing else is known of.
	names map[string][2]string
	// heldCapacity is the reclaimed capacity that all pods hold, offered what the node has of it.
	heldCapacity    elasticrequest.Amounts
	offeredCapacity elasticrequest.ReclaimableCapacity
}

// Pod is a pod that the cluster knows.
type Pod struct {
	*corev1.Pod
	// qos is what does not change from one measurement to the next.
	qos        qos.Pod
	containers map[string]qos.Container // by id
}

// annotations of static pods: the kubelet's own UID, which their cgroups have, and that this is the API server's picture of one.
const (
	annotationHash   = "kubernetes.io/config.hash"
	annotationMirror = "kubernetes.io/config.mirror"
	annotationSource = "kubernetes.io/config.source"
)

// minCriticalPriority is the priority from which on pods are the system's (scheduling.SystemCriticalPriority).
const minCriticalPriority = 2_000_000_000

// defaultGracePeriod is what the API server sets.
const defaultGracePeriod = 30 * time.Second

// New makes an inventory of a node's pods. allowed says which actions may be taken on a pod.
func New(list []*corev1.Pod, allowed func(*corev1.Pod) []string) Pods {
	p := Pods{known: make(map[string]Pod, len(list)), heldCapacity: elasticrequest.SumAllocated(list)}
	for _, pod := range list {
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue // It has no processes, and its cgroup is about to go.
		}
		uid := UID(pod)
		p.known[uid] = newPod(uid, pod, allowed(pod))
	}
	return p
}

// SetOffered tells what the node says it has: reclaimed capacity, of which pods may ask for some.
func (p *Pods) SetOffered(node *corev1.Node) {
	p.offeredCapacity = elasticrequest.ReclaimableCapacity{}
	if node != nil {
		p.offeredCapacity = elasticrequest.ReadReclaimableCapacity(node.Status.Allocatable)
	}
}

// SetReclaimable tells what the node can bear of reclaimed capacity, where that is known better than from what it shows, which is never less than
// what pods hold.
func (p *Pods) SetReclaimable(room elasticrequest.ReclaimableCapacity) { p.offeredCapacity = room }

// Distributed is the share of the node's reclaimed capacity that pods hold; more than 1 where it has shrunk since. It is not known of a
// resource of which it is not known what the node has, or that it does not offer.
func (p Pods) Distributed() elasticrequest.AllocatedShares {
	return p.offeredCapacity.AllocatedShares(p.heldCapacity)
}

// UID is the one that a pod's cgroups have: that of a static pod is the kubelet's own, not the one of its picture in the API server.
func UID(pod *corev1.Pod) string {
	if hash := pod.Annotations[annotationHash]; hash != "" && pod.Annotations[annotationMirror] != "" {
		return hash
	}
	return string(pod.UID)
}

func newPod(uid string, pod *corev1.Pod, allowed []string) Pod {
	out := Pod{Pod: pod, containers: map[string]qos.Container{}}
	claims := elasticrequest.SumContainers(pod)
	out.qos = qos.Pod{
		UID: uid, Namespace: pod.Namespace, Name: pod.Name, Class: qos.Class(podqos.QOSClass(pod)), Elastic: !claims.IsZero(),
		HoldsCPU: claims.CPU > 0, HoldsMemory: claims.Memory > 0,
		Terminating: pod.DeletionTimestamp != nil, Grace: defaultGracePeriod, ExemptReason: exemptReason(pod), Allowed: allowed,
	}
	if pod.Spec.Priority != nil {
		out.qos.Priority = *pod.Spec.Priority
	}
	if pod.Status.StartTime != nil {
		out.qos.Started = pod.Status.StartTime.Time
	}
	if pod.Spec.TerminationGracePeriodSeconds != nil {
		out.qos.Grace = time.Duration(max(*pod.Spec.TerminationGracePeriodSeconds, 0)) * time.Second
	}
	if out.qos.Class == qos.Guaranteed && !out.qos.Elastic {
		out.qos.SensitiveReason = "class Guaranteed"
	}
	specs := map[string]*corev1.Container{}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			specs[list[i].Name] = &list[i]
		}
	}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, status := range list {
			_, id, ok := strings.Cut(status.ContainerID, "://")
			if spec := specs[status.Name]; ok && id != "" && spec != nil {
				out.containers[id] = newContainer(id, spec)
			}
		}
	}
	return out
}

func newContainer(id string, spec *corev1.Container) qos.Container {
	milli := func(list corev1.ResourceList, name corev1.ResourceName) series.MilliCPU {
		q := list[name]
		return series.MilliCPU(max(q.MilliValue(), 0))
	}
	c := qos.Container{
		ID: id, Name: spec.Name,
		Request: milli(spec.Resources.Requests, corev1.ResourceCPU), Limit: milli(spec.Resources.Limits, corev1.ResourceCPU),
	}
	if q := spec.Resources.Requests.Memory(); q != nil {
		c.RequestMemory = series.Bytes(max(q.Value(), 0))
	}
	if q := spec.Resources.Limits.Memory(); q != nil {
		c.LimitMemory = series.Bytes(max(q.Value(), 0))
	}
	if c.Limit == 0 {
		c.Limit = elasticrequest.ReadContainer(spec).CPU
	}
	return c
}

// exemptReason says why a pod is never evicted: it would come back at once, or the node needs it.
func exemptReason(pod *corev1.Pod) string {
	if source := pod.Annotations[annotationSource]; pod.Annotations[annotationMirror] != "" || source != "" && source != "api" {
		return "static pod"
	}
	if pod.Spec.Priority != nil && *pod.Spec.Priority >= minCriticalPriority {
		return "critical for the system"
	}
	for _, o := range pod.OwnerReferences {
		if o.Controller != nil && *o.Controller && o.Kind == "DaemonSet" {
			return "pod of a DaemonSet, which would make another here"
		}
	}
	return ""
}

// MarkSensitive tells which pods are latency-sensitive by the cpuPriority that a PodQOS gives them: 0 is, and those above it are batch work that
// yields. Without one, pods of class Guaranteed are. Pods on reclaimed capacity never are.
func (p Pods) MarkSensitive(cpuPriority func(*corev1.Pod) (int32, bool)) {
	for uid, k := range p.known {
		priority, ok := cpuPriority(k.Pod)
		if !ok {
			continue
		}
		k.qos.SensitiveReason = ""
		if priority == 0 && !k.qos.Elastic {
			k.qos.SensitiveReason = "cpuPriority 0"
		}
		p.known[uid] = k
	}
}

// Count is how many pods there are.
func (p Pods) Count() int { return len(p.known) }

// Find returns what is known of the pod with that UID.
func (p Pods) Find(uid string) (qos.Pod, bool) {
	if k, ok := p.known[uid]; ok {
		return k.qos, true
	}
	if name, ok := p.names[uid]; ok {
		return qos.Pod{UID: uid, Namespace: name[0], Name: name[1]}, false
	}
	return qos.Pod{UID: uid}, false
}

// Container returns what is known of a container of a pod. Those that are not of the pod's spec, such as the sandbox, are not known.
func (p Pods) Container(uid, id string) (qos.Container, bool) {
	c, ok := p.known[uid].containers[id]
	return c, ok
}

// ReadNamesFromLogs learns the names of pods from the directories that the kubelet makes for their logs: namespace_name_uid.
func (p *Pods) ReadNamesFromLogs(root host.Root) {
	entries, err := os.ReadDir(root.Path("var/log/pods"))
	if err != nil {
		return
	}
	p.names = make(map[string][2]string, len(entries))
	for _, e := range entries {
		// Neither a namespace nor a name nor a UID has an underscore.
		if parts := strings.Split(e.Name(), "_"); len(parts) == 3 {
			p.names[parts[2]] = [2]string{parts[0], parts[1]}
		}
	}
}
