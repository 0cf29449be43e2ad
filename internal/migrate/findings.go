// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Severity is how much a finding matters.
type Severity string

// The severities.
const (
	// SeverityDecision stops a migration until the user decides.
	SeverityDecision Severity = "decision"
	// SeverityWarning is a change of behavior, or a risk.
	SeverityWarning Severity = "warning"
	// SeverityNote is good to know.
	SeverityNote Severity = "note"
)

// Finding is something about the cluster that a user should read before a migration.
type Finding struct {
	Severity Severity `json:"severity"`
	// Reason is a CamelCase identifier.
	Reason  string   `json:"reason"`
	Message string   `json:"message"`
	Objects []string `json:"objects,omitempty"`
}

// lastMinorOfHPA is the last minor version of Kubernetes with autoscaling/v2beta2, which gocrane uses; firstMinorOfCrane is the first with
// everything that Crane needs (ValidatingAdmissionPolicy of admissionregistration.k8s.io/v1).
const (
	lastMinorOfHPA    = 25
	firstMinorOfCrane = 30
)

// findings returns what changes behavior, in the order of their severity.
func findings(inv *Inventory, serverVersion string) []Finding {
	if !inv.Installed() {
		return unproven(inv)
	}

	out := unproven(inv)
	for _, look := range []func(*Inventory) []Finding{
		autoscalersThatAct, externalMetricsOwner, genericRoles, publicKeys, gitOps, localTime, podUse, userRules, annotationReaders, unreadable, hostFiles,
	} {
		out = append(out, look(inv)...)
	}

	out = append(out, versionFindings(serverVersion)...)
	order := []Severity{SeverityDecision, SeverityWarning, SeverityNote}
	slices.SortStableFunc(out, func(a, b Finding) int { return slices.Index(order, a.Severity) - slices.Index(order, b.Severity) })

	return out
}

// selected returns the names of the items for which a function returns true.
func (i *Inventory) selected(is func(Item) bool) []string {
	var out []string
	for _, item := range i.Items {
		if is(item) {
			out = append(out, item.String())
		}
	}

	return out
}

func one(severity Severity, reason, message string, objects []string) []Finding {
	if len(objects) == 0 {
		return nil
	}

	return []Finding{{severity, reason, message, objects}}
}

func autoscalersThatAct(inv *Inventory) []Finding {
	return one(SeverityDecision, "EVPAActs",
		"gocrane stored updateMode of EffectiveVerticalPodAutoscalers and ignored it; Crane acts on it at once. Choose --evpa=off (set to Off for now) or --evpa=act.",
		inv.selected(func(it Item) bool { return it.Kind == evpaKindName && it.Fate == FateDecision }))
}

func externalMetricsOwner(inv *Inventory) []Finding {
	for _, o := range inv.others["APIService"] {
		if o.GetName() != externalMetricsAPI {
			continue
		}

		owner := stringAt(o, "spec", "service", "namespace") + "/" + stringAt(o, "spec", "service", "name")
		if stringAt(o, "spec", "service", "name") == componentAdapter {
			return nil
		}

		return one(SeverityDecision, "ForeignExternalMetrics",
			"external.metrics.k8s.io is served by "+owner+". A cluster has one adapter: forecasts and schedules do not reach autoscalers unless Crane serves it. Choose --external-metrics=keep or --external-metrics=take.",
			[]string{RefOf(o).String()})
	}

	return nil
}

func genericRoles(inv *Inventory) []Finding {
	return one(SeverityWarning, "SharedRole", "ClusterRoles with generic names have users that are not gocrane's: they are kept.",
		inv.selected(func(it Item) bool { return it.Kind == "ClusterRole" && it.Fate == FateDecision }))
}

