// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboards

func scaling() Dashboard {
	return Dashboard{
		UID:         "crane-scaling",
		Title:       "Crane / Forecasts and autoscalers",
		Description: "Forecasts, their accuracy, and the replicas of EffectiveHorizontalPodAutoscalers.",
		Variables:   []Variable{{Name: "namespace", Query: "crane_autoscaling_hpa_replicas", Label: "namespace"}},
		Rows: []Row{
			{"Forecasts", []Panel{
				{"Forecast for now", TimeSeries, "none", "In the unit of the metric.", one(`crane_prediction_tsp{targetNamespace=~"$namespace"}`, "{{targetName}} {{resourceIdentifier}}")},
				{"Forecast by which autoscalers scale", TimeSeries, "none", "In the unit of the metric.", one(`crane_autoscaling_prediction{targetNamespace=~"$namespace"}`, "{{targetName}} {{resourceIdentifier}}")},
				{"Error", TimeSeries, "percentunit", "Sum of absolute errors of the median over the sum of the samples.", one(`crane_prediction_wape_ratio{namespace=~"$namespace"}`, "{{name}} {{resource_identifier}}")},
				{"Coverage of the 0.95 quantile", TimeSeries, "percentunit", "Share of the samples at or below it: 95 % is right.", one(`crane_prediction_coverage_ratio{namespace=~"$namespace"}`, "{{name}} {{resource_identifier}}")},
				{"Skill", TimeSeries, "percentunit", "How much lower the loss is than that of a time-of-day quantile.", one(`crane_prediction_skill_ratio{namespace=~"$namespace"}`, "{{name}} {{resource_identifier}}")},
				{"Age of the newest sample", TimeSeries, "s", "", one(`time() - crane_prediction_last_sample_timestamp_seconds{namespace=~"$namespace"}`, "{{name}} {{resource_identifier}}")},
			}},
			{"Autoscalers", []Panel{
				{"Desired replicas", TimeSeries, "none", "Of HorizontalPodAutoscalers, and of those that Crane controls.", []Query{{`crane_autoscaling_hpa_replicas{namespace=~"$namespace"}`, "hpa {{name}}"}, {`crane_autoscaling_effective_hpa_replicas{namespace=~"$namespace"}`, "ehpa {{name}}"}}},
				{"Scalings in an hour", TimeSeries, "none", "", one(`sum by (namespace, name, type) (increase(crane_autoscaling_hpa_scale_count{namespace=~"$namespace"}[1h]) or crane_autoscaling_hpa_replicas{namespace=~"$namespace"} * 0)`, "{{type}} {{name}}")},
				{"Time under capacity that scaling ahead avoids", TimeSeries, "percentunit", "On the past days.", one(`crane_scaling_ahead_spared_ratio{namespace=~"$namespace"}`, "{{name}}")},
				{"Additional replica hours of scaling ahead", TimeSeries, "percentunit", "On the past days.", one(`crane_scaling_ahead_extra_replicas_ratio{namespace=~"$namespace"}`, "{{name}}")},
				{"Autoscalers that use the forecast", Stat, "none", "", one(`sum(crane_scaling_ahead_used)`, "in use")},
				{"Forecasts with new samples", Gauge, "percentunit", "", one(`crane:forecasts_fresh:ratio`, "fresh")},
				{"Models", Stat, "none", "Series models in the memory of craned.", one(`max(crane_predictor_models)`, "models")},
			}},
		},
	}
}

