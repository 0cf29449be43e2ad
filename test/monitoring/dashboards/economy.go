// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboards

// All returns all dashboards.
func All() []Dashboard {
	return []Dashboard{savings(), sizes(), scaling(), nodes(), agents(), memory(), costs(), crane()}
}

// podsOfWorkload is the number of pods that a workload should have, with the labels namespace and owner_name.
const podsOfWorkload = `(label_replace(kube_deployment_spec_replicas, "owner_name", "$1", "deployment", "(.+)") or ` +
	`label_replace(kube_statefulset_replicas, "owner_name", "$1", "statefulset", "(.+)"))`

func namespaceVariable() Variable {
	return Variable{Name: "namespace", Query: "crane_analysis_resource_recommendation", Label: "namespace"}
}

func one(expr, legend string) []Query { return []Query{{expr, legend}} }

func savings() Dashboard {
	return Dashboard{
		UID:         "crane-savings",
		Title:       "Crane / Savings and coverage",
		Description: "What the recommendations save, and for how many workloads there is one.",
		Variables:   []Variable{namespaceVariable()},
		Rows: []Row{
			{"Cluster", []Panel{
				{"Monthly savings", Stat, "none", "Sum over all recommendations, 730 hours, in the currency of the price book.", one(`max by (currency) (crane_analysis_recommendations_savings_monthly)`, "{{currency}}")},
				{"CPU to release", Stat, "none", "Reduction of the requested cores.", one(`max(crane_analysis_recommendations_savings_cpu_cores)`, "cores")},
				{"Memory to release", Stat, "bytes", "Reduction of the requested memory.", one(`max(crane_analysis_recommendations_savings_memory_bytes)`, "memory")},
				{"Workloads with a recommendation", Gauge, "percentunit", "Share of the selected workloads.", one(`count(count by (namespace, owner_kind, owner_name) (crane_analysis_resource_recommendation)) / count(count by (namespace, owner_kind, owner_name) (crane_analysis_select_targets{type="Resource"}))`, "coverage")},
				{"Monthly cost of the nodes", Stat, "none", "730 hours.", one(`sum by (currency) (max by (group, capacity_type, currency) (crane_cost_nodes_hourly)) * 730`, "{{currency}}")},
				{"Monthly cost of requests and usage", Stat, "none", "730 hours, by what the cost is allocated by.", one(`sum by (basis) (max by (namespace, basis) (crane_cost_namespace_hourly)) * 730`, "{{basis}}")},
				{"Up to date", Gauge, "percentunit", "Share of the recommendations within --recommendation-outdate-interval.", one(`crane:recommendations_fresh:ratio`, "up to date")},
				{"Workloads in adoption", Stat, "none", "Workloads of which something is lowered or watched.", one(`max(crane_adoption_under_way)`, "under way")},
			}},
			{"Where", []Panel{
				{"Monthly savings by namespace", TimeSeries, "none", "", one(`sum by (namespace) (max by (namespace, owner_kind, owner_name) (crane_analysis_recommendation_monthly_savings{namespace=~"$namespace"}))`, "{{namespace}}")},
				{"Savings over time", TimeSeries, "none", "", one(`max by (currency) (crane_analysis_recommendations_savings_monthly)`, "{{currency}}")},
				{"Largest savings", Table, "none", "", one(`topk(20, crane_analysis_recommendation_monthly_savings{namespace=~"$namespace"})`, "")},
			}},
		},
	}
}