// publicKeys finds the certificate whose key gocrane published: anyone can impersonate the webhook or the authority that signed it.
func publicKeys(inv *Inventory) []Finding {
	var out []string
	for _, item := range inv.Items {
		if item.Kind != "Secret" || item.Name != "webhook-server-tls" {
			continue
		}

		text := item.String()
		if content, err := base64.StdEncoding.DecodeString(stringAt(item.object, "data", "tls.crt")); err == nil {
			if subject := certificateText(content); subject != "" {
				text += " (" + subject + ")"
			}
		}

		out = append(out, text)
	}

	return one(SeverityWarning, "PublicKey",
		"the private keys of gocrane's webhook certificate and of its authority are published. The migration removes the Secret and the webhooks that trust it; remove the authority from everything else that trusts it.", out)
}

func certificateText(content []byte) string {
	block, _ := pem.Decode(content)
	if block == nil {
		return ""
	}

	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return ""
	}

	return fmt.Sprintf("%s, valid to %s", c.Subject, c.NotAfter.UTC().Format("2006-01-02"))
}

// gitOps finds objects that a GitOps controller would write back.
func gitOps(inv *Inventory) []Finding {
	return one(SeverityWarning, "GitOps", "a GitOps controller manages these and would write them back: suspend it, and replace gocrane in its repository before it resumes.",
		inv.selected(func(it Item) bool {
			if it.Fate == FateKept {
				return false
			}

			for key := range it.object.GetLabels() {
				if strings.HasPrefix(key, "argocd.argoproj.io/") || strings.HasPrefix(key, "kustomize.toolkit.fluxcd.io/") || strings.HasPrefix(key, "helm.toolkit.fluxcd.io/") {
					return true
				}
			}

			return it.object.GetAnnotations()["argocd.argoproj.io/tracking-id"] != ""
		}))
}

// localTime finds cron windows without a time zone.
func localTime(inv *Inventory) []Finding {
	return one(SeverityWarning, "CronLocalTime",
		"gocrane evaluated cron windows without time zone in the zone of its container (Asia/Shanghai); Crane uses UTC. The migration keeps gocrane's zone with --ehpa-cron-local-time and TZ.",
		inv.selected(func(it Item) bool {
			return it.Kind == "EffectiveHorizontalPodAutoscaler" && slices.ContainsFunc(mapsAt(it.object, "spec", "crons"), func(c map[string]any) bool {
				zone, _ := c["timezone"].(string)
				return zone == "" || zone == "Local"
			})
		}))
}

func podUse(inv *Inventory) []Finding {
	var out []Finding
	if n := inv.Pods.Scheduled; n > 0 {
		out = append(out, Finding{SeverityNote, "PodsOfScheduler", fmt.Sprintf("%d pods name the scheduler crane-scheduler. While it is replaced, new pods that name it wait; running pods do not change.", n), nil})
	}
	if n := inv.Pods.Elastic; n > 0 {
		out = append(out, Finding{SeverityWarning, "ElasticPods", fmt.Sprintf("%d pods request gocrane.io resources. Their nodes keep this capacity until Crane's agent offers it.", n), nil})
	}

	return out
}

// recordedSeries are series of gocrane's recording rules that its dashboards and scheduler read.
func recordedSeries() []string {
	return append(loadMetrics(), "cpu_usage_active", "mem_usage_active", "container_cpu_usage_costs_hourly", "container_memory_usage_costs_hourly", "_hourly_cost:avg")
}

// userRules recognizes Prometheus rules that users added for gocrane, in PrometheusRules and ConfigMaps.
func userRules(inv *Inventory) []Finding {
	var out []string
	for _, o := range slices.Concat(inv.others["PrometheusRule"], inv.others["ConfigMap"]) {
		if names := rulesIn(o); len(names) > 0 {
			out = append(out, RefOf(o).String()+": "+strings.Join(names, ", "))
		}
	}

	slices.Sort(out)
	return one(SeverityNote, "RecordingRules", "recording rules for gocrane: they stay. Crane's default policy of node loads needs none; the translated policy reads these.", out)
}

