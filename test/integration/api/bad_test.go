// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// bad is a change that makes the minimal object of a kind invalid.
type bad struct {
	kind string
	// patch is a JSON merge patch, written in YAML. Where the object has a list, numbers choose the elements to change.
	patch string
	// path is the field that the API server has to name.
	path string
}

// tooLong is longer than a name in Kubernetes.
var tooLong = strings.Repeat("x", 254)

func badAnalysis() []bad {
	const selector, recommender = "spec.resourceSelectors[0]", "spec.recommenders[0]"
	return []bad{
		{"Recommendation", `spec: null`, "spec"},
		{"Recommendation", `spec: {targetRef: null}`, "spec.targetRef"},
		{"Recommendation", `spec: {targetRef: {kind: null}}`, "spec.targetRef.kind"},
		{"Recommendation", `spec: {targetRef: {name: ""}}`, "spec.targetRef.name"},
		{"Recommendation", `spec: {targetRef: {name: "web\x1b[2J"}}`, "spec.targetRef.name"},
		{"Recommendation", `spec: {targetRef: {name: "web\nForged"}}`, "spec.targetRef.name"},
		{"Recommendation", `spec: {targetRef: {name: "$(reboot)"}}`, "spec.targetRef.name"},
		{"Recommendation", `spec: {targetRef: {name: "--kubeconfig=x"}}`, "spec.targetRef.name"},
		{"Recommendation", `spec: {targetRef: {kind: "Deployment;id"}}`, "spec.targetRef"},
		{"Recommendation", `spec: {targetRef: {name: ` + tooLong + `}}`, "spec.targetRef"},
		{"Recommendation", `spec: {type: null}`, "spec.type"},
		{"Recommendation", `spec: {type: ""}`, "spec.type"},
		{"Recommendation", `spec: {adoptionType: Manual}`, "spec.adoptionType"},
		{"Recommendation", `spec: {completionStrategy: {completionStrategyType: Daily}}`, "spec.completionStrategy.completionStrategyType"},
		{"Recommendation", `spec: {completionStrategy: {periodSeconds: -1}}`, "spec.completionStrategy.periodSeconds"},
		{"Recommendation", `spec: {completionStrategy: {periodSeconds: 1.5}}`, "spec.completionStrategy.periodSeconds"},

		{"RecommendationRule", `spec: null`, "spec"},
		{"RecommendationRule", `spec: {resourceSelectors: null}`, "spec.resourceSelectors"},
		{"RecommendationRule", `spec: {resourceSelectors: [{}]}`, selector + ".kind"},
		{"RecommendationRule", `spec: {resourceSelectors: [{kind: ""}]}`, selector + ".kind"},
		{
			"RecommendationRule", `spec: {resourceSelectors: [{kind: Deployment, labelSelector: {matchExpressions: [{key: app}]}}]}`,
			selector + ".labelSelector.matchExpressions[0].operator",
		},
		{"RecommendationRule", `spec: {namespaceSelector: null}`, "spec.namespaceSelector"},
		{"RecommendationRule", `spec: {namespaceSelector: {matchNames: ["*"]}}`, "spec.namespaceSelector.matchNames[0]"},
		{"RecommendationRule", `spec: {namespaceSelector: {matchNames: [default, ""]}}`, "spec.namespaceSelector.matchNames[1]"},
		{"RecommendationRule", `spec: {recommenders: null}`, "spec.recommenders"},
		{"RecommendationRule", `spec: {recommenders: [{}]}`, recommender + ".name"},
		{"RecommendationRule", `spec: {recommenders: [{name: ""}]}`, recommender + ".name"},
		{
			"RecommendationRule", `spec: {recommenders: [{name: Resource, config: {cpu-request-percentile: 0.9}}]}`,
			recommender + ".config.cpu-request-percentile",
		},
		{"RecommendationRule", `spec: {runInterval: 1w}`, "spec.runInterval"},
		{"RecommendationRule", `spec: {runInterval: "24"}`, "spec.runInterval"},
		{"RecommendationRule", `spec: {runInterval: 12h1d}`, "spec.runInterval"},
		{"RecommendationRule", `spec: {runInterval: -1h}`, "spec.runInterval"},
		{"RecommendationRule", `spec: {runInterval: 0s}`, "spec.runInterval"},
		{"RecommendationRule", `spec: {runInterval: 24}`, "spec.runInterval"},

		{"Analytics", `spec: {config: {` + tooLong + `: "1"}}`, "spec.config"},
		{"Analytics", `spec: {config: {a: ` + strings.Repeat("x", 1025) + `}}`, "spec.config"},
		{"Analytics", `spec: {type: null}`, "spec.type"},
		{"Analytics", `spec: {resourceSelectors: null}`, "spec.resourceSelectors"},
		{"Analytics", `spec: {resourceSelectors: [{apiVersion: apps/v1}]}`, selector + ".kind"},
		{"Analytics", `spec: {completionStrategy: {completionStrategyType: Never}}`, "spec.completionStrategy.completionStrategyType"},
		{"Analytics", `spec: {config: {a: 1}}`, "spec.config.a"},

		{"ConfigSet", `configs: [{properties: {a: 1}}]`, "configs[0].properties.a"},
		{"ConfigSet", `configs: [{targets: [{kind: 3}]}]`, "configs[0].targets[0].kind"},
	}
}

