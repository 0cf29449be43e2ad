// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"slices"
	"strings"
)

// step is a part of a migration that is recorded.
type step struct {
	name, purpose string
	// pause reports whether a run stops before the step until it is called with --continue.
	pause      bool
	operations []operation
}

// The names of steps.
const (
	stepBackup    = "backup"
	stepWebhooks  = "remove-webhooks"
	stepHelm      = "detach-helm"
	stepStop      = "stop-gocrane"
	stepEVPAs     = "hold-vertical-autoscalers"
	stepObjects   = "hand-over-objects"
	stepCRDs      = "update-definitions"
	stepNodes     = "clean-nodes"
	stepRights    = "install-rights"
	stepCraned    = "replace-craned"
	stepAdmission = "install-webhooks"
	stepAdapter   = "replace-metric-adapter"
	stepAgent     = "replace-agent"
	stepScheduler = "replace-scheduler"
	stepRetire    = "remove-leftovers"
)

// steps returns the steps after the backup, in their order. They follow from the state and the options alone. Steps without operations are left out.
func steps(s *state, o Options) []step {
	b := &builder{state: s, options: o, originals: s.originals()}
	plan := b.migrationSteps
	if o.Away {
		plan = b.awaySteps
	}

	return slices.DeleteFunc(plan(), func(s step) bool { return len(s.operations) == 0 })
}

// migrationSteps returns the steps that replace gocrane by Crane.
func (b *builder) migrationSteps() []step {
	return []step{
		{stepWebhooks, "gocrane's webhooks refuse writes once its craned has stopped", false, b.webhooks()},
		{stepHelm, "`helm uninstall` or `helm upgrade` of gocrane would delete or overwrite Crane", false, b.helm()},
		{stepStop, "only one of both may write; metric-adapter and crane-scheduler go on", false, b.stop()},
		{stepEVPAs, "gocrane ignored the update mode, Crane acts on it", false, b.evpas()},
		{stepObjects, "objects of gocrane's controllers stay as they are", false, b.objects()},
		{stepCRDs, "Crane's fields, and status as a subresource; objects and their status stay", false, b.definitions()},
		{stepNodes, "the marks of gocrane's agent and scheduler would stay for ever", false, b.nodes(true)},
		{stepRights, "ServiceAccounts, roles, admission policies and configuration of Crane", false, b.rights()},
		{stepCraned, "craned takes over objects and the lease", false, b.workload(componentCraned, true)},
		{stepAdmission, "craned serves them from now on", false, b.admission()},
		{stepAdapter, "external metrics are answered without a gap", false, b.adapter()},
		{stepAgent, "Crane's agent measures nodes and acts as far as --enforce permits", false, b.workload(componentAgent, true)},
		{stepScheduler, "pods that name crane-scheduler wait until it is ready", false, b.scheduler()},
		{stepRetire, "what nothing uses any more, among it the Secret whose key is public", true, b.leftovers()},
	}
}

// builder makes the operations of steps.
type builder struct {
	state     *state
	options   Options
	originals map[Ref]*Object
}

// removals returns operations that delete the items that a function selects.
func (b *builder) removals(selects func(storedItem) bool) []operation {
	var out []operation
	for _, item := range b.state.Items {
		if selects(item) {
			out = append(out, removeObject{RefOf(item.Object)})
		}
	}

	return out
}

func (b *builder) webhooks() []operation {
	return b.removals(func(i storedItem) bool { return isAdmission(i.Object) })
}

func isAdmission(o *Object) bool { return strings.HasSuffix(o.GetKind(), "WebhookConfiguration") }

func (b *builder) helm() []operation {
	return b.removals(func(i storedItem) bool { return i.Component == componentHelm && i.Fate == FateRemoved })
}

// stop stops what writes: craned, the scheduler's controller and the agents.
func (b *builder) stop() []operation {
	var out []operation
	for _, item := range b.state.Items {
		kind := item.Object.GetKind()
		name := item.Object.GetName()
		if kind == "Deployment" && (name == componentCraned || name == "crane-scheduler-controller") || kind == "DaemonSet" && name == componentAgent {
			out = append(out, stopWorkload{RefOf(item.Object)})
		}
	}

	return out
}

func (b *builder) evpas() []operation {
	if b.options.EVPA != EVPAOff {
		return nil
	}

	var out []operation
	for _, item := range b.state.Items {
		if item.Object.GetKind() == evpaKindName && actsAtOnce(item.Object) {
			out = append(out, setField{RefOf(item.Object), updateModePath(), "Off"})
		}
	}

	return out
}

// objects returns those that gocrane's controllers made, and that Crane's may change.
func (b *builder) objects() []operation {
	var refs []Ref
	for _, item := range b.state.Items {
		generated := item.Object.GetLabels()[labelManagedBy] == ehpaManager
		if generated && item.Component == componentObjects || item.Object.GetKind() == "Recommendation" || item.Object.GetKind() == "NodeResourceTopology" {
			refs = append(refs, RefOf(item.Object))
		}
	}

	return []operation{returnObjects{refs}}
}

// puts returns operations that write the manifests that a function selects.
func (b *builder) puts(selects func(*Object) bool) []operation {
	var out []operation
	for _, o := range b.state.Desired {
		if selects(o) {
			out = append(out, putObject{o})
		}
	}

	return out
}

func (b *builder) definitions() []operation {
	return b.puts(func(o *Object) bool { return o.GetKind() == "CustomResourceDefinition" })
}

