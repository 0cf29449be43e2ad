// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"

	"crane.io/crane/internal/testbed/realnode/assets"
)

// Timeouts of waits; an emulated machine is twenty times slower.
const (
	nativeTimeout   = 60 * time.Second
	emulatedTimeout = 5 * time.Minute
	// Polling has a cost as well: a program in a pod of an emulated machine takes seconds to start.
	nativePoll   = 100 * time.Millisecond
	emulatedPoll = 2 * time.Second
)

// Image returns the image name of a test program: pause, cpu-hog, memory-hog, latency-server, latency-client or cgroups. See
// internal/testbed/realnode/testprogram for their arguments.
func Image(program string) string { return assets.ImageName(program) }

// Pod returns a pod that runs program on this node with the given requests and limits.
func (n *Node) Pod(name, program string, args []string, requests, limits corev1.ResourceList) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: corev1.PodSpec{
			NodeName:                      n.Name(),
			TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{{
				Name: "main", Image: Image(program), ImagePullPolicy: corev1.PullNever, Args: args,
				Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits},
			}},
		},
	}
}

// HostPod returns an idle pod that sees the node's processes, and its files below HostRoot.
func (n *Node) HostPod(name string) *corev1.Pod {
	pod := n.Pod(name, "cgroups", []string{"stay"}, nil, nil)
	pod.Spec.HostPID = true
	c := &pod.Spec.Containers[0]
	c.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "host", MountPath: HostRoot}}
	pod.Spec.Volumes = []corev1.Volume{hostPath("host", "/")}

	return pod
}

// HostRoot is the mount point of the node's files in a HostPod.
const HostRoot = "/host"

// ExecOnNode runs a program of the node's own from a HostPod and returns its output.
func (n *Node) ExecOnNode(t testing.TB, watcher *corev1.Pod, command ...string) (string, error) {
	t.Helper()
	return n.Exec(t, watcher, append([]string{"/nodekit", "cgroups", "in", HostRoot}, command...)...)
}

// Resources returns a list of CPU and memory quantities; empty ones are omitted.
func Resources(cpu, memory string) corev1.ResourceList {
	list := corev1.ResourceList{}
	if cpu != "" {
		list[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		list[corev1.ResourceMemory] = resource.MustParse(memory)
	}

	return list
}

// waitTimeout returns the timeout of waits on this node.
func (n *Node) waitTimeout() time.Duration {
	if n.Machine() {
		return emulatedTimeout
	}

	return nativeTimeout
}

// pollInterval returns the polling interval on this node.
func (n *Node) pollInterval() time.Duration {
	if n.Machine() {
		return emulatedPoll
	}

	return nativePoll
}

// Run creates the pod and returns it when it is Ready. The pod is deleted at the end of the test.
func (n *Node) Run(t testing.TB, pod *corev1.Pod) *corev1.Pod {
	t.Helper()

	n.Create(t, pod)
	return n.Await(t, pod, "Ready", func(p *corev1.Pod) bool {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady {
				return c.Status == corev1.ConditionTrue
			}
		}

		return false
	})
}

// Create creates the pod. It is deleted at the end of the test.
func (n *Node) Create(t testing.TB, pod *corev1.Pod) *corev1.Pod {
	t.Helper()

	pods := n.Client.CoreV1().Pods(pod.Namespace)
	created, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("creating pod %s: %v", pod.Name, err)
	}

	t.Cleanup(func() { n.Delete(t, created) })
	return created
}

// Delete deletes the pod and returns when it is gone. A missing pod is no error.
func (n *Node) Delete(t testing.TB, pod *corev1.Pod) {
	t.Helper()

	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), n.waitTimeout())
	defer cancel()

	pods := n.Client.CoreV1().Pods(pod.Namespace)
	for {
		err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return
		}
		if err != nil {
			t.Errorf("deleting pod %s: %v", pod.Name, err)
			return
		}

		select {
		case <-ctx.Done():
			t.Errorf("pod %s still exists after %s, want it deleted", pod.Name, n.waitTimeout())
			return
		case <-time.After(n.pollInterval()):
		}
	}
}

// Await returns the pod once ok returns true.
func (n *Node) Await(t testing.TB, pod *corev1.Pod, what string, ok func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()

	var last *corev1.Pod
	n.Eventually(t, fmt.Sprintf("pod %s %s", pod.Name, what), func() error {
		p, err := n.Client.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}

		last = p

		if !ok(p) {
			return fmt.Errorf("status is %+v", p.Status)
		}

		return nil
	})

	return last
}

// Eventually polls until check returns nil.
func (n *Node) Eventually(t testing.TB, what string, check func() error) {
	t.Helper()

	deadline := time.Now().Add(n.waitTimeout())
	for {
		err := check()
		if err == nil {
			return
		}

		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s, want it then: %v", what, n.waitTimeout(), err)
		}

		select {
		case <-t.Context().Done():
			t.Fatalf("%s: the test ended first: %v", what, err)
		case <-n.Done():
			t.Fatalf("%s: node %s has ended, want it running: %v", what, n.Name(), err)
		case <-time.After(n.pollInterval()):
		}
	}
}

// Exec runs a command in the pod's container and returns its output.
func (n *Node) Exec(t testing.TB, pod *corev1.Pod, command ...string) (string, error) {
	t.Helper()

	// Shorter than the caller's timeout, so that a command that hangs is retried.
	ctx, cancel := context.WithTimeout(t.Context(), n.waitTimeout()/4)
	defer cancel()

	request := n.Client.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).
		SubResource("exec").VersionedParams(&corev1.PodExecOptions{
		Container: pod.Spec.Containers[0].Name,
		Command:   command,
		Stdout:    true,
		Stderr:    true,
	}, scheme.ParameterCodec)

	executor, err := remotecommand.NewWebSocketExecutor(n.Config, "GET", request.URL().String())
	if err != nil {
		return "", err
	}

	var out, errOut bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &errOut}); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, errOut.String())
	}

	return out.String(), nil
}

// Logs returns the output of the pod's container so far.
func (n *Node) Logs(t testing.TB, pod *corev1.Pod) (string, error) {
	t.Helper()

	// The context of a test ends before its cleanup, which needs logs most.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), n.waitTimeout())
	defer cancel()

	content, err := n.Client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
	return string(content), err
}