// schedule is the patch of fields of the first cron of an EffectiveHorizontalPodAutoscaler.
func schedule(fields string) string { return `spec: {crons: {0: {` + fields + `}}}` }

func badAutoscaling() []bad {
	const ehpa, evpa = "EffectiveHorizontalPodAutoscaler", "EffectiveVerticalPodAutoscaler"
	const metrics, crons, policy = "spec.metrics[0]", "spec.crons[0]", "spec.resourcePolicy.containerPolicies[0]"
	return []bad{
		{ehpa, `spec: null`, "spec"},
		{ehpa, `spec: {maxReplicas: null}`, "spec.maxReplicas"},
		{ehpa, `spec: {maxReplicas: 0}`, "spec.maxReplicas"},
		{ehpa, `spec: {maxReplicas: 3000000000}`, "spec.maxReplicas"},
		{ehpa, `spec: {minReplicas: -1}`, "spec.minReplicas"},
		{ehpa, `spec: {minReplicas: 11}`, "spec.minReplicas"},
		{ehpa, `spec: {scaleTargetRef: null}`, "spec.scaleTargetRef"},
		{ehpa, `spec: {scaleTargetRef: {name: null}}`, "spec.scaleTargetRef.name"},
		{ehpa, `spec: {scaleTargetRef: {name: ` + tooLong + `}}`, "spec.scaleTargetRef"},
		{ehpa, `spec: {scaleTargetRef: {kind: ""}}`, "spec.scaleTargetRef.kind"},
		{ehpa, `spec: {scaleTargetRef: {name: ""}}`, "spec.scaleTargetRef.name"},
		{ehpa, `spec: {scaleTargetRef: {name: "a b"}}`, "spec.scaleTargetRef.name"},
		{ehpa, `spec: {scaleTargetRef: {kind: "a\u202e"}}`, "spec.scaleTargetRef"},
		{ehpa, `spec: {scaleStrategy: Manual}`, "spec.scaleStrategy"},
		{ehpa, `spec: {specificReplicas: -2}`, "spec.specificReplicas"},
		{ehpa, `spec: {metrics: {0: {type: CPU}}}`, metrics + ".type"},
		{ehpa, `spec: {metrics: {0: {resource: null}}}`, metrics + ".resource"},
		{ehpa, `spec: {metrics: [{type: ContainerResource}]}`, metrics + ".containerResource"},
		{ehpa, `spec: {metrics: [{type: Pods}]}`, metrics + ".pods"},
		{ehpa, `spec: {metrics: [{type: Object}]}`, metrics + ".object"},
		{ehpa, `spec: {metrics: [{type: External}]}`, metrics + ".external"},
		{ehpa, `spec: {metrics: {0: {pods: {metric: {name: m}, target: {type: AverageValue, averageValue: 1}}}}}`, metrics},
		{ehpa, `spec: {metrics: {0: {resource: {target: null}}}}`, metrics + ".resource.target"},
		{ehpa, `spec: {metrics: {0: {resource: {target: {averageUtilization: null}}}}}`, metrics + ".resource.target"},
		{ehpa, `spec: {metrics: {0: {resource: {target: {averageValue: 100m}}}}}`, metrics + ".resource.target"},
		{ehpa, `spec: {metrics: {0: {resource: {target: {averageUtilization: 0}}}}}`, metrics + ".resource.target.averageUtilization"},
		{ehpa, `spec: {metrics: {0: {resource: {target: {averageValue: lots}}}}}`, metrics + ".resource.target.averageValue"},
		{
			ehpa, `spec: {metrics: [{type: ContainerResource, containerResource: {name: cpu, container: c, target: {type: Utilization, averageUtilization: -5}}}]}`,
			metrics + ".containerResource.target.averageUtilization",
		},
		{ehpa, `spec: {metrics: [{type: Pods, pods: {metric: {name: m}, target: {type: Value, value: 1}}}]}`, metrics + ".pods.target"},
		{
			ehpa, `spec: {metrics: [{type: External, external: {metric: {name: m}, target: {type: Value, value: 1, averageValue: 1}}}]}`,
			metrics + ".external.target",
		},
		{
			ehpa, `spec: {metrics: [{type: Object, object: {describedObject: {kind: Ingress, name: a}, metric: {name: m}, target: {type: Value}}}]}`,
			metrics + ".object.target",
		},
		{ehpa, `spec: {behavior: {scaleUp: {stabilizationWindowSeconds: 3601}}}`, "spec.behavior.scaleUp.stabilizationWindowSeconds"},
		{ehpa, `spec: {behavior: {scaleDown: {stabilizationWindowSeconds: -1}}}`, "spec.behavior.scaleDown.stabilizationWindowSeconds"},
		{ehpa, `spec: {behavior: {scaleDown: {selectPolicy: Median}}}`, "spec.behavior.scaleDown.selectPolicy"},
		{ehpa, `spec: {behavior: {scaleUp: {policies: [{type: Pods, value: 0, periodSeconds: 15}]}}}`, "spec.behavior.scaleUp.policies"},
		{ehpa, `spec: {behavior: {scaleDown: {policies: [{type: Pods, value: 1, periodSeconds: 1801}]}}}`, "spec.behavior.scaleDown.policies"},
		{ehpa, schedule(`name: ""`), crons + ".name"},
		{ehpa, schedule(`start: ""`), crons + ".start"},
		{ehpa, schedule(`end: null`), crons + ".end"},
		{ehpa, schedule(`start: 0 8 * *`), crons + ".start"},
		{ehpa, schedule(`start: 0 0 8 * * *`), crons + ".start"},
		{ehpa, schedule(`start: "@noon"`), crons + ".start"},
		{ehpa, schedule(`start: 60 8 * * *`), crons + ".start"},
		{ehpa, schedule(`start: 5,60 8 * * *`), crons + ".start"},
		{ehpa, schedule(`start: "*/0 8 * * *"`), crons + ".start"},
		{ehpa, schedule(`start: 0 24 * * *`), crons + ".start"},
		{ehpa, schedule(`end: 0 8 0 * *`), crons + ".end"},
		{ehpa, schedule(`end: 0 8 32 * *`), crons + ".end"},
		{ehpa, schedule(`end: 0 8 * 13 *`), crons + ".end"},
		{ehpa, schedule(`end: 0 8 * JUNE *`), crons + ".end"},
		{ehpa, schedule(`end: 0 8 * * 7`), crons + ".end"},
		{ehpa, schedule(`end: 0 8 * * MON-SUNDAY`), crons + ".end"},
		{ehpa, schedule(`timezone: Asia Shanghai`), crons + ".timezone"},
		{ehpa, schedule(`targetReplicas: -1`), crons + ".targetReplicas"},
		{
			ehpa, `spec: {crons: [{name: a, targetReplicas: 1, start: "@daily", end: "@hourly"}, {name: a, targetReplicas: 2, start: "@daily", end: "@hourly"}]}`,
			"spec.crons[1]",
		},
		{ehpa, `spec: {prediction: {predictionWindowSeconds: 0}}`, "spec.prediction.predictionWindowSeconds"},
		{ehpa, `spec: {prediction: {predictionAlgorithm: {algorithmType: lstm}}}`, "spec.prediction.predictionAlgorithm.algorithmType"},
		{ehpa, `spec: {prediction: {predictionAlgorithm: {dsp: {historyLength: soon}}}}`, "spec.prediction.predictionAlgorithm.dsp.historyLength"},

		{"Substitute", `spec: {substituteTargetRef: null}`, "spec.substituteTargetRef"},
		{"Substitute", `spec: {substituteTargetRef: {kind: ""}}`, "spec.substituteTargetRef.kind"},
		{"Substitute", `spec: {substituteTargetRef: {name: ` + tooLong + `}}`, "spec.substituteTargetRef"},
		{"Substitute", `spec: {replicas: -1}`, "spec.replicas"},

		{evpa, `spec: {targetRef: null}`, "spec.targetRef"},
		{evpa, `spec: {targetRef: {name: ""}}`, "spec.targetRef.name"},
		{evpa, `spec: {targetRef: {name: "a;b"}}`, "spec.targetRef.name"},
		{evpa, `spec: {targetRef: {kind: ` + tooLong + `}}`, "spec.targetRef"},
		{evpa, `spec: {updatePolicy: {updateMode: Sometimes}}`, "spec.updatePolicy.updateMode"},
		{evpa, `spec: {resourceEstimators: [{type: OOM, config: {` + tooLong + `: "1"}}]}`, "spec.resourceEstimators[0].config"},
		{evpa, `spec: {updatePolicy: {minReplicas: 0}}`, "spec.updatePolicy.minReplicas"},
		{evpa, `spec: {resourcePolicy: {containerPolicies: [{}]}}`, policy + ".containerName"},
		{evpa, `spec: {resourcePolicy: {containerPolicies: [{containerName: ""}]}}`, policy + ".containerName"},
		{evpa, `spec: {resourcePolicy: {containerPolicies: [{containerName: a}, {containerName: a}]}}`, "spec.resourcePolicy.containerPolicies[1]"},
		{evpa, `spec: {resourcePolicy: {containerPolicies: [{containerName: a, minAllowed: {cpu: much}}]}}`, policy + ".minAllowed.cpu"},
		{evpa, `spec: {resourcePolicy: {containerPolicies: [{containerName: a, controlledValues: LimitsOnly}]}}`, policy + ".controlledValues"},
		{evpa, `spec: {resourcePolicy: {containerPolicies: [{containerName: a, scaleUpPolicy: {mode: "On"}}]}}`, policy + ".scaleUpPolicy.mode"},
		{
			evpa, `spec: {resourcePolicy: {containerPolicies: [{containerName: a, scaleUpPolicy: {stabilizationWindowSeconds: -1}}]}}`,
			policy + ".scaleUpPolicy.stabilizationWindowSeconds",
		},
		{
			evpa, `spec: {resourcePolicy: {containerPolicies: [{containerName: a, scaleDownPolicy: {metricThresholds: {cpu: {utilization: -1}}}}]}}`,
			policy + ".scaleDownPolicy.metricThresholds.cpu.utilization",
		},
	}
}

