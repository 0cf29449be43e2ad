// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"crane.io/crane/internal/agent/effectiverequest"
	"crane.io/crane/internal/agent/elasticrequest"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/kube/optout"
	"crane.io/crane/internal/kube/podqos"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

// Pods holds the pods of a node by UID. The zero value is empty.
type Pods struct {
	byUID map[string]knownPod
	// names holds namespace and name of pods that are otherwise unknown.
	names map[string][2]string
	// heldCapacity is the reclaimed capacity requested by all pods, offeredCapacity that of the node.
	heldCapacity    elasticrequest.Amounts
	offeredCapacity elasticrequest.ReclaimableCapacity
}

// knownPod is a pod known to the cluster.
type knownPod struct {
	*corev1.Pod
	// qos holds the properties that do not change between measurements.
	qos        qos.Pod
	containers map[string]qos.Container // by ID
}

// defaultGracePeriod is the API server's default.
const defaultGracePeriod = 30 * time.Second

// New returns the inventory of a node's pods. allowed returns the actions that may be taken on a pod, exempt why it is never evicted. No
// action may be taken on a pod that has opted out.
func New(list []*corev1.Pod, allowed func(*corev1.Pod) []string, exempt func(*corev1.Pod) string) Pods {
	p := Pods{byUID: make(map[string]knownPod, len(list)), heldCapacity: elasticrequest.SumAllocated(list)}
	uids := UIDs(list)
	for i, pod := range list {
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue // It has no processes, and its cgroup is about to be removed.
		}

		uid := uids[i]
		if optout.Labeled(pod.Labels) {
			p.byUID[uid] = newPod(uid, pod, nil, optout.Reason)
			continue
		}

		p.byUID[uid] = newPod(uid, pod, allowed(pod), exempt(pod))
	}

	return p
}

// SetOffered sets the reclaimed capacity from the Node's status.
func (p *Pods) SetOffered(node *corev1.Node) {
	p.offeredCapacity = elasticrequest.ReclaimableCapacity{}
	if node != nil {
		p.offeredCapacity = elasticrequest.ReadReclaimableCapacity(node.Status.Allocatable)
	}
}

// SetReclaimable sets the reclaimable capacity where it is known more precisely than from the Node's status, which never drops below the
// requests of pods.
func (p *Pods) SetReclaimable(capacity elasticrequest.ReclaimableCapacity) {
	p.offeredCapacity = capacity
}

// Distributed returns the share of the node's reclaimed capacity requested by pods; above 1 if the capacity has shrunk. It is nil for a
// resource whose capacity is unknown or not offered.
func (p Pods) Distributed() elasticrequest.AllocatedShares {
	return p.offeredCapacity.AllocatedShares(p.heldCapacity)
}

func newPod(uid string, pod *corev1.Pod, allowed []string, exempt string) knownPod {
	out := knownPod{Pod: pod, containers: map[string]qos.Container{}}
	claims := elasticrequest.SumContainers(pod)
	out.qos = qos.Pod{
		UID:          uid,
		Namespace:    pod.Namespace,
		Name:         pod.Name,
		Class:        qos.Class(podqos.QOSClass(pod)),
		Elastic:      !claims.IsZero(),
		HoldsCPU:     claims.CPU > 0,
		HoldsMemory:  claims.Memory > 0,
		Terminating:  pod.DeletionTimestamp != nil,
		Grace:        defaultGracePeriod,
		ExemptReason: exempt,
		Allowed:      allowed,
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

	out.addContainers(pod)
	return out
}

// addContainers adds the started containers of a pod, debug containers included: they have no request of their own.
func (k *knownPod) addContainers(pod *corev1.Pod) {
	resources := effectiverequest.Containers(pod)
	elastic := map[string]units.MilliCPU{}
	for _, c := range elasticrequest.Containers(pod) {
		elastic[c.Name] = c.CPU
	}

	for i := range pod.Spec.EphemeralContainers {
		resources[pod.Spec.EphemeralContainers[i].Name] = effectiverequest.Resources{}
	}

	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for _, status := range list {
			granted, isListed := resources[status.Name]
			_, id, ok := strings.Cut(status.ContainerID, "://")
			if !ok || id == "" || !isListed {
				continue
			}

			c := qos.Container{
				ID:            id,
				Name:          status.Name,
				Request:       granted.Request.CPU,
				Limit:         granted.Limit.CPU,
				RequestMemory: granted.Request.Memory,
				LimitMemory:   granted.Limit.Memory,
			}

			if c.Limit == 0 {
				c.Limit = elastic[c.Name]
			}
			k.containers[id] = c
		}
	}
}

