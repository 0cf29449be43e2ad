// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/kube/clusteraccess"
)

const cleanupLong = `Cleanup node removes what crane-agent left on nodes after its DaemonSet is gone: limits of pods that an agent set and did not undo, and the
directory /var/lib/crane-agent. On each node it runs a pod of the agent's image with --cleanup, as root, and deletes it afterward. It names the nodes on
which CPU quotas of gocrane's agent may be left, which it does not restore.`

const (
	cleanupPrefix = "crane-cleanup-"
	agentName     = "crane-agent"
	// cleanupPoll is the interval between reads of a pod's phase.
	cleanupPoll = time.Second
)

// nodeCleanup runs a pod on each node.
type nodeCleanup struct {
	clients          kubernetes.Interface
	namespace, image string
	stateDir         string
	timeout          time.Duration
	out              io.Writer
}

// newCleanupCommand returns `crane cleanup`.
func newCleanupCommand(s Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove what Crane leaves after its removal",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}

	var access clusteraccess.Access
	c := nodeCleanup{out: s.Out}
	node := &cobra.Command{
		Use:     "node [NAME...]",
		Short:   "Undo what ended agents changed on nodes, by default on all",
		Long:    cleanupLong,
		Example: "  crane cleanup node --image registry.example/crane/crane-agent:0.1.0",
		RunE: func(cmd *cobra.Command, names []string) error {
			if c.image == "" {
				return usageError(errors.New("--image: set the image of crane-agent that was installed"))
			}

			var err error
			if c.clients, _, err = access.Clientset(); err != nil {
				return err
			}

			return c.run(cmd.Context(), names)
		},
	}

	fs := node.Flags()
	addKubernetesFlags(fs, &access)
	fs.StringVar(&c.image, "image", "", "image of crane-agent")
	fs.StringVar(&c.namespace, "craned-namespace", "crane-system", "namespace of the agents and of the pods; its Pod Security level must be privileged")
	fs.StringVar(&c.stateDir, "state-dir", "/var/lib/crane-agent", "the agents' --state-dir, a directory of the nodes below /var/lib")
	fs.DurationVar(&c.timeout, "timeout", 2*time.Minute, "time to wait for the pod of a node")
	cmd.AddCommand(node)

	return cmd
}

// run cleans up the nodes one after the other. A failure does not stop it.
func (c nodeCleanup) run(ctx context.Context, names []string) error {
	// An agent that still runs would make its changes again.
	_, err := c.clients.AppsV1().DaemonSets(c.namespace).Get(ctx, agentName, metav1.GetOptions{})
	if err == nil {
		return fmt.Errorf("DaemonSet %s/%s exists: remove it first, its agents undo their changes when they stop", c.namespace, agentName)
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading DaemonSet %s/%s: %w", c.namespace, agentName, err)
	}

	nodes, err := c.clients.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("reading nodes: %w", err)
	}

	var all []string
	noted := map[string]bool{}
	for i := range nodes.Items {
		name := nodes.Items[i].Name
		all = append(all, name)
		_, noted[name] = nodes.Items[i].Annotations[ensurancev1alpha1.AnnotationPredecessor]
	}

	if len(names) == 0 {
		names = all
	}

	var errs []error
	for _, name := range names {
		if !slices.Contains(all, name) {
			errs = append(errs, fmt.Errorf("node %s does not exist", name))
			continue
		}

		text, err := c.node(ctx, name)
		if err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", name, err))
			continue
		}

		if noted[name] {
			text += fmt.Sprintf("%s: CPU quotas that gocrane's agent left may still be there: restart the pods of the node, then remove its annotation %s\n", name, ensurancev1alpha1.AnnotationPredecessor)
		}

		if _, err := termtext.Fprintf(c.out, "%s: %s\n", name, termtext.Trusted(termtext.Indent(text))); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
	}

	return errors.Join(errs...)
}

// node runs the pod of a node and returns its output.
func (c nodeCleanup) node(ctx context.Context, node string) (string, error) {
	pods := c.clients.CoreV1().Pods(c.namespace)
	pod, err := pods.Create(ctx, c.pod(node), metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("creating a pod: %w", err)
	}
	defer func() {
		_ = pods.Delete(context.WithoutCancel(ctx), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}) // reported below if it matters
	}()

	err = wait.PollUntilContextTimeout(ctx, cleanupPoll, c.timeout, true, func(ctx context.Context) (bool, error) {
		pod, err = pods.Get(ctx, pod.Name, metav1.GetOptions{})
		return err == nil && (pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed), err
	})
	if err != nil {
		return "", fmt.Errorf("pod %s/%s is %s: %w", c.namespace, pod.Name, pod.Status.Phase, err)
	}

	logs, err := pods.GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if pod.Status.Phase == corev1.PodFailed {
		return "", errors.Join(fmt.Errorf("pod %s/%s failed: %s", c.namespace, pod.Name, logs), err)
	}

	return string(logs), err
}

func (c nodeCleanup) pod(node string) *corev1.Pod {
	const root, state = "/host", "/var/lib"
	mount := func(name, path string, readOnly bool) (corev1.Volume, corev1.VolumeMount) {
		source := corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: new(corev1.HostPathDirectory)}}
		return corev1.Volume{Name: name, VolumeSource: source}, corev1.VolumeMount{Name: name, MountPath: root + path, ReadOnly: readOnly}
	}
	// The agent writes cgroups and its state and reads the rest.
	proc, procMount := mount("proc", "/proc", true)
	cgroups, cgroupsMount := mount("cgroup", "/sys/fs/cgroup", false)
	lib, libMount := mount("lib", state, false)

	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: cleanupPrefix, Namespace: c.namespace, Labels: map[string]string{"app.kubernetes.io/name": "crane-cleanup", "app.kubernetes.io/part-of": "crane"}},
		Spec: corev1.PodSpec{
			NodeName:                     node,
			RestartPolicy:                corev1.RestartPolicyNever,
			AutomountServiceAccountToken: new(false),
			Tolerations:                  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			SecurityContext:              &corev1.PodSecurityContext{RunAsUser: new(int64(0)), RunAsGroup: new(int64(0)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: agentName, Image: c.image, Args: []string{"--cleanup", "--host-root=" + root, "--state-dir=" + root + c.stateDir},
				VolumeMounts: []corev1.VolumeMount{procMount, cgroupsMount, libMount},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
			Volumes: []corev1.Volume{proc, cgroups, lib},
		},
	}
}