// metric is the patch of fields of the first metric of a TimeSeriesPrediction; dsp and percentile are of its settings.
func metric(fields string) string { return `spec: {predictionMetrics: {0: {` + fields + `}}}` }

func dsp(fields string) string { return metric(`algorithm: {dsp: {` + fields + `}}`) }

func percentile(fields string) string { return metric(`algorithm: {percentile: {` + fields + `}}`) }

func badPrediction() []bad {
	const tsp, cnp, metrics = "TimeSeriesPrediction", "ClusterNodePrediction", "spec.predictionMetrics[0]"
	return []bad{
		{tsp, `spec: null`, "spec"},
		{tsp, `spec: {targetRef: null}`, "spec.targetRef"},
		{tsp, `spec: {targetRef: {name: "a\nb"}}`, "spec.targetRef.name"},
		{tsp, `spec: {targetRef: {name: ""}}`, "spec.targetRef"},
		{tsp, `spec: {targetRef: {kind: ` + tooLong + `}}`, "spec.targetRef"},
		{tsp, `spec: {targetRef: {name: ` + tooLong + `}}`, "spec.targetRef"},
		{tsp, `spec: {targetRef: {namespace: ` + tooLong + `}}`, "spec.targetRef"},
		{tsp, `spec: {targetRef: {apiVersion: ` + tooLong + tooLong + `}}`, "spec.targetRef"},
		{cnp, `spec: {template: {spec: {targetRef: {name: ` + tooLong + `}}}}`, "spec.template.spec.targetRef"},
		{tsp, `spec: {predictionWindowSeconds: null}`, "spec.predictionWindowSeconds"},
		{tsp, `spec: {predictionWindowSeconds: 0}`, "spec.predictionWindowSeconds"},
		{tsp, `spec: {predictionMetrics: null}`, "spec.predictionMetrics"},
		{tsp, `spec: {predictionMetrics: []}`, "spec.predictionMetrics"},
		{tsp, metric(`resourceIdentifier: null`), metrics + ".resourceIdentifier"},
		{tsp, metric(`type: null`), metrics + ".type"},
		{tsp, metric(`type: RawQuery`), metrics + ".type"},
		{tsp, metric(`resourceQuery: null`), metrics + ".resourceQuery"},
		{tsp, metric(`resourceQuery: nvidia.com/gpu`), metrics + ".resourceQuery"},
		{tsp, metric(`type: MetricQuery`), metrics + ".metricQuery"},
		{tsp, metric(`type: MetricQuery, metricQuery: {}`), metrics + ".metricQuery.metricName"},
		{
			tsp, metric(`type: MetricQuery, metricQuery: {metricName: m, labels: [{key: k, operator: "~"}]}`),
			metrics + ".metricQuery.labels[0].operator",
		},
		{tsp, metric(`type: ExpressionQuery`), metrics + ".expressionQuery"},
		{
			tsp, metric(`type: ExpressionQuery, expressionQuery: {expression: ""}`),
			metrics + ".expressionQuery.expression",
		},
		{
			tsp, `spec: {predictionMetrics: [{resourceIdentifier: a, type: ResourceQuery, resourceQuery: cpu}, {resourceIdentifier: a, type: ResourceQuery, resourceQuery: memory}]}`,
			"spec.predictionMetrics[1]",
		},
		{
			tsp, metric(`algorithm: {algorithmType: arima}`),
			metrics + ".algorithm.algorithmType",
		},
		{tsp, dsp(`sampleInterval: 1 minute`), metrics + ".algorithm.dsp.sampleInterval"},
		{tsp, dsp(`historyLength: 1.5d`), metrics + ".algorithm.dsp.historyLength"},
		{tsp, dsp(`historyLength: 0d`), metrics + ".algorithm.dsp.historyLength"},
		{tsp, dsp(`estimators: {maxValue: [{marginFraction: ten}]}`), metrics + ".algorithm.dsp.estimators.maxValue[0].marginFraction"},
		{tsp, dsp(`estimators: {fft: [{lowAmplitudeThreshold: NaN}]}`), metrics + ".algorithm.dsp.estimators.fft[0].lowAmplitudeThreshold"},
		{tsp, dsp(`estimators: {fft: [{marginFraction: 0.1}]}`), metrics + ".algorithm.dsp.estimators.fft[0].marginFraction"},
		{
			tsp, dsp(`estimators: {fft: [{minNumOfSpectrumItems: 5, maxNumOfSpectrumItems: 4}]}`),
			metrics + ".algorithm.dsp.estimators.fft[0].minNumOfSpectrumItems",
		},
		{tsp, percentile(`percentile: "1.01"`), metrics + ".algorithm.percentile.percentile"},
		{tsp, percentile(`percentile: "0"`), metrics + ".algorithm.percentile.percentile"},
		{tsp, percentile(`percentile: "99%"`), metrics + ".algorithm.percentile.percentile"},
		{tsp, percentile(`targetUtilization: "80"`), metrics + ".algorithm.percentile.targetUtilization"},
		{tsp, percentile(`marginFraction: "-0.1"`), metrics + ".algorithm.percentile.marginFraction"},
		{tsp, percentile(`minSampleWeight: Inf`), metrics + ".algorithm.percentile.minSampleWeight"},
		{tsp, percentile(`minSampleWeight: "0x1p-2"`), metrics + ".algorithm.percentile.minSampleWeight"},
		{tsp, percentile(`histogram: {halfLife: day}`), metrics + ".algorithm.percentile.histogram.halfLife"},
		{tsp, percentile(`histogram: {bucketSize: "1e"}`), metrics + ".algorithm.percentile.histogram.bucketSize"},

		{cnp, `spec: {template: {spec: null}}`, "spec.template.spec"},
		{cnp, `spec: {template: {spec: {predictionWindowSeconds: 0}}}`, "spec.template.spec.predictionWindowSeconds"},
		{cnp, `spec: {template: {spec: {predictionMetrics: []}}}`, "spec.template.spec.predictionMetrics"},
		{cnp, `spec: {nodeSelector: {a: 1}}`, "spec.nodeSelector.a"},
	}
}