func nodes() Dashboard {
	const (
		cpu    = `(1 - avg by (instance) (rate(node_cpu_seconds_total{mode="idle"}[$__rate_interval])))`
		memory = `(1 - max by (instance) (node_memory_MemAvailable_bytes) / max by (instance) (node_memory_MemTotal_bytes))`
	)
	requested := func(resource, grouping string) string {
		return `sum` + grouping + ` (kube_pod_container_resource_requests{resource="` + resource + `"}) / sum` + grouping + ` (kube_node_status_allocatable{resource="` + resource + `"})`
	}

	return Dashboard{
		UID:         "crane-nodes",
		Title:       "Crane / Node load",
		Description: "Load of the cluster and its nodes, its balance, hot nodes, and what schedulers read.",
		Rows: []Row{
			{"Cluster", []Panel{
				{"CPU usage", Gauge, "percentunit", "", one(`avg(`+cpu+`)`, "used")},
				{"CPU requests", Gauge, "percentunit", "Of what is allocatable.", one(requested("cpu", ""), "requested")},
				{"Memory usage", Gauge, "percentunit", "", one(`avg(`+memory+`)`, "used")},
				{"Memory requests", Gauge, "percentunit", "Of what is allocatable.", one(requested("memory", ""), "requested")},
				{"CPUs", TimeSeries, "none", "", []Query{{`sum(kube_node_status_capacity{resource="cpu"})`, "capacity"}, {`sum(kube_pod_container_resource_requests{resource="cpu"})`, "requested"}, {`sum(rate(container_cpu_usage_seconds_total{container!="",container!="POD"}[$__rate_interval]))`, "used"}}},
				{"Memory", TimeSeries, "bytes", "", []Query{{`sum(kube_node_status_capacity{resource="memory"})`, "capacity"}, {`sum(kube_pod_container_resource_requests{resource="memory"})`, "requested"}, {`sum(container_memory_working_set_bytes{container!="",container!="POD"})`, "used"}}},
			}},
			{"Nodes", []Panel{
				{"CPU usage by node", TimeSeries, "percentunit", "", one(cpu, "{{instance}}")},
				{"Memory usage by node", TimeSeries, "percentunit", "", one(memory, "{{instance}}")},
				{"CPU requests by node", TimeSeries, "percentunit", "Of what is allocatable.", one(requested("cpu", " by (node)"), "{{node}}")},
				{"Memory requests by node", TimeSeries, "percentunit", "Of what is allocatable.", one(requested("memory", " by (node)"), "{{node}}")},
				{"CPU by pod", TimeSeries, "none", "The twenty highest, in cores.", one(`topk(20, sum by (namespace, pod) (rate(container_cpu_usage_seconds_total{container!="",container!="POD"}[$__rate_interval])))`, "{{namespace}}/{{pod}}")},
				{"Memory by pod", TimeSeries, "bytes", "The twenty highest.", one(`topk(20, sum by (namespace, pod) (container_memory_working_set_bytes{container!="",container!="POD"}))`, "{{namespace}}/{{pod}}")},
			}},
			{"Balance", []Panel{
				{"Spread of usage", TimeSeries, "percentunit", "Standard deviation between nodes; lower is more even.", []Query{{`stddev(` + cpu + `)`, "cpu"}, {`stddev(` + memory + `)`, "memory"}}},
				{"Hot nodes", TimeSeries, "none", "Above the mark evict: now, and for long enough to move pods.", one(`max by (state) (crane_rebalance_hot_nodes) or label_replace(max(crane_nodeload_tainted_nodes), "state", "tainted", "", "")`, "{{state}}")},
				{"Tainted nodes", Stat, "none", "Nodes above --node-load-taint-above.", one(`max(crane_nodeload_tainted_nodes)`, "tainted")},
				{"Nodes with a load", Gauge, "percentunit", "", one(`crane:node_loads_fresh:ratio`, "fresh")},
				{"Nodes by state of their load", TimeSeries, "none", "By metric of the policy.", one(`max by (metric, state) (crane_nodeload_nodes)`, "{{metric}} {{state}}")},
				{"Nodes as crane-scheduler reads them", TimeSeries, "none", "", one(`max by (profile, state) (crane_scheduler_dynamic_nodes)`, "{{state}} {{profile}}")},
				{"Patches of nodes", TimeSeries, "none", "A second.", one(`sum by (result) (rate(crane_nodeload_patches_total[$__rate_interval]))`, "{{result}}")},
			}},
		},
	}
}

