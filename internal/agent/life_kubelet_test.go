// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"crane.io/crane/internal/agent/effectiverequest"
	"crane.io/crane/internal/agent/host/cgroup"
)

// livePod is a pod with the spec at the API server and the one that the kubelet has applied.
type livePod struct {
	uid        string
	group      string
	spec       corev1.PodSpec
	containers []liveContainer
}

type liveContainer struct {
	name, id string
	cpu      float64
}

// object returns the pod at the API server.
func (p *livePod) object() *corev1.Pod {
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p" + p.uid, UID: types.UID(p.uid), Labels: map[string]string{"app": "hog"}},
		Spec:       *p.spec.DeepCopy(),
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}

	for _, c := range p.containers {
		status := corev1.ContainerStatus{Name: c.name, ContainerID: "containerd://" + c.id}
		if c.name == "debugger" {
			out.Spec.EphemeralContainers = append(out.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: c.name}})
			out.Status.EphemeralContainerStatuses = append(out.Status.EphemeralContainerStatuses, status)
			continue
		}

		out.Status.ContainerStatuses = append(out.Status.ContainerStatuses, status)
	}

	return out
}

// lifeAmounts returns a list such as cpu=500m.
func lifeAmounts(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		out[corev1.ResourceName(name)] = resource.MustParse(value)
	}

	return out
}

// lifeResources returns resources of containers to choose from: ordinary, elastic, none.
func lifeResources(choice int) corev1.ResourceRequirements {
	elastic := lifeAmounts("gocrane.io/cpu=3")
	switch choice % 5 {
	case 0:
		return corev1.ResourceRequirements{Requests: lifeAmounts("cpu=500m"), Limits: lifeAmounts("cpu=4")}
	case 1:
		return corev1.ResourceRequirements{Requests: lifeAmounts("cpu=200m"), Limits: lifeAmounts("cpu=1")}
	case 2:
		return corev1.ResourceRequirements{Requests: elastic, Limits: elastic}
	case 3:
		return corev1.ResourceRequirements{}
	}

	return corev1.ResourceRequirements{Requests: lifeAmounts("cpu=1")}
}

func (l *lifeOf) create(e event) {
	if l.pods[e.pod] != nil {
		return
	}

	l.lastID++
	p := &livePod{uid: fmt.Sprintf("%08d-0000-0000-0000-000000000000", l.lastID)}
	for i := range 1 + e.choice%2 {
		p.spec.Containers = append(p.spec.Containers, corev1.Container{Name: "c" + strconv.Itoa(i), Resources: lifeResources(e.choice/2 + i)})
	}

	class := "besteffort"
	if l.classOf(p) == corev1.PodQOSBurstable {
		class = "burstable"
	}

	p.group = "kubepods/" + class + "/pod" + p.uid
	l.makeGroup(p.group)
	l.pods[e.pod] = p
	l.sync()
	for _, c := range p.spec.Containers {
		l.start(p, c.Name, float64(e.choice%4))
	}
}

func (l *lifeOf) classOf(p *livePod) corev1.PodQOSClass {
	for _, c := range p.spec.Containers {
		if !c.Resources.Requests.Cpu().IsZero() {
			return corev1.PodQOSBurstable
		}
	}

	return corev1.PodQOSBestEffort
}

// start creates the group of a container with the settings that the runtime writes: all are accepted.
func (l *lifeOf) start(p *livePod, name string, cpu float64) {
	l.lastID++
	c := liveContainer{name: name, id: fmt.Sprintf("%064x", l.lastID), cpu: cpu}
	p.containers = append(p.containers, c)
	group := path.Join(p.group, c.id)
	l.makeGroup(group)
	for _, s := range l.settingsOf(p)[group] {
		if err := l.writeSetting(group, s); err != nil {
			l.failf("the runtime starts container %s of pod %s: %v", name, p.uid[:8], err)
		}
	}

	l.must(l.tree.Attach(group, 1000+l.lastID))
}

// end removes the group of a container.
func (l *lifeOf) end(p *livePod, i int) {
	group := path.Join(p.group, p.containers[i].id)
	l.must(l.tree.Detach(group))
	l.must(l.tree.Remove(group))
	delete(l.written, group)
	p.containers = slices.Delete(p.containers, i, i+1)
}