// rule is the patch of fields of the first rule of a NodeQOS.
func rule(fields string) string { return `spec: {rules: {0: {` + fields + `}}}` }

// scope is the patch of fields of the first scope of a PodQOS.
func scope(fields string) string {
	return `spec: {scopeSelector: {matchExpressions: {0: {` + fields + `}}}}`
}

func badEnsurance() []bad {
	const rules, scopes, resources = "spec.rules[0]", "spec.scopeSelector.matchExpressions[0]", "spec.resourceQOS"
	return []bad{
		{"NodeQOS", `spec: null`, "spec"},
		{"NodeQOS", `spec: {selector: {matchExpressions: [{key: a, operator: In}]}}`, "spec.selector.matchExpressions"},
		{"NodeQOS", `spec: {selector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}`, "spec.selector.matchExpressions"},
		{"NodeQOS", `spec: {selector: {matchExpressions: [{key: a, operator: Gt, values: ["1"]}]}}`, "spec.selector.matchExpressions"},
		{"NodeQOS", `spec: {nodeQualityProbe: {httpGet: {path: /, port: 80}}}`, "spec.nodeQualityProbe.httpGet"},
		{"NodeQOS", `spec: {nodeQualityProbe: {nodeLocalGet: null, httpGet: {path: /}}}`, "spec.nodeQualityProbe.httpGet.port"},
		{"NodeQOS", `spec: {nodeQualityProbe: {nodeLocalGet: null, httpGet: {port: 80}}}`, "spec.nodeQualityProbe.httpGet.path"},
		{"NodeQOS", `spec: {nodeQualityProbe: {nodeLocalGet: null, httpGet: {path: /, port: 80, scheme: FTP}}}`, "spec.nodeQualityProbe.httpGet.scheme"},
		{"NodeQOS", `spec: {nodeQualityProbe: {nodeLocalGet: null, httpGet: {path: /, port: 65536}}}`, "spec.nodeQualityProbe.httpGet.port"},
		{"NodeQOS", `spec: {nodeQualityProbe: {timeoutSeconds: -1}}`, "spec.nodeQualityProbe.timeoutSeconds"},
		{"NodeQOS", `spec: {nodeQualityProbe: {nodeLocalGet: {localCacheTTLSeconds: -1}}}`, "spec.nodeQualityProbe.nodeLocalGet.localCacheTTLSeconds"},
		{"NodeQOS", rule(`name: null`), rules + ".name"},
		{"NodeQOS", rule(`name: Cpu High`), rules + ".name"},
		{"NodeQOS", rule(`name: ` + strings.Repeat("a", 64)), rules + ".name"},
		{
			"NodeQOS", `spec: {rules: [{name: a, actionName: b, metricRule: {name: m, value: 1}}, {name: a, actionName: c, metricRule: {name: m, value: 1}}]}`,
			"spec.rules[1]",
		},
		{"NodeQOS", rule(`actionName: null`), rules + ".actionName"},
		{"NodeQOS", rule(`actionName: ""`), rules + ".actionName"},
		{"NodeQOS", rule(`metricRule: null`), rules + ".metricRule"},
		{"NodeQOS", rule(`metricRule: {name: ""}`), rules + ".metricRule.name"},
		{"NodeQOS", rule(`metricRule: {value: null}`), rules + ".metricRule.value"},
		{"NodeQOS", rule(`metricRule: {value: 0}`), rules + ".metricRule.value"},
		{"NodeQOS", rule(`metricRule: {value: "0"}`), rules + ".metricRule.value"},
		{"NodeQOS", rule(`metricRule: {value: 0Mi}`), rules + ".metricRule.value"},
		{"NodeQOS", rule(`metricRule: {value: -5}`), rules + ".metricRule.value"},
		{"NodeQOS", rule(`metricRule: {value: -500m}`), rules + ".metricRule.value"},
		{"NodeQOS", rule(`metricRule: {value: 80%}`), rules + ".metricRule.value"},
		{"NodeQOS", rule(`avoidanceThreshold: 0`), rules + ".avoidanceThreshold"},
		{"NodeQOS", rule(`restoreThreshold: -1`), rules + ".restoreThreshold"},
		{"NodeQOS", rule(`strategy: DryRun`), rules + ".strategy"},
		{"NodeQOS", `spec: {elasticCpuLimit: {elasticNodeCpuLimit: {percent: 101}}}`, "spec.elasticCpuLimit.elasticNodeCpuLimit.percent"},
		{"NodeQOS", `spec: {netLimits: {rxBpsMin: 2, rxBpsMax: 1}}`, "spec.netLimits.rxBpsMin"},
		{"NodeQOS", `spec: {netLimits: {txBpsMax: -1}}`, "spec.netLimits.txBpsMax"},

		{"PodQOS", `spec: null`, "spec"},
		{"PodQOS", `spec: {allowedActions: [""]}`, "spec.allowedActions[0]"},
		{"PodQOS", `spec: {labelSelector: {matchExpressions: [{key: a, operator: NotIn, values: []}]}}`, "spec.labelSelector.matchExpressions"},
		{"PodQOS", scope(`scopeName: null`), scopes + ".scopeName"},
		{"PodQOS", scope(`scopeName: Node`), scopes + ".scopeName"},
		{"PodQOS", scope(`operator: Exists`), scopes + ".operator"},
		{"PodQOS", scope(`values: null`), scopes + ".values"},
		{"PodQOS", scope(`values: [besteffort]`), scopes + ".values"},
		{"PodQOS", scope(`scopeName: Priority, operator: NotIn, values: [high]`), scopes + ".values"},
		{"PodQOS", scope(`scopeName: Priority, operator: In, values: ["100-"]`), scopes + ".values"},
		{"PodQOS", `spec: {resourceQOS: {cpuQOS: {cpuPriority: 8}}}`, resources + ".cpuQOS.cpuPriority"},
		{"PodQOS", `spec: {resourceQOS: {cpuQOS: {containerPriority: {a: -1}}}}`, resources + ".cpuQOS.containerPriority.a"},
		{"PodQOS", `spec: {resourceQOS: {cpuQOS: {cpuSet: {cpuSet: mine}}}}`, resources + ".cpuQOS.cpuSet.cpuSet"},
		{"PodQOS", `spec: {resourceQOS: {memoryQOS: {memPriority: -1}}}`, resources + ".memoryQOS.memPriority"},
		{"PodQOS", `spec: {resourceQOS: {memoryQOS: {memoryCompression: {compressionLevel: 5}}}}`, resources + ".memoryQOS.memoryCompression.compressionLevel"},
		{"PodQOS", `spec: {resourceQOS: {memoryQOS: {memoryCompression: {preference: Huge}}}}`, resources + ".memoryQOS.memoryCompression.preference"},
		{"PodQOS", `spec: {resourceQOS: {netIOQOS: {netIOLimits: {rxBps: 1}}}}`, resources + ".netIOQOS.netIOLimits.txBps"},
		{"PodQOS", `spec: {resourceQOS: {netIOQOS: {whitelistPorts: {lports: "80"}}}}`, resources + ".netIOQOS.whitelistPorts.rports"},
		{"PodQOS", `spec: {resourceQOS: {diskIOQOS: {diskIOLimit: {readBps: -1}}}}`, resources + ".diskIOQOS.diskIOLimit.readBps"},

		{"AvoidanceAction", `spec: null`, "spec"},
		{"AvoidanceAction", `spec: {coolDownSeconds: 0}`, "spec.coolDownSeconds"},
		{"AvoidanceAction", `spec: {coolDownSeconds: 5m}`, "spec.coolDownSeconds"},
		{"AvoidanceAction", `spec: {throttle: {cpuThrottle: {minCPURatio: 101}}}`, "spec.throttle.cpuThrottle.minCPURatio"},
		{"AvoidanceAction", `spec: {throttle: {cpuThrottle: {stepCPURatio: -1}}}`, "spec.throttle.cpuThrottle.stepCPURatio"},
		{"AvoidanceAction", `spec: {eviction: {terminationGracePeriodSeconds: -1}}`, "spec.eviction.terminationGracePeriodSeconds"},
		{"AvoidanceAction", `spec: {description: ` + strings.Repeat("x", 1025) + `}`, "spec.description"},
	}
}