// MarkSensitive marks latency-sensitive pods by the cpuPriority of their PodQOS: 0 is latency-sensitive, higher values are batch work.
// Without a PodQOS, Guaranteed pods are latency-sensitive. Pods on reclaimed capacity never are.
func (p Pods) MarkSensitive(cpuPriority func(*corev1.Pod) (int32, bool)) {
	for uid, k := range p.byUID {
		priority, ok := cpuPriority(k.Pod)
		if !ok {
			continue
		}

		k.qos.SensitiveReason = ""
		if priority == 0 && !k.qos.Elastic {
			k.qos.SensitiveReason = "cpuPriority 0"
		}

		p.byUID[uid] = k
	}
}

// Find returns the pod with the UID and whether the cluster knows it.
func (p Pods) Find(uid string) (qos.Pod, bool) {
	if k, ok := p.byUID[uid]; ok {
		return k.qos, true
	}

	if name, ok := p.names[uid]; ok {
		return qos.Pod{UID: uid, Namespace: name[0], Name: name[1]}, false
	}

	return qos.Pod{UID: uid}, false
}

// Container returns a container of the pod's spec; false for others, such as the sandbox.
func (p Pods) Container(uid, id string) (qos.Container, bool) {
	c, ok := p.byUID[uid].containers[id]
	return c, ok
}

// ReadNamesFromLogs reads the names of pods from the kubelet's log directories, named namespace_name_uid.
func (p *Pods) ReadNamesFromLogs(root host.Root) {
	entries, err := os.ReadDir(root.Path("var/log/pods"))
	if err != nil {
		return
	}

	p.names = make(map[string][2]string, len(entries))
	for _, e := range entries {
		// Namespaces, names and UIDs contain no underscore.
		if parts := strings.Split(e.Name(), "_"); len(parts) == 3 {
			p.names[parts[2]] = [2]string{parts[0], parts[1]}
		}
	}
}

// Parse reads the output of `kubectl get pods -o yaml` or -o json: a list or one pod.
func Parse(content []byte) ([]*corev1.Pod, error) {
	raw, err := yaml.YAMLToJSON(content)
	if err != nil {
		return nil, fmt.Errorf("pods: %w", err)
	}

	var head metav1.TypeMeta
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, fmt.Errorf("pods: %w", err)
	}

	if head.Kind == "Pod" {
		var pod corev1.Pod
		err = json.Unmarshal(raw, &pod)
		return validate([]corev1.Pod{pod}, err)
	}

	if head.Kind != "List" && head.Kind != "PodList" {
		return nil, fmt.Errorf("pods: kind is %q, want List, PodList or Pod", head.Kind)
	}

	var list corev1.PodList
	err = json.Unmarshal(raw, &list)
	return validate(list.Items, err)
}

func validate(pods []corev1.Pod, err error) ([]*corev1.Pod, error) {
	if err != nil {
		return nil, fmt.Errorf("pods: %w", err)
	}

	out := make([]*corev1.Pod, 0, len(pods))
	for i := range pods {
		if kind := pods[i].Kind; kind != "" && kind != "Pod" {
			return nil, fmt.Errorf("pods: items[%d] is a %s", i, kind)
		}

		if pods[i].UID == "" || pods[i].Name == "" {
			return nil, fmt.Errorf("pods: items[%d] %s/%s: %w", i, pods[i].Namespace, pods[i].Name, errors.New("must have a name and a uid"))
		}

		out = append(out, &pods[i])
	}

	return out, nil
}