// rulesIn returns the recorded series of gocrane that an object defines.
func rulesIn(o *Object) []string {
	// ConfigMaps hold rules as text, PrometheusRules as objects.
	found := map[string]bool{}
	mark := func(text string) {
		for _, series := range recordedSeries() {
			for _, start := range []string{"record: ", `record: "`, "record: '"} {
				_, name, ok := strings.Cut(text, start)
				for ok {
					line, _, _ := strings.Cut(name, "\n")
					if strings.Contains(line, series) {
						found[strings.Trim(strings.TrimSpace(line), `"'`)] = true
					}

					_, name, ok = strings.Cut(name, start)
				}
			}
		}
	}

	for _, text := range stringMapAt(o, "data") {
		mark(text)
	}

	for _, group := range mapsAt(o, "spec", "groups") {
		rules, _ := group["rules"].([]any)
		for _, r := range rules {
			if m, ok := r.(map[string]any); ok {
				record, _ := m["record"].(string)
				mark("record: " + record)
			}
		}
	}

	return slices.Sorted(maps.Keys(found))
}

// annotationReaders finds dashboards that read gocrane's series.
func annotationReaders(inv *Inventory) []Finding {
	var out []string
	for _, o := range inv.others["ConfigMap"] {
		for _, text := range stringMapAt(o, "data") {
			if strings.Contains(text, `"panels"`) && (strings.Contains(text, "crane_analysis_") || strings.Contains(text, "crane_autoscaling_") || strings.Contains(text, "_hourly_cost")) {
				out = append(out, RefOf(o).String())
				break
			}
		}
	}

	slices.Sort(out)
	return one(SeverityNote, "Dashboards", "dashboards that read gocrane's series: names and labels stay, but series disappear with their object and only the leader exports them.", out)
}

func unreadable(inv *Inventory) []Finding {
	var out []string
	for kind, reason := range inv.Unreadable {
		out = append(out, kind+": "+reason)
	}

	slices.Sort(out)
	return one(SeverityDecision, "Unreadable", "these were not read, so the inventory is incomplete: check with more rights.", out)
}

// hostFiles says what only an agent sees.
func hostFiles(inv *Inventory) []Finding {
	if len(inv.selected(func(it Item) bool { return it.Component == componentAgent })) == 0 {
		return nil
	}

	return []Finding{{SeverityNote, "HostsUnknown", "what gocrane's agent left on hosts (throttled cgroups, /var/lib/kubelet/crane_cpu_manager_state) is unknown until crane-agent runs there; it imports the state file where its CPU manager is on and the file is mounted.", nil}}
}

func versionFindings(serverVersion string) []Finding {
	minor, ok := minorOf(serverVersion)
	if !ok {
		return []Finding{{SeverityWarning, "VersionUnknown", "the version of Kubernetes, " + strconv.Quote(serverVersion) + ", cannot be read.", nil}}
	}

	var out []Finding
	if minor > lastMinorOfHPA {
		out = append(out, Finding{SeverityWarning, "GocraneBroken", fmt.Sprintf("Kubernetes %s has no autoscaling/v2beta2, which gocrane 0.11 uses: its EffectiveHorizontalPodAutoscalers are not reconciled. An undo brings back what works today, which is not all of gocrane.", serverVersion), nil})
	}
	if minor < firstMinorOfCrane {
		out = append(out, Finding{SeverityDecision, "KubernetesTooOld", fmt.Sprintf("Crane needs Kubernetes 1.%d or newer, the cluster has %s. Export with `crane migrate export`, upgrade the cluster (gocrane stops working at 1.%d), and run the migration then, or import into a new cluster.", firstMinorOfCrane, serverVersion, lastMinorOfHPA+1), nil})
	}

	return out
}

// minorOf returns the minor version of v1.30.2 and the like.
func minorOf(version string) (int, bool) {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 || parts[0] != "1" {
		return 0, false
	}

	digits := strings.TrimRight(parts[1], "+")
	n, err := strconv.Atoi(digits)
	return n, err == nil
}

// hasLocalCrons reports whether any autoscaler has a cron window in gocrane's local time.
func (i *Inventory) hasLocalCrons() bool { return len(localTime(i)) > 0 }