func badTopology() []bad {
	const nrt = "NodeResourceTopology"
	return []bad{
		{nrt, `craneManagerPolicy: null`, "craneManagerPolicy"},
		{nrt, `craneManagerPolicy: {cpuManagerPolicy: null}`, "craneManagerPolicy.cpuManagerPolicy"},
		{nrt, `craneManagerPolicy: {cpuManagerPolicy: static}`, "craneManagerPolicy.cpuManagerPolicy"},
		{nrt, `craneManagerPolicy: {topologyManagerPolicy: BestEffort}`, "craneManagerPolicy.topologyManagerPolicy"},
		{nrt, `reserved: {cpu: half}`, "reserved.cpu"},
		{nrt, `zones: [{type: Node}]`, "zones[0].name"},
		{nrt, `zones: [{name: node0}]`, "zones[0].type"},
		{nrt, `zones: [{name: node0, type: NUMA}]`, "zones[0].type"},
		{nrt, `zones: [{name: n0, type: Node}]`, "zones[0].name"},
		{nrt, `zones: [{name: node0, type: Node}, {name: node0, type: Node}]`, "zones[1]"},
		{nrt, `zones: [{name: node0, type: Node, costs: [{name: node0}]}]`, "zones[0].costs[0].value"},
		{nrt, `zones: [{name: node0, type: Node, resources: {reservedCPUNums: -1}}]`, "zones[0].resources.reservedCPUNums"},
		{nrt, `zones: [{name: node0, type: Node, resources: {capacity: {memory: 8 GiB}}}]`, "zones[0].resources.capacity.memory"},
	}
}