func sizes() Dashboard {
	workload := `namespace=~"$namespace",owner_name=~"$workload"`
	recommended := func(resource string) string {
		return `sum by (namespace) (sum by (namespace, owner_name) (crane_analysis_resource_recommendation{` + workload + `,resource="` + resource + `"}) * on (namespace, owner_name) group_left () sum by (namespace, owner_name) ` + podsOfWorkload + `)`
	}
	pods := `pod=~"($workload)-.+"`
	request := func(resource string) string {
		return `kube_pod_container_resource_requests{namespace=~"$namespace",` + pods + `,resource="` + resource + `"}`
	}

	usage := `rate(container_cpu_usage_seconds_total{container!="",container!="POD",namespace=~"$namespace",` + pods + `}[$__rate_interval])`
	working := `container_memory_working_set_bytes{container!="",container!="POD",namespace=~"$namespace",` + pods + `}`
	compare := func(title, unit, use, requested, recommended string) Panel {
		return Panel{title, TimeSeries, unit, "", []Query{{use, "used {{namespace}}"}, {requested, "requested {{namespace}}"}, {recommended, "recommended {{namespace}}"}}}
	}
	perPod := func(resource string) string {
		return `sum by (namespace, owner_name) (crane_analysis_resource_recommendation{` + workload + `,resource="` + resource + `"})`
	}

	return Dashboard{
		UID:         "crane-sizes",
		Title:       "Crane / Current and recommended sizes",
		Description: "Requests, usage and recommendations by namespace and workload.",
		Variables:   []Variable{namespaceVariable(), {Name: "workload", Query: `crane_analysis_resource_recommendation{namespace=~"$namespace"}`, Label: "owner_name"}},
		Rows: []Row{
			{"By namespace", []Panel{
				compare("CPU by namespace", "none", `sum by (namespace) (`+usage+`)`, `sum by (namespace) (`+request("cpu")+`)`, recommended("cpu")),
				compare("Memory by namespace", "bytes", `sum by (namespace) (`+working+`)`, `sum by (namespace) (`+request("memory")+`)`, recommended("memory")),
			}},
			{"A pod of a workload", []Panel{
				{"CPU of a pod", TimeSeries, "none", "Highest and mean of the selected pods, and the recommendation for one.", []Query{{`max by (namespace) (sum by (namespace, pod) (` + usage + `))`, "highest used {{namespace}}"}, {`avg by (namespace) (sum by (namespace, pod) (` + usage + `))`, "mean used {{namespace}}"}, {`avg by (namespace) (sum by (namespace, pod) (` + request("cpu") + `))`, "requested {{namespace}}"}, {perPod("cpu"), "recommended {{owner_name}}"}}},
				{"Memory of a pod", TimeSeries, "bytes", "Highest and mean of the selected pods, and the recommendation for one.", []Query{{`max by (namespace) (sum by (namespace, pod) (` + working + `))`, "highest used {{namespace}}"}, {`avg by (namespace) (sum by (namespace, pod) (` + working + `))`, "mean used {{namespace}}"}, {`avg by (namespace) (sum by (namespace, pod) (` + request("memory") + `))`, "requested {{namespace}}"}, {perPod("memory"), "recommended {{owner_name}}"}}},
				{"Used share of the requested CPU", TimeSeries, "percentunit", "By pod, the twenty lowest.", one(`bottomk(20, sum by (namespace, pod) (`+usage+`) / sum by (namespace, pod) (`+request("cpu")+`))`, "{{pod}}")},
				{"Used share of the requested memory", TimeSeries, "percentunit", "By pod, the twenty lowest.", one(`bottomk(20, sum by (namespace, pod) (`+working+`) / sum by (namespace, pod) (`+request("memory")+`))`, "{{pod}}")},
				{"Unused CPU", TimeSeries, "none", "Requested less used cores of a pod, the twenty largest.", one(`topk(20, sum by (namespace, pod) (`+request("cpu")+`) - sum by (namespace, pod) (`+usage+`))`, "{{pod}}")},
				{"Unused memory", TimeSeries, "bytes", "Requested less used memory of a pod, the twenty largest.", one(`topk(20, sum by (namespace, pod) (`+request("memory")+`) - sum by (namespace, pod) (`+working+`))`, "{{pod}}")},
			}},
			{"Numbers", []Panel{
				{"Recommended requests", Table, "none", "Cores or bytes by container.", one(`crane_analysis_resource_recommendation{`+workload+`}`, "")},
				{"Recommended replicas and pods", Table, "none", "", []Query{{`crane_analysis_replicas_recommendation{` + workload + `} or sum by (namespace, owner_name) (` + podsOfWorkload + `)`, ""}}},
				{"Pods", Table, "none", "CPU, memory, requests, limits and restarts of containers.", []Query{
					{`sum by (namespace, pod, container) (` + usage + `)`, ""},
					{`sum by (namespace, pod, container) (` + working + `)`, ""},
					{`sum by (namespace, pod, container) (container_memory_rss{container!="",container!="POD",namespace=~"$namespace",` + pods + `})`, ""},
					{`sum by (namespace, pod, container) (` + request("cpu") + `)`, ""},
					{`sum by (namespace, pod, container) (` + request("memory") + `)`, ""},
					{`sum by (namespace, pod, container) (kube_pod_container_resource_limits{namespace=~"$namespace",` + pods + `,resource="memory"})`, ""},
					{`sum by (namespace, pod, container) (kube_pod_container_status_restarts_total{namespace=~"$namespace",` + pods + `})`, ""},
				}},
			}},
		},
	}
}

