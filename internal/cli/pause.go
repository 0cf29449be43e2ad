// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"

	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/kube/pause"
)

const pauseLong = `Pause stops all writes of Crane to objects that are not Crane's, within seconds: craned and the agents follow the ConfigMap crane-pause, which
this command writes. Recommendations and forecasts are still computed. Limits that agents have set stay until they are undone or the agent
stops. "crane resume" permits writes again.`

// newPauseCommand returns `crane pause`, or `crane resume`.
func newPauseCommand(s Streams, paused bool) *cobra.Command {
	var access clusteraccess.Access
	var namespace, reason string
	cmd := &cobra.Command{
		Use:     "pause",
		Short:   "Stop all writes of Crane to objects that are not Crane's",
		Long:    pauseLong,
		Args:    noArgs,
		Example: "  crane pause --reason 'incident 7'\n  crane resume",
		RunE: func(cmd *cobra.Command, _ []string) error {
			clients, _, err := access.Clientset()
			if err != nil {
				return err
			}

			return setPaused(cmd.Context(), s.Out, clients, namespace, paused, reason)
		},
	}

	if !paused {
		cmd.Use = "resume"
		cmd.Short = "Permit the writes that crane pause stopped"
		cmd.Long = ""
	}

	fs := cmd.Flags()
	addKubernetesFlags(fs, &access)
	fs.StringVar(&namespace, "craned-namespace", "crane-system", "namespace of craned")

	if paused {
		fs.StringVar(&reason, "reason", "", "text that conditions and errors repeat")
	}

	return cmd
}

func setPaused(ctx context.Context, out io.Writer, clients kubernetes.Interface, namespace string, paused bool, reason string) error {
	apply := corev1.ConfigMap(pause.ConfigMapName, namespace).WithData(map[string]string{
		pause.KeyPaused: strconv.FormatBool(paused), pause.KeyReason: reason,
	})

	_, err := clients.CoreV1().ConfigMaps(namespace).Apply(ctx, apply, metav1.ApplyOptions{FieldManager: "crane", Force: true})
	if err != nil {
		return fmt.Errorf("writing ConfigMap %s/%s: %w", namespace, pause.ConfigMapName, err)
	}

	text := "Crane is paused"
	if !paused {
		text = "Crane writes again"
	}

	if _, err := termtext.Fprintf(out, "%s (ConfigMap %s/%s)\n", text, namespace, pause.ConfigMapName); err != nil {
		return fmt.Errorf("writing: %w", err)
	}

	return nil
}