// TestBadObjectsAreRefused changes one field of a valid object and wants the API server to name it.
func TestBadObjectsAreRefused(t *testing.T) {
	minimal := minimalObjects(t)
	table := slices.Concat(badAnalysis(), badAutoscaling(), badPrediction(), badEnsurance(), badTopology())
	covered := map[string]int{}
	for _, row := range table {
		covered[row.kind]++
		t.Run(row.kind+"/"+row.patch, func(t *testing.T) {
			object := patched(t, minimal[row.kind], row.patch)
			_, err := on(object).Create(t.Context(), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
			if err == nil {
				t.Fatal("the API server accepted the object, want an error")
			}
			if !apierrors.IsInvalid(err) {
				t.Fatalf("want it to be invalid: %v", err)
			}

			// What does not fit its format is named in the message alone.
			if found := causes(err); !slices.Contains(found, row.path) && !strings.Contains(err.Error(), " in "+row.path) {
				t.Errorf("want %s among the causes %q: %v", row.path, found, err)
			}
		})
	}

	for gvk := range kinds() {
		if covered[gvk.Kind] == 0 {
			t.Errorf("no bad object of the kind %s, want one", gvk.Kind)
		}
	}

	t.Logf("%d bad objects", len(table))
}

// TestUnknownFieldsAreRefused misspells a field at the root, in spec and deep down.
func TestUnknownFieldsAreRefused(t *testing.T) {
	minimal := minimalObjects(t)
	for _, row := range []bad{
		{"RecommendationRule", `sepc: {}`, "sepc"},
		{"RecommendationRule", `spec: {runinterval: 1h}`, "spec.runinterval"},
		{"NodeQOS", rule(`metricRule: {valeu: 2}`), "spec.rules[0].metricRule.valeu"},
		{"NodeResourceTopology", `spec: {zones: []}`, "spec"},
	} {
		object := patched(t, minimal[row.kind], row.patch)
		_, err := on(object).Create(t.Context(), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		if want := fmt.Sprintf("unknown field %q", row.path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s with %s: want %s, got %v", row.kind, row.patch, want, err)
		}
	}
}

// minimalObjects returns the valid objects that the tables change, by kind, and sees to it that they are valid.
func minimalObjects(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()

	result := map[string]*unstructured.Unstructured{}
	for _, object := range read(t, "testdata/minimal")["objects.yaml"] {
		if kinds()[object.GroupVersionKind()].namespaced {
			object.SetNamespace(namespace)
		}

		object.SetGenerateName("minimal-")
		options := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll}}
		if _, err := on(object).Create(t.Context(), object, options); err != nil {
			t.Fatalf("the object to change is invalid already: %v", err)
		}

		result[object.GetKind()] = object
	}

	return result
}

