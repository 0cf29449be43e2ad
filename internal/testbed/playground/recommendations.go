// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

// ruleName is the name of the playground's RecommendationRule.
const ruleName = "playground"

const ruleManifest = `
apiVersion: analysis.crane.io/v1alpha1
kind: RecommendationRule
metadata:
  name: ` + ruleName + `
spec:
  runInterval: 1h
  namespaceSelector:
    any: true
  resourceSelectors:
  - {kind: Deployment, apiVersion: apps/v1}
  - {kind: StatefulSet, apiVersion: apps/v1}
  - {kind: DaemonSet, apiVersion: apps/v1}
  - {kind: CronJob, apiVersion: batch/v1}
  recommenders:
  - name: Resource
    # The workloads are new, their history is not.
    config: {creation-cooldown: 0s}
`

// waitForRecommendations waits until the rule has finished its first run and returns its recommendations. While it
// waits, it calls progress with their number.
func waitForRecommendations(
	ctx context.Context, c client.Client, bound time.Duration, progress func(int),
) ([]analysisv1alpha1.Recommendation, error) {
	var list analysisv1alpha1.RecommendationList
	var rule analysisv1alpha1.RecommendationRule
	err := wait.PollUntilContextTimeout(ctx, 250*time.Millisecond, bound, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKey{Name: ruleName}, &rule); err != nil {
			return false, fmt.Errorf("reading the rule: %w", err)
		}

		if err := c.List(ctx, &list, client.MatchingLabels{analysisv1alpha1.LabelRuleName: ruleName}); err != nil {
			return false, fmt.Errorf("listing recommendations: %w", err)
		}

		progress(len(list.Items))
		return rule.Status.LastUpdateTime != nil && len(list.Items) > 0, nil
	})

	if err == nil {
		return list.Items, nil
	}

	// The condition of the rule says more than a timeout.
	if ready := meta.FindStatusCondition(rule.Status.Conditions, analysisv1alpha1.ConditionReady); ready != nil {
		return nil, fmt.Errorf("no recommendations: %w; the rule's condition Ready is %s: %s", err, ready.Reason, ready.Message)
	}

	return nil, fmt.Errorf("no recommendations: %w; craned has not updated the rule (see its log)", err)
}

// row is one container of one workload in the table of recommendations.
type row struct {
	namespace, kind, workload, container string
	cpuNow, cpu, memoryNow, memory       string
	note                                 string
}

// podTemplatePatch is the part of status.currentInfo that the table shows. The patch of a CronJob has the pod template below its job template.
type podTemplatePatch struct {
	Spec struct {
		Template    podTemplate `json:"template"`
		JobTemplate struct {
			Spec struct {
				Template podTemplate `json:"template"`
			} `json:"spec"`
		} `json:"jobTemplate"`
	} `json:"spec"`
}

type podTemplate struct {
	Spec struct {
		InitContainers []patchedContainer `json:"initContainers"`
		Containers     []patchedContainer `json:"containers"`
	} `json:"spec"`
}

// patchedContainer is a container of a patch; sidecars are among the init containers.
type patchedContainer struct {
	Name      string                      `json:"name"`
	Resources corev1.ResourceRequirements `json:"resources"`
}

// rows converts Recommendations to rows of the table; a recommendation without a value becomes a row with the reason.
func rows(items []analysisv1alpha1.Recommendation) ([]row, error) {
	var out []row
	for _, r := range items {
		base := row{namespace: r.Namespace, kind: r.Spec.TargetRef.Kind, workload: r.Spec.TargetRef.Name}
		proposed, err := proposedRequests(r)
		if err != nil {
			return nil, err
		}

		// Without a value the row shows why, so that no workload is missing from the table.
		if len(proposed) == 0 {
			base.note = "no value yet"
			if ready := meta.FindStatusCondition(r.Status.Conditions, analysisv1alpha1.ConditionReady); ready != nil {
				base.note = ready.Reason + ": " + ready.Message
			}

			out = append(out, base)
			continue
		}

		current, err := currentRequests(r)
		if err != nil {
			return nil, err
		}

		for _, c := range proposed {
			line := base
			line.container = c.ContainerName
			line.cpu = c.Target[corev1.ResourceCPU]
			line.memory = c.Target[corev1.ResourceMemory]
			now := current[c.ContainerName]
			line.cpuNow = quantity(now, corev1.ResourceCPU)
			line.memoryNow = quantity(now, corev1.ResourceMemory)
			out = append(out, line)
		}
	}

	slices.SortFunc(out, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.workload, b.workload), cmp.Compare(a.container, b.container))
	})

	return out, nil
}

func proposedRequests(r analysisv1alpha1.Recommendation) ([]analysisv1alpha1.ContainerRecommendation, error) {
	var value analysisv1alpha1.ProposedRecommendation
	if err := yaml.UnmarshalStrict([]byte(r.Status.RecommendedValue), &value); err != nil {
		return nil, fmt.Errorf("recommendation %s/%s: status.recommendedValue: %w", r.Namespace, r.Name, err)
	}

	if value.ResourceRequest == nil {
		return nil, nil
	}

	return value.ResourceRequest.Containers, nil
}

func currentRequests(r analysisv1alpha1.Recommendation) (map[string]corev1.ResourceList, error) {
	if r.Status.CurrentInfo == "" {
		return nil, nil
	}

	var patch podTemplatePatch
	if err := json.Unmarshal([]byte(r.Status.CurrentInfo), &patch); err != nil {
		return nil, fmt.Errorf("recommendation %s/%s: status.currentInfo: %w", r.Namespace, r.Name, err)
	}

	byName := map[string]corev1.ResourceList{}
	for _, template := range []podTemplate{patch.Spec.Template, patch.Spec.JobTemplate.Spec.Template} {
		for _, c := range slices.Concat(template.Spec.InitContainers, template.Spec.Containers) {
			byName[c.Name] = c.Resources.Requests
		}
	}

	return byName, nil
}

func quantity(list corev1.ResourceList, name corev1.ResourceName) string {
	if q, ok := list[name]; ok {
		return q.String()
	}

	return ""
}

// writeTable prints the rows; missing values are dashes.
func writeTable(w io.Writer, rows []row) {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	t.AppendHeader(table.Row{"Namespace", "Workload", "Container", "CPU now", "CPU", "Memory now", "Memory", "Note"})

	dash := func(s string) string { return cmp.Or(strings.TrimSpace(s), "-") }
	for _, r := range rows {
		t.AppendRow(table.Row{
			r.namespace, r.workload, dash(r.container), dash(r.cpuNow), dash(r.cpu), dash(r.memoryNow), dash(r.memory), r.note,
		})
	}

	t.Render()
}