func agents() Dashboard {
	return Dashboard{
		UID:         "crane-agent",
		Title:       "Crane / Agent and QoS",
		Description: "What agents measure and do on their nodes.",
		Rows: []Row{
			{"Agents", []Panel{
				{"Agents that measure", Gauge, "percentunit", "Within the last two minutes.", one(`crane:agent_coverage:ratio`, "coverage")},
				{"Firing rules", Stat, "none", "", one(`sum(crane_agent_rule_firing)`, "firing")},
				{"Observed pods", Stat, "none", "", one(`sum(crane_agent_observed_pods)`, "pods")},
				{"Objects that cannot be read", Stat, "none", "", one(`sum(crane_agent_observation_problem) or vector(0)`, "problems")},
				{"Actions in an hour", TimeSeries, "none", "", one(`sum by (action, outcome) (increase(crane_agent_actions_total[1h])) or label_replace(sum(crane_agent_rule_firing) * 0, "action", "none", "", "")`, "{{action}} {{outcome}}")},
				{"Evictions withheld in an hour", TimeSeries, "none", "", one(`sum by (rule, by) (increase(crane_agent_evictions_withheld_total[1h])) or label_replace(sum(crane_agent_rule_firing) * 0, "rule", "none", "", "")`, "{{rule}} {{by}}")},
			}},
			{"Nodes", []Panel{
				{"CPU usage", TimeSeries, "percentunit", "", one(`crane_agent_node_cpu_usage_cores / on (instance) crane_agent_node_cpus`, "{{instance}}")},
				{"Memory usage", TimeSeries, "percentunit", "", one(`crane_agent_node_memory_usage_bytes / on (instance) crane_agent_node_memory_bytes`, "{{instance}}")},
				{"Pressure", TimeSeries, "percentunit", "Share of the time in which tasks waited.", one(`rate(crane_agent_node_pressure_stalled_seconds_total[$__rate_interval])`, "{{instance}} {{resource}} {{kind}}")},
				{"Features", TimeSeries, "none", "Number of agents by state of a feature.", one(`sum by (feature, state) (crane_agent_feature)`, "{{feature}} {{state}}")},
			}},
			{"Pods", []Panel{
				{"CPU usage of pods", TimeSeries, "none", "The twenty highest, in cores.", one(`topk(20, crane_agent_pod_cpu_usage_cores)`, "{{namespace}}/{{pod}}")},
				{"Throttled pods", TimeSeries, "percentunit", "Share of the periods that the limit of the pod cut short.", one(`topk(20, crane_agent_pod_cpu_throttled_ratio)`, "{{namespace}}/{{pod}}")},
				{"CPU limits in force", TimeSeries, "none", "In cores.", one(`topk(20, crane_agent_pod_cpu_limit_cores)`, "{{namespace}}/{{pod}}")},
				{"Waiting pods", TimeSeries, "percentunit", "Share of the time in which tasks of the pod waited for CPU.", one(`topk(20, rate(crane_agent_pod_pressure_stalled_seconds_total{resource="cpu",kind="some"}[$__rate_interval]))`, "{{namespace}}/{{pod}}")},
			}},
			{"Elastic resources", []Panel{
				{"CPU that is offered", TimeSeries, "none", "Terms of the offer, in cores.", one(`sum by (term) (crane_agent_elastic_cpu_cores)`, "{{term}}")},
				{"Memory that is offered", TimeSeries, "bytes", "Terms of the offer.", one(`sum by (term) (crane_agent_elastic_memory_bytes)`, "{{term}}")},
			}},
		},
	}
}

func memory() Dashboard {
	return Dashboard{
		UID:         "crane-oom",
		Title:       "Crane / OOM kills",
		Description: "Containers that were killed or evicted for lack of memory, and those that are close to it.",
		Rows: []Row{
			{"Kills", []Panel{
				{"Recorded kills", Stat, "none", "Entries of the OOM record.", one(`max(crane_oom_records)`, "kills")},
				{"Kills of a day", Stat, "none", "At the memory limit, from cAdvisor.", one(`sum(increase(container_oom_events_total[1d]))`, "kills")},
				{"Failed writes of the record", Stat, "none", "", one(`max(crane_oom_write_failures_total)`, "failures")},
				{"Unreadable records", Stat, "none", "", one(`max(crane_oom_unreadable_records_total)`, "records")},
				{"Kills by container", TimeSeries, "none", "In an hour.", one(`sum by (namespace, pod, container) (increase(container_oom_events_total[1h]))`, "{{namespace}}/{{pod}} {{container}}")},
				{"Restarts by container", TimeSeries, "none", "In an hour, the twenty highest.", one(`topk(20, increase(kube_pod_container_status_restarts_total[1h]))`, "{{namespace}}/{{pod}} {{container}}")},
			}},
			{"Close to the limit", []Panel{
				{"Memory by limit", TimeSeries, "percentunit", "The twenty highest.", one(`topk(20, max by (namespace, pod, container) (container_memory_working_set_bytes{container!="",container!="POD"}) / max by (namespace, pod, container) (kube_pod_container_resource_limits{resource="memory"}))`, "{{namespace}}/{{pod}} {{container}}")},
				{"Memory by request", TimeSeries, "percentunit", "The twenty highest.", one(`topk(20, max by (namespace, pod, container) (container_memory_working_set_bytes{container!="",container!="POD"}) / max by (namespace, pod, container) (kube_pod_container_resource_requests{resource="memory"}))`, "{{namespace}}/{{pod}} {{container}}")},
			}},
		},
	}
}

