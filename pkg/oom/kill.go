// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package oom

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"crane.io/crane/pkg/units"
)

// Cause is the reason why a container ended.
type Cause string

// The causes.
const (
	// Killed means that the kernel killed the container: it was above its limit, or the node was out of memory.
	Killed Cause = "OOMKilled"
	// Evicted means that the kubelet evicted the pod because the node was low on memory.
	Evicted Cause = "Evicted"
)

// Owner is the workload of a pod.
type Owner struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Name       string `json:"name,omitempty"`
}

// Kill is the end of one run of a container for lack of memory.
type Kill struct {
	// ID identifies the kill; empty in records of gocrane.
	ID                        string
	Namespace, Pod, Container string
	// Memory is the limit of the container, else its request; 0 if it had neither.
	Memory units.Bytes
	// NoLimit is set if Memory is not a limit: the kill does not bound the need of the container. Records of gocrane lack it.
	NoLimit bool
	// At is the time at which the run ended, in seconds.
	At    time.Time
	Cause Cause
	// Owner is empty in records of gocrane, and if it is unknown.
	Owner Owner
}

// NewID returns the ID of a kill from the UID of its pod, the container name, and the run (the container ID of the runtime,
// or the time at which it ended). With 64 bits the probability of a collision among 10,000 kills is below 1e-11.
func NewID(podUID, container, run string) string {
	h := sha256.New()
	for _, part := range []string{podUID, container, run} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}

	return hex.EncodeToString(h.Sum(nil))[:16]
}

// isSame reports whether two records are of one kill. Records of gocrane have no ID.
func (k Kill) isSame(other Kill) bool {
	if k.ID != "" && other.ID != "" {
		return k.ID == other.ID
	}

	return k.containerPath() == other.containerPath() && k.At.Equal(other.At)
}

// containerPath returns the container that was killed.
func (k Kill) containerPath() string { return k.Namespace + "/" + k.Pod + "/" + k.Container }

// ownerPath returns the container of the workload that was killed, the same for all pods of a workload whose owner is known.
func (k Kill) ownerPath() string {
	if k.Owner.Kind == "" {
		return k.containerPath()
	}

	return k.Namespace + "/" + k.Owner.APIVersion + "/" + k.Owner.Kind + "/" + k.Owner.Name + "/" + k.Container
}

// record is a kill in gocrane's format, with additional fields that gocrane ignores.
type record struct {
	Namespace string
	Pod       string
	Container string
	Memory    string
	OOMAt     time.Time
	ID        string `json:",omitempty"`
	Cause     Cause  `json:",omitempty"`
	NoLimit   bool   `json:",omitempty"`
	Owner     *Owner `json:",omitempty"`
}

// MarshalJSON returns the record in gocrane's format.
func (k Kill) MarshalJSON() ([]byte, error) {
	out := record{
		Namespace: k.Namespace,
		Pod:       k.Pod,
		Container: k.Container,
		OOMAt:     k.At.UTC(),
		ID:        k.ID,
		Cause:     k.Cause,
		NoLimit:   k.NoLimit,
		Memory:    resource.NewQuantity(int64(k.Memory), resource.BinarySI).String(),
	}

	if k.Owner != (Owner{}) {
		out.Owner = &k.Owner
	}

	return json.Marshal(out)
}

// maxNameLength is the maximum length of Kubernetes names, in bytes.
const maxNameLength = 253

// UnmarshalJSON decodes a record and rejects one that cannot be a kill.
func (k *Kill) UnmarshalJSON(data []byte) error {
	var decoded record
	if err := json.Unmarshal(data, &decoded); err != nil {
		return fmt.Errorf("OOM record: %w", err)
	}

	// The records are in a ConfigMap that people may edit: what is accepted here is used in names of objects and in sums.
	for field, value := range map[string]string{"Namespace": decoded.Namespace, "Pod": decoded.Pod, "Container": decoded.Container} {
		if value == "" || len(value) > maxNameLength {
			return fmt.Errorf("OOM record: %s has %d bytes, want 1 to %d", field, len(value), maxNameLength)
		}
	}

	if len(decoded.ID) > maxNameLength || decoded.Owner != nil && max(len(decoded.Owner.APIVersion), len(decoded.Owner.Kind), len(decoded.Owner.Name)) > 2*maxNameLength {
		return errors.New("OOM record: ID or Owner is too long")
	}

	memory, err := resource.ParseQuantity(decoded.Memory)
	if err != nil {
		return fmt.Errorf("OOM record: Memory %q: %w", decoded.Memory, err)
	}

	if memory.Sign() < 0 {
		return fmt.Errorf("OOM record: Memory %q is negative", decoded.Memory)
	}

	if year := decoded.OOMAt.Year(); decoded.OOMAt.IsZero() || year < 2000 || year > 2200 {
		return fmt.Errorf("OOM record: OOMAt %s is not a time at which a container ran", decoded.OOMAt.Format(time.RFC3339))
	}

	*k = Kill{
		ID:        decoded.ID,
		Namespace: decoded.Namespace,
		Pod:       decoded.Pod,
		Container: decoded.Container,
		Memory:    units.Bytes(memory.Value()),
		At:        decoded.OOMAt.UTC(),
		Cause:     decoded.Cause,
		NoLimit:   decoded.NoLimit,
	}

	if decoded.Owner != nil {
		k.Owner = *decoded.Owner
	}

	return nil
}

// Names of pods that Kubernetes derives from their workloads.
var (
	deploymentPodName  = regexp.MustCompile(`^(.+)-[a-z0-9]{1,10}-[a-z0-9]{5}$`)
	statefulSetPodName = regexp.MustCompile(`^(.+)-[0-9]+$`)
	daemonSetPodName   = regexp.MustCompile(`^(.+)-[a-z0-9]{5}$`)
)

// Owners returns the workloads that a kill may belong to: the recorded one or, for records of gocrane without one, those
// whose pods have such names.
func (k Kill) Owners() []Owner {
	if k.Owner.Kind != "" {
		return []Owner{k.Owner}
	}

	out := []Owner{{APIVersion: "v1", Kind: "Pod", Name: k.Pod}}
	for _, rule := range []struct {
		kind    string
		podName *regexp.Regexp
	}{{"Deployment", deploymentPodName}, {"StatefulSet", statefulSetPodName}, {"DaemonSet", daemonSetPodName}} {
		if m := rule.podName.FindStringSubmatch(k.Pod); m != nil {
			out = append(out, Owner{APIVersion: "apps/v1", Kind: rule.kind, Name: m[1]})
		}
	}

	return out
}