// restart ends a container and starts its successor at once; a debug container has none.
func (l *lifeOf) restart(p *livePod, i int) {
	c := p.containers[i]
	l.end(p, i)
	if c.name != "debugger" || len(p.containers) == 0 {
		l.start(p, c.name, c.cpu)
	}
}

// resize changes the ordinary resources of a container; elastic ones cannot be changed, and the class stays.
func (l *lifeOf) resize(p *livePod, choice int) {
	c := &p.spec.Containers[choice%len(p.spec.Containers)]
	request := strconv.Itoa(100*(1+choice%9)) + "m"
	_, elastic := c.Resources.Requests["gocrane.io/cpu"]
	if elastic || l.classOf(p) == corev1.PodQOSBestEffort {
		return
	}

	requests := lifeAmounts("cpu=" + request)
	c.Resources = corev1.ResourceRequirements{Requests: requests}
	if choice%3 > 0 {
		c.Resources.Limits = lifeAmounts("cpu=" + strconv.Itoa(1+choice%4))
	}
}

// setting is a value of the kubelet or runtime.
type setting struct{ file, value string }

// settingsOf returns the kubelet's settings of a pod by group.
func (l *lifeOf) settingsOf(p *livePod) map[string][]setting {
	object := p.object()
	whole := effectiverequest.Pod(object)
	limited := !slices.ContainsFunc(p.spec.Containers, func(c corev1.Container) bool { return c.Resources.Limits.Cpu().IsZero() })
	quota := int64(-1)
	if limited || p.spec.Resources != nil && !p.spec.Resources.Limits.Cpu().IsZero() {
		quota = int64(whole.Limit.CPU)
	}

	out := map[string][]setting{p.group: l.settings(int64(whole.Request.CPU), quota)}
	for _, c := range p.containers {
		request, limit := int64(0), int64(-1)
		for _, spec := range p.spec.Containers {
			if spec.Name == c.name {
				request = spec.Resources.Requests.Cpu().MilliValue()
				if q := spec.Resources.Limits.Cpu(); !q.IsZero() {
					limit = q.MilliValue()
				}
			}
		}

		out[path.Join(p.group, c.id)] = l.settings(request, limit)
	}

	return out
}

// settings converts a request and a limit, -1 for none, in millicores.
func (l *lifeOf) settings(request, limit int64) []setting {
	shares := max(request*1024/1000, 2)
	if l.v1 {
		return []setting{{cgroup.FileSharesV1, strconv.FormatInt(shares, 10)}, {cgroup.FileQuotaV1, strconv.FormatInt(max(limit*100, -1), 10)}}
	}

	quota := "max"
	if limit >= 0 {
		quota = strconv.FormatInt(limit*100, 10)
	}

	return []setting{{cgroup.FileWeight, strconv.FormatInt(1+(shares-2)*9999/262142, 10)}, {cgroup.FileMax, quota + " 100000"}}
}

// sync writes the settings that have changed since the kubelet wrote them: the quota of a pod before those of its containers where it rises,
// else after them.
func (l *lifeOf) sync() {
	for _, i := range slices.Sorted(maps.Keys(l.pods)) {
		p := l.pods[i]
		settings := l.settingsOf(p)
		groups := slices.Sorted(maps.Keys(settings))
		for _, group := range append(groups, p.group) {
			for _, s := range settings[group] {
				if l.written[group][s.file] == s.value {
					continue
				}

				key := group + " " + s.file
				err := l.writeSetting(group, s)
				if err == nil {
					delete(l.refused, key)
					continue
				}

				// The first attempt to lower a pod's quota on v1 fails until its containers have theirs.
				l.refused[key]++
				if l.refused[key] > 2*maxRefusals {
					l.failf("the kubelet's write of %s to %s was refused %d times: %v", s.value, key, l.refused[key], err)
				}
			}
		}
	}
}

func (l *lifeOf) writeSetting(group string, s setting) error {
	name, err := l.layout.SettingFile(group, s.file)
	l.must(err)

	if err := l.tree.Write(name, s.value); err != nil {
		return err
	}

	// The runtime writes the period as well, after the quota where the kernel requires that.
	if s.file == cgroup.FileQuotaV1 {
		if err := l.tree.Write(filepath.Join(filepath.Dir(name), cgroup.FilePeriodV1), "100000"); err != nil {
			return err
		}
	}

	if l.written[group] == nil {
		l.written[group] = map[string]string{}
	}
	l.written[group][s.file] = s.value

	return nil
}