func costs() Dashboard {
	hourly := func(usage string, memory string) string {
		return `sum by (namespace, pod) (` + usage + ` * on (node) group_left () avg by (node) (node_cpu_hourly_cost)) + sum by (namespace, pod) (` + memory + ` / 1024^3 * on (node) group_left () avg by (node) (node_ram_hourly_cost))`
	}
	byRequest := hourly(`kube_pod_container_resource_requests{namespace=~"$namespace",resource="cpu"}`, `kube_pod_container_resource_requests{namespace=~"$namespace",resource="memory"}`)
	byBasis := func(labels, metric string) string {
		return `sum by (` + labels + `) (max by (namespace, owner_kind, owner_name, basis) (` + metric + `{namespace=~"$namespace"}))`
	}
	over := func(window string) string {
		return `sum by (namespace) (max by (namespace) (sum_over_time(crane_cost_namespace_hourly{namespace=~"$namespace",basis="max"}[` + window + `:3m]))) / 20`
	}

	return Dashboard{
		UID:         "crane-costs",
		Title:       "Crane / Costs",
		Description: "Cost of nodes, namespaces, workloads and labels at the prices of the price book.",
		Variables:   []Variable{namespaceVariable(), {Name: "label", Default: "app_kubernetes_io_name"}},
		Rows: []Row{
			{"Nodes", []Panel{
				{"Monthly cost of the nodes", Stat, "none", "730 hours.", one(`sum(avg by (node) (node_total_hourly_cost)) * 730`, "nodes")},
				{"Monthly cost that no workload requests", Stat, "none", "730 hours.", one(`sum(max by (resource) (crane_cost_idle_hourly{basis="request"})) * 730`, "idle")},
				{"Hourly cost by node group", TimeSeries, "none", "", one(`sum by (group, capacity_type) (max by (group, capacity_type) (crane_cost_nodes_hourly))`, "{{group}} {{capacity_type}}")},
				{"Idle hourly cost by resource", TimeSeries, "none", "By what the cost is allocated by.", one(`max by (resource, basis) (crane_cost_idle_hourly)`, "{{resource}} by {{basis}}")},
				{"Cost of nodes", Table, "none", "Hourly: a CPU, a GiB of memory, the node.", []Query{{`avg by (node) (node_cpu_hourly_cost)`, ""}, {`avg by (node) (node_ram_hourly_cost)`, ""}, {`avg by (node) (node_total_hourly_cost)`, ""}}},
			}},
			{"Namespaces", []Panel{
				{"Cost of the last day by namespace", PieChart, "none", "By the larger of request and usage.", one(over("24h"), "{{namespace}}")},
				{"Cost of the last 7 days by namespace", PieChart, "none", "", one(over("7d"), "{{namespace}}")},
				{"Cost of the last 30 days by namespace", PieChart, "none", "", one(over("30d"), "{{namespace}}")},
				{"Monthly cost by namespace", PieChart, "none", "730 hours at the present rate, by the larger of request and usage.", one(byBasis("namespace", `crane_cost_namespace_hourly`)+` * 730`, "{{namespace}}")},
				{"Hourly cost by basis", TimeSeries, "none", "Of the selected namespaces.", one(byBasis("basis", "crane_cost_namespace_hourly"), "by {{basis}}")},
				{"Hourly cost by namespace", TimeSeries, "none", "By usage.", one(`max by (namespace) (crane_cost_namespace_hourly{namespace=~"$namespace",basis="use"})`, "{{namespace}}")},
				{"Hourly CPU cost by namespace", TimeSeries, "none", "By request.", one(`sum by (namespace) (kube_pod_container_resource_requests{namespace=~"$namespace",resource="cpu"} * on (node) group_left () avg by (node) (node_cpu_hourly_cost))`, "{{namespace}}")},
				{"Hourly memory cost by namespace", TimeSeries, "none", "By request.", one(`sum by (namespace) (kube_pod_container_resource_requests{namespace=~"$namespace",resource="memory"} / 1024^3 * on (node) group_left () avg by (node) (node_ram_hourly_cost))`, "{{namespace}}")},
			}},
			{"Workloads and labels", []Panel{
				{"Most expensive workloads", Table, "none", "Hourly, by the larger of request and usage.", one(`topk(20, max by (namespace, owner_kind, owner_name) (crane_cost_workload_hourly{namespace=~"$namespace",basis="max"}))`, "")},
				{"Hourly cost by label", TimeSeries, "none", "By request, summed by the label of the pods in the text box (its name in kube-state-metrics without label_).", one(`sum by (label_$label) ((`+byRequest+`) * on (namespace, pod) group_left (label_$label) max by (namespace, pod, label_$label) (kube_pod_labels))`, "{{label_$label}}")},
			}},
		},
	}
}
