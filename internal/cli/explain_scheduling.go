// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"crane.io/crane/pkg/nodeload"
)

const explainSchedulingLong = `Explain scheduling says for one pod why crane-scheduler's plugin Dynamic closed nodes for it, or scored them as it did, in the
latest attempt to place it. The scheduler remembers the latest attempts, a hundred of them in a cluster of 5,000 nodes.

It finds the scheduler by the label app.kubernetes.io/name=crane-scheduler and reaches it by port forwarding, for which you
need the right to create pods/portforward there. --scheduler names its address instead.

  Closed  the node would have passed a limit: load + what is on its way + this pod
  Scored  100 is the best; the parts are sums by the weights of the policy
  Passed  not scored: another plugin closed it, or it was the only one left

Exit codes: 0 done; 1 no scheduler answers; 2 the flags are wrong; 3 no scheduler remembers the pod.`

// explainOptions are the flags of `crane explain scheduling`.
type explainOptions struct {
	kubernetes kubernetesFlags
	scheduler  string
	port       int
	namespace  string
	output     string
	nodes      []string
	rows       int
}

func newExplainCommand(s Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Say why Crane decided as it did",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newExplainSchedulingCommand(s))
	return cmd
}

func newExplainSchedulingCommand(s Streams) *cobra.Command {
	o := &explainOptions{}
	cmd := &cobra.Command{
		Use:   "scheduling POD",
		Short: "Say why each node was closed for a pod, or scored as it was",
		Long:  explainSchedulingLong,
		Args:  func(cmd *cobra.Command, args []string) error { return usageError(cobra.ExactArgs(1)(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			namespace, name, err := o.validate(args[0])
			if err != nil {
				return usageError(err)
			}
			found, err := o.ask(cmd.Context(), namespace, name)
			if err != nil {
				return err
			}
			return o.show(s.Out, found)
		},
	}
	fs := cmd.Flags()
	o.kubernetes.addFlags(fs)
	fs.StringVarP(&o.namespace, "namespace", "n", "default", "namespace of the pod, unless POD is NAMESPACE/NAME")
	fs.StringVar(&o.scheduler, "scheduler", "", "address of the scheduler's explainAddress, such as http://127.0.0.1:10260 (default: by port forwarding)")
	fs.IntVar(&o.port, "scheduler-port", 10260, "port of the scheduler's explainAddress, for port forwarding")
	fs.StringVarP(&o.output, "output", "o", outputTable, "format: table or json")
	fs.StringSliceVar(&o.nodes, "node", nil, "show only these nodes")
	fs.IntVar(&o.rows, "rows", 20, "rows to show of each verdict; 0 for all")
	return cmd
}

func (o *explainOptions) validate(pod string) (namespace, name string, err error) {
	namespace, name = o.namespace, pod
	if before, after, ok := strings.Cut(pod, "/"); ok {
		namespace, name = before, after
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

func (o *explainOptions) show(w io.Writer, found []nodeload.Explanation) error {
	if len(o.nodes) > 0 {
		for i := range found {
			found[i].Nodes = slices.DeleteFunc(found[i].Nodes, func(n nodeload.NodeExplanation) bool { return !slices.Contains(o.nodes, n.Name) })
		}
	}
	var out strings.Builder
	if o.output == outputJSON {
		if err := encodeJSON(&out, map[string]any{"explanations": found}); err != nil {
			return fmt.Errorf("encoding: %w", err)
		}
	} else {
		for i := range found {
			o.describe(&out, &found[i])
		}
	}
	if _, err := io.WriteString(w, out.String()); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

// describe writes one explanation as a page.
func (o *explainOptions) describe(out *strings.Builder, e *nodeload.Explanation) {
	fmt.Fprintf(out, "Pod %s: %s at %s by profile %s, strategy %s\n", e.Pod, e.Outcome, e.Time.Format("2006-01-02 15:04:05Z"), e.Profile, e.Strategy)
	fmt.Fprintf(out, "Expected to use %dm CPU and %.1f MiB memory, by its %s\n", e.CPU, float64(e.Memory)/(1<<20), basisWords(e.Basis))
	fmt.Fprintf(out, "Nodes: %d report fresh load, %d stale, %d none; %d were not asked about\n", e.Fresh, e.Stale, e.Absent, e.NotAsked)
	if len(e.LeftOut) > 0 {
		fmt.Fprintf(out, "Left out, because too few nodes report it: %s\n", strings.Join(e.LeftOut, ", "))
	}
	if e.Abstains {
		out.WriteString("The plugin abstained: too few nodes say how loaded they are, so that load decided nothing\n")
	}
	if e.Exempt {
		out.WriteString("Load is no reason to keep this pod off a node: it is of a DaemonSet, or critical for the system\n")
	}
	if len(e.Nodes) == 0 {
		out.WriteString("\n")
		return
	}
	t := newTable()
	t.AppendHeader([]any{"NODE", "VERDICT", "SCORE", "WHY"})
	hidden, rows := map[nodeload.Verdict]int{}, map[nodeload.Verdict]int{}
	for i := range e.Nodes {
		n := &e.Nodes[i]
		if rows[n.Verdict]++; o.rows > 0 && rows[n.Verdict] > o.rows {
			hidden[n.Verdict]++
			continue
		}
		score := nothing
		if n.Score != nil {
			score = fmt.Sprint(*n.Score)
		}
		t.AppendRow([]any{n.Name, string(n.Verdict), text.AlignRight.Apply(score, len("SCORE")), n.Reason()})
	}
	out.WriteString("\n" + t.Render() + "\n")
	for _, verdict := range []nodeload.Verdict{nodeload.Scored, nodeload.Passed, nodeload.Closed} {
		if n := hidden[verdict]; n > 0 {
			fmt.Fprintf(out, "... and %d more that are %s (--rows 0 shows all)\n", n, verdict)
		}
	}
	out.WriteString("\n")
}

// basisWords says from what an estimate was made.
func basisWords(basis string) string {
	words := map[string]string{
		"history": "workload's Recommendation", "request": "requests", "limit": "limits", "nothing": "kind: it asks for nothing",
	}
	return cmp.Or(words[basis], basis)
}
