// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"crane.io/crane/internal/component/documents"
	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/component/texttable"
	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/metrics/progressline"
	"crane.io/crane/internal/nodeload/schedulerclient"
	"crane.io/crane/pkg/nodeload"
)

const explainSchedulingLong = `Explain scheduling prints how the Dynamic plugin of crane-scheduler filtered and scored the nodes in the latest attempt to
schedule a pod. The scheduler records the latest attempts, about a hundred in a cluster of 5,000 nodes.

The scheduler is found in Crane's namespace by the label app.kubernetes.io/name=crane-scheduler and reached by port forwarding, which
requires the permission to create pods/portforward there. --scheduler sets its address instead.

  Closed  the node was filtered out: load + load of recently placed pods + this pod exceed a limit
  Scored  the score, at most 100; its parts are sums weighted by the policy
  Passed  not scored: filtered out by another plugin, or the only remaining node

Exit codes: 0 success; 1 no scheduler responds; 2 the flags are invalid; 3 no scheduler has a record of the pod.`

// explainOptions are the flags of `crane explain scheduling`.
type explainSchedulingOptions struct {
	kubernetes clusteraccess.Access
	// cranedNamespace is the namespace of the scheduler.
	cranedNamespace string
	scheduler       string
	port            int
	namespace       string
	output          string
	nodes           []string
	rows            int
}

func newExplainCommand(s Streams) *cobra.Command {
	return newGroupCommand("explain", "Explain decisions of Crane", newExplainWorkloadCommand(s), newExplainSchedulingCommand(s))
}

func newExplainSchedulingCommand(s Streams) *cobra.Command {
	o := &explainSchedulingOptions{}
	cmd := &cobra.Command{
		Use:   "scheduling POD",
		Short: "Explain how nodes were filtered and scored for a pod",
		Long:  explainSchedulingLong,
		Args:  func(cmd *cobra.Command, args []string) error { return usageError(cobra.ExactArgs(1)(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			namespace, name, err := o.validate(args[0])
			if err != nil {
				return usageError(err)
			}

			progress := progressline.New(s.Err, "asking the schedulers", nil)
			scheduler := schedulerclient.Client{
				Access:    &o.kubernetes,
				Namespace: o.cranedNamespace,
				Port:      o.port,
				Address:   o.scheduler,
			}
			found, err := scheduler.Explanations(cmd.Context(), namespace, name)
			progress.Stop()

			if err != nil {
				return err
			}

			return o.write(s.Out, found)
		},
	}

	fs := cmd.Flags()
	addKubernetesFlags(fs, &o.kubernetes)
	fs.StringVarP(&o.namespace, "namespace", "n", "default", "namespace of the pod, unless POD is NAMESPACE/NAME")
	fs.StringVar(&o.scheduler, "scheduler", "", "address of the scheduler's explainAddress, such as http://127.0.0.1:10260 (default: by port forwarding)")
	addCranedNamespaceFlag(fs, &o.cranedNamespace)
	fs.IntVar(&o.port, "scheduler-port", schedulerclient.DefaultPort, "port of the scheduler's explainAddress, for port forwarding")
	fs.StringVarP(&o.output, "output", "o", outputTable, "format: table or json")
	fs.StringSliceVar(&o.nodes, "node", nil, "only these nodes")
	fs.IntVar(&o.rows, "rows", 20, "maximum number of rows per verdict; 0 for all")

	return cmd
}

func (o *explainSchedulingOptions) validate(pod string) (namespace, name string, err error) {
	namespace = o.namespace
	name = pod
	if before, after, ok := strings.Cut(pod, "/"); ok {
		namespace = before
		name = after
	}

	switch {
	case namespace == "" || name == "" || strings.Contains(name, "/"):
		return "", "", fmt.Errorf("pod %q: want NAME or NAMESPACE/NAME", pod)
	case checkTableOrJSON(o.output) != nil:
		return "", "", checkTableOrJSON(o.output)
	case o.rows < 0:
		return "", "", fmt.Errorf("--rows %d: want 0 or more", o.rows)
	case o.port < 1 || o.port > 65535:
		return "", "", fmt.Errorf("--scheduler-port %d: want 1 to 65535", o.port)
	}

	return namespace, name, nil
}

func (o *explainSchedulingOptions) write(w io.Writer, found []nodeload.Explanation) error {
	if len(o.nodes) > 0 {
		for i := range found {
			found[i].Nodes = slices.DeleteFunc(found[i].Nodes, func(n nodeload.NodeExplanation) bool { return !slices.Contains(o.nodes, n.Name) })
		}
	}

	var out strings.Builder
	if o.output == outputJSON {
		if err := documents.WriteJSON(&out, map[string]any{"explanations": found}); err != nil {
			return fmt.Errorf("encoding the explanation: %w", err)
		}
	} else {
		for i := range found {
			o.describe(&out, &found[i])
		}
	}

	if _, err := io.WriteString(w, out.String()); err != nil {
		return fmt.Errorf("writing the explanation: %w", err)
	}

	return nil
}

// describe writes one explanation as text.
func (o *explainSchedulingOptions) describe(out *strings.Builder, e *nodeload.Explanation) {
	termtext.Fprintf(out, "Pod %s: %s at %s by profile %s, strategy %s\n", e.Pod, e.Outcome, e.Time.Format("2006-01-02 15:04:05Z"), e.Profile, e.Strategy)
	termtext.Fprintf(out, "Expected usage: %dm CPU and %.1f MiB memory, from its %s\n", e.CPU, float64(e.Memory)/(1<<20), schedulerclient.BasisText(e.Basis))
	termtext.Fprintf(out, "Nodes: %d with fresh load, %d with stale load, %d without load; %d not evaluated\n", e.Fresh, e.Stale, e.Absent, e.NotAsked)

	if len(e.LeftOut) > 0 {
		termtext.Fprintf(out, "Ignored metrics, reported by too few nodes: %s\n", strings.Join(e.LeftOut, ", "))
	}
	if e.Abstains {
		out.WriteString("The plugin abstained: too few nodes report their load\n")
	}
	if e.Exempt {
		out.WriteString("Load limits do not apply to this pod: it belongs to a DaemonSet or is system-critical\n")
	}

	if len(e.Nodes) == 0 {
		out.WriteString("\n")
		return
	}

	t := texttable.New()
	t.AppendHeader([]any{"NODE", "VERDICT", "SCORE", "REASON"})

	hidden := map[nodeload.Verdict]int{}
	rows := map[nodeload.Verdict]int{}
	for i := range e.Nodes {
		n := &e.Nodes[i]
		rows[n.Verdict]++

		if o.rows > 0 && rows[n.Verdict] > o.rows {
			hidden[n.Verdict]++
			continue
		}

		score := emptyCell
		if n.Score != nil {
			score = fmt.Sprint(*n.Score)
		}

		t.AppendRow([]any{n.Name, string(n.Verdict), text.AlignRight.Apply(score, len("SCORE")), n.Reason()})
	}

	out.WriteString("\n" + t.Render() + "\n")
	// Hidden rows are counted by verdict, so that the reader knows what is missing.
	for _, verdict := range []nodeload.Verdict{nodeload.Scored, nodeload.Passed, nodeload.Closed} {
		if n := hidden[verdict]; n > 0 {
			termtext.Fprintf(out, "... and %d more that are %s (--rows 0 shows all)\n", n, verdict)
		}
	}

	out.WriteString("\n")
}