func (b *builder) admission() []operation {
	out := b.puts(isAdmission)
	for _, o := range b.state.Desired {
		if isAdmission(o) {
			out = append(out, awaitTrust{RefOf(o)})
		}
	}

	return out
}

// nodes returns the withdrawal of marks from Nodes. forAgent leaves a record for Crane's agent where gocrane's has acted.
func (b *builder) nodes(forAgent bool) []operation {
	var out []operation
	for _, item := range b.state.Items {
		if item.Object.GetKind() != "Node" {
			continue
		}

		marks := marksOf(item.Object, b.state.Metrics, !forAgent).withdrawal(b.state.Continued, b.state.Requested[item.Object.GetName()])
		if marks.any() {
			out = append(out, cleanNode{RefOf(item.Object), marks, forAgent && len(marks.Conditions)+len(marks.Capacity) > 0})
		}
	}

	return out
}

// rights returns everything that no step of its own installs. The Namespace comes first, and stays as it is where it exists.
func (b *builder) rights() []operation {
	out := b.puts(func(o *Object) bool { return o.GetKind() == "Namespace" && b.originals[RefOf(o)] == nil })
	return append(out, b.puts(func(o *Object) bool {
		switch o.GetKind() {
		case "CustomResourceDefinition", "Namespace", "Deployment", "DaemonSet", "Service", "APIService":
			return false
		}

		return !isAdmission(o)
	})...)
}

// desiredNamed returns the manifest of a kind and a name.
func (b *builder) desiredNamed(kind, name string) *Object {
	i := slices.IndexFunc(b.state.Desired, func(o *Object) bool { return o.GetKind() == kind && o.GetName() == name })
	if i < 0 {
		return nil
	}

	return b.state.Desired[i]
}

// workload replaces a Deployment or DaemonSet and the Services of its pods.
func (b *builder) workload(name string, stopped bool) []operation {
	desired := b.desiredNamed("Deployment", name)
	if desired == nil {
		desired = b.desiredNamed("DaemonSet", name)
	}

	if desired == nil {
		return nil
	}

	swap := swapWorkload{desired: desired, services: b.servicesOf(desired), stopped: stopped}
	return []operation{swap}
}

// servicesOf returns the Services of the manifests that select the pods of a workload.
func (b *builder) servicesOf(w *Object) []*Object {
	var out []*Object
	labels := map[string]any{}
	for key, value := range stringMapAt(w, "spec", "template", "metadata", "labels") {
		labels[key] = value
	}

	for _, o := range b.state.Desired {
		selector := map[string]any{}
		for key, value := range stringMapAt(o, "spec", "selector") {
			selector[key] = value
		}

		if o.GetKind() == "Service" && len(selector) > 0 && covers(labels, selector) {
			out = append(out, o)
		}
	}

	return out
}

// adapter replaces metric-adapter and registers its APIs where no other adapter serves them.
func (b *builder) adapter() []operation {
	out := b.workload(componentAdapter, false)
	if len(out) == 0 {
		return nil
	}

	swap, _ := out[0].(swapWorkload)
	for _, o := range b.state.Desired {
		if o.GetKind() != "APIService" {
			continue
		}

		original := b.originals[RefOf(o)]
		switch owner := apiOwner(original); {
		case original == nil, owner != apiOwner(o) && b.options.ExternalMetrics == TakeAPI && o.GetName() == externalMetricsAPI:
			out = append(out, putObject{o})
		case isGocranes(b.state.Items, owner):
			out = append(out, moveAPI{RefOf(o), stringAt(original, "spec", "service", "namespace")})
		case owner != apiOwner(o): // of another adapter
		case o.GetName() == externalMetricsAPI && b.originals[RefOf(swap.desired)] != nil:
			swap.external = RefOf(o)
			out[0] = swap
		}
	}

	return out
}

// apiOwner returns the Service that answers an aggregated API; gocrane and Crane use the same. Empty for none.
func apiOwner(o *Object) string {
	if o == nil {
		return ""
	}

	return stringAt(o, "spec", "service", "namespace") + "/" + stringAt(o, "spec", "service", "name")
}

// isGocranes reports whether a Service, as NAMESPACE/NAME, is that of gocrane's metric-adapter in another namespace than Crane's.
func isGocranes(items []storedItem, service string) bool {
	return slices.ContainsFunc(items, func(i storedItem) bool {
		o := i.Object
		return o.GetKind() == "Service" && i.Component == componentAdapter && o.GetNamespace() != craneNamespace && o.GetNamespace()+"/"+o.GetName() == service
	})
}

func (b *builder) scheduler() []operation { return b.workload(componentScheduler, false) }

// leftovers returns what is removed in the end.
func (b *builder) leftovers() []operation {
	replaced := map[Ref]bool{}
	for _, o := range b.state.Desired {
		replaced[RefOf(o)] = true
	}

	return b.removals(func(i storedItem) bool {
		kind := i.Object.GetKind()
		if replaced[RefOf(i.Object)] || i.Component == componentHelm || isAdmission(i.Object) {
			return false
		}

		switch kind {
		case "Node", "Pod", "ReplicaSet":
			return false
		case "Deployment", "DaemonSet", "Service", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding":
			// Those that Crane takes over are in another namespace than Crane's, or the manifests do not have them.
			return i.Fate == FateRemoved || i.Fate == FateTakenOver
		case "ConfigMap":
			return i.Fate == FateRemoved || i.Fate == FateTranslated // that of Crane's namespace is among the manifests
		}

		return i.Fate == FateRemoved
	})
}