func crane() Dashboard {
	const jobs = `job=~"craned|metric-adapter|crane-scheduler|crane-agent"`
	level := func(title, metric string) Panel {
		return Panel{title, Gauge, "percentunit", "Service level.", one(metric, "now")}
	}

	return Dashboard{
		UID:         "crane-itself",
		Title:       "Crane / Crane itself",
		Description: "Service levels, state and cost of Crane's own components.",
		Rows: []Row{
			{"State", []Panel{
				{"Replicas up", Stat, "none", "", one(`sum by (job) (up{`+jobs+`})`, "{{job}}")},
				{"Leaders", Stat, "none", "One is right.", one(`sum(crane_leader)`, "leaders")},
				{"Paused", Stat, "none", "1 while crane pause stops all writes.", one(`max(crane_paused)`, "paused")},
				{"Circuit breaker of adoption", Stat, "none", "1 while that of a namespace or of the cluster is open.", one(`max(crane_adoption_breaker_open)`, "open")},
			}},
			{"Service levels", []Panel{
				level("Recommendations up to date", "crane:recommendations_fresh:ratio"), level("Forecasts with new samples", "crane:forecasts_fresh:ratio"),
				level("Nodes with a load", "crane:node_loads_fresh:ratio"), level("Agents that measure", "crane:agent_coverage:ratio"),
				{"Failed resizes", TimeSeries, "percentunit", "Share of the last hour; 0 without resizes.", one(`crane:adoption_failures:ratio_rate1h or vector(0)`, "failed")},
				{"Latency of metric-adapter", TimeSeries, "s", "0.99 quantile.", one(`crane:adapter_latency_seconds:p99_rate5m`, "p99")},
				{"Errors of metric-adapter", TimeSeries, "percentunit", "", one(`crane:adapter_errors:ratio_rate5m`, "5xx")},
				{"Firing alerts", TimeSeries, "none", "0 without any.", one(`sum by (alertname) (ALERTS{alertname=~"Crane.+",alertstate="firing"}) or vector(0)`, "{{alertname}}")},
			}},
			{"Work", []Panel{
				{"Data sources", TimeSeries, "none", "1 where the source answered last.", one(`max by (source) (crane_data_source_up)`, "{{source}}")},
				{"Requests to data sources", TimeSeries, "none", "A second, by kind.", one(`sum by (source, question) (rate(crane_data_source_answers_total[$__rate_interval]))`, "{{source}} {{question}}")},
				{"Adoption steps in a day", TimeSeries, "none", "By reason; 0 without steps.", one(`sum by (reason) (increase(crane_adoption_steps_total[1d])) or vector(0)`, "{{reason}}")},
				{"Reads of forecasts", TimeSeries, "none", "A second.", one(`sum by (kind, result) (rate(crane_predictor_reads_total[$__rate_interval]))`, "{{kind}} {{result}}")},
				{"Requests to metric-adapter", TimeSeries, "none", "A second.", one(`sum by (api, source, code) (rate(crane_metric_adapter_request_duration_seconds_count[$__rate_interval]))`, "{{api}} {{source}} {{code}}")},
				{"Pods of crane-scheduler placed by their estimate", TimeSeries, "none", "Attempts a second; 0 without any.", one(`sum by (estimate) (rate(crane_scheduler_dynamic_attempts_total[$__rate_interval])) or vector(0)`, "{{estimate}}")},
				{"Days until certificates end", TimeSeries, "d", "", one(`min by (secret, certificate) (crane_certificate_expiry_timestamp_seconds - time()) / 86400`, "{{secret}} {{certificate}}")},
				{"Steps of the agent", TimeSeries, "s", "Mean duration.", one(`sum by (module, step) (rate(crane_craneAgent_step_duration_seconds_sum[$__rate_interval])) / sum by (module, step) (rate(crane_craneAgent_step_duration_seconds_count[$__rate_interval]))`, "{{module}} {{step}}")},
			}},
			{"Cost of Crane", []Panel{
				{"CPU", TimeSeries, "none", "In cores.", one(`sum by (job) (rate(process_cpu_seconds_total{`+jobs+`}[$__rate_interval]))`, "{{job}}")},
				{"Memory", TimeSeries, "bytes", "", one(`sum by (job) (process_resident_memory_bytes{`+jobs+`})`, "{{job}}")},
			}},
		},
	}
}