// patched returns an object with a patch applied.
func patched(t *testing.T, object *unstructured.Unstructured, patch string) *unstructured.Unstructured {
	t.Helper()

	var change map[string]any
	if err := yaml.UnmarshalStrict([]byte(patch), &change); err != nil {
		t.Fatal(err)
	}

	data, err := json.Marshal(merge(object.DeepCopy().Object, change))
	if err != nil {
		t.Fatal(err)
	}

	result := &unstructured.Unstructured{}
	if err := result.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}

	return result
}

// merge applies a JSON merge patch (RFC 7386), in which the keys of a map that meets a list are indices.
func merge(target, change any) any {
	fields, ok := change.(map[string]any)
	if !ok {
		return change
	}

	if list, ok := target.([]any); ok {
		for i := range list {
			if element, ok := fields[strconv.Itoa(i)]; ok {
				list[i] = merge(list[i], element)
			}
		}

		return list
	}

	merged, ok := target.(map[string]any)
	if !ok {
		merged = map[string]any{}
	}

	for key, value := range fields {
		if value == nil {
			delete(merged, key)
			continue
		}

		merged[key] = merge(merged[key], value)
	}

	return merged
}

// causes returns the fields that an error names.
func causes(err error) []string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}

	var fields []string
	for _, cause := range status.Status().Details.Causes {
		fields = append(fields, cause.Field)
	}

	return fields
}
