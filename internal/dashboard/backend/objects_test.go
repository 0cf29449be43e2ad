// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"encoding/json"
	"fmt"
	"strings"
)

// hostileObjects returns the objects of a cluster in which a tenant wrote what the API server accepts: a workload with a history and its
// Recommendation, and objects with extreme, contradictory and missing values. The workloads of some targets do not exist.
func hostileObjects() []string {
	out := []string{
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`,
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"pay"}}`,
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop","labels":{"team":"a"}},"spec":{"replicas":2,
			"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[
			{"name":"app","resources":{"requests":{"cpu":"500m","memory":"1Gi"}}},{"name":"sidecar"}]}}}}`,
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"empty","namespace":"shop"},"spec":{"template":{"spec":{"containers":null}}}}`,
		`{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"web","namespace":"pay"},"spec":{"replicas":-5,"template":{"spec":{"containers":[
			{"name":"a","resources":{"requests":{"cpu":"9E","memory":"9E"},"limits":{"cpu":"0","memory":"-1"}}},{"name":"a"}]}}}}`,
		`{"apiVersion":"apps/v1","kind":"ReplicaSet","metadata":{"name":"web-6d4cf56db6","namespace":"shop","ownerReferences":[
			{"apiVersion":"apps/v1","kind":"Deployment","name":"web","uid":"1","controller":true}]},"spec":{"template":{"spec":{"containers":[]}}}}`,
		`{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"nightly","namespace":"pay"},"spec":{"schedule":"x"}}`,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-6d4cf56db6-bbbbb","namespace":"shop","ownerReferences":[
			{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-6d4cf56db6","uid":"2","controller":true}]},"spec":{"nodeName":"n1","containers":[
			{"name":"app","resources":{"requests":{"cpu":"500m","memory":"1Gi"}}}]},"status":{"phase":"Running","containerStatuses":[
			{"name":"app","lastState":{"terminated":{"reason":"OOMKilled","finishedAt":null}}},{"name":"gone","lastState":{}}]}}`,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"loose","namespace":"pay"},"spec":{"nodeName":"no-such-node"},"status":{}}`,
		`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1","annotations":{"cpu_usage_avg_5m":"NaN,x","cpu_usage_max_avg_1h":"1e400,2026-01-01T00:00:00Z",
			"node_hot_value":"-Inf,9999-12-31T23:59:59Z"}},"status":{"capacity":{"cpu":"4","memory":"8Gi"},"allocatable":{"cpu":"4","memory":"8Gi"}}}`,
		`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n2"},"spec":{"taints":[{"key":"crane.io/x"}]},"status":{"capacity":{"cpu":"9E","memory":"-1"}}}`,
		`{"apiVersion":"v1","kind":"Event","metadata":{"name":"e","namespace":"shop"},"involvedObject":{"kind":"Deployment","name":"web"},"reason":"AdoptionStep","message":"\u0000"}`,
		`{"apiVersion":"analysis.crane.io/v1alpha1","kind":"RecommendationRule","metadata":{"name":"all"},"spec":{"runInterval":"x","resourceSelectors":null,
			"namespaceSelector":{},"recommenders":null},"status":{"runNumber":-1,"targets":-1,"conditions":[{}]}}`,
		`{"apiVersion":"autoscaling.crane.io/v1alpha1","kind":"EffectiveVerticalPodAutoscaler","metadata":{"name":"v","namespace":"shop"},"spec":{},
			"status":{"decisions":[{},{"request":"9E"}]}}`,
	}

	for i, spec := range hostileRecommendations() {
		out = append(out, fmt.Sprintf(`{"apiVersion":"analysis.crane.io/v1alpha1","kind":"Recommendation","metadata":{"name":"rec-%d","namespace":%q,
			"resourceVersion":"1","labels":{"team":"<script>","a":"","%s":"x"}},%s}`, i, []string{"shop", "pay"}[i%2], strings.Repeat("l", 63), spec))
	}

	for i, spec := range hostilePredictions() {
		out = append(out, fmt.Sprintf(`{"apiVersion":"autoscaling.crane.io/v1alpha1","kind":"EffectiveHorizontalPodAutoscaler","metadata":{"name":"ehpa-%d",
			"namespace":"shop","uid":"ehpa-%d"},"spec":{"minReplicas":-1,"maxReplicas":0,"scaleTargetRef":{"kind":%q,"name":%q},"prediction":{"predictionWindowSeconds":2147483647},
			"crons":[{"name":"c","start":"x","targetReplicas":-1}]},"status":{"crons":[{"name":"c","nextStart":"0001-01-01T00:00:00Z"}],"proposals":[{"name":"cron "},{"name":"m","replicas":-1}]}}`,
			i, i, []string{"Deployment", "(["}[i%2], []string{"web", "web("}[i%2]))
		out = append(out, fmt.Sprintf(`{"apiVersion":"prediction.crane.io/v1alpha1","kind":"TimeSeriesPrediction","metadata":{"name":"p-%d","namespace":"shop",
			"ownerReferences":[{"apiVersion":"autoscaling.crane.io/v1alpha1","kind":"EffectiveHorizontalPodAutoscaler","name":"ehpa-%d","uid":"ehpa-%d","controller":true}]},%s}`, i, i, i, spec))
	}

	return out
}

// hostileRecommendations returns spec and status of Recommendations.
func hostileRecommendations() []string {
	web := `"targetRef":{"apiVersion":"apps/v1","kind":"Deployment","namespace":"shop","name":"web"}`
	ready := `"conditions":[{"type":"Ready","status":"True","reason":"Computed"}]`
	info := func(text string) string {
		quoted, _ := json.Marshal(text)
		return string(quoted)
	}

	sizes := `{"spec":{"template":{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"100m","memory":"128Mi"}}}]}}}}`
	savings := func(monthly string) string {
		return fmt.Sprintf(`"savings":{"cpu":"9E","memory":"9E","monthly":%q,"currency":"XXX"}`, monthly)
	}

	out := []string{
		`"spec":{"type":"Resource",` + web + `},"status":{` + ready + `,"recommendedInfo":` + info(sizes) + `,"currentInfo":` + info(sizes) + `,"change":"=1+1","action":"Patch"}`,
		`"spec":{"type":"Resource","adoptionType":"Auto",` + web + `},"status":{` + ready + `,"adoption":{"phase":"no such phase","steps":-1,"dryRun":[{}]}}`,
		`"spec":{"type":"Resource","targetRef":{}},"status":{}`,
		`"spec":{"type":"no such type","targetRef":{"apiVersion":"a/b/c/d","kind":"(","namespace":"kube-system","name":"[*"}},"status":{"conditions":[{},{"type":"Ready"}]}`,
		`"spec":{"type":"Replicas","targetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"missing"}},"status":{"recommendedInfo":` +
			info(`{"spec":{"replicas":-9223372036854775808}}`) + `,"currentInfo":` + info(`{"spec":{"replicas":9223372036854775807}}`) + `,` + ready + `}`,
		`"spec":{"type":"Resource",` + web + `},"status":{"evidence":[{"container":"","target":"NaN","achieved":"Inf","days":-1}],"lastUpdateTime":"0001-01-01T00:00:00Z",` + ready + `}`,
		`"spec":{"type":"HPA",` + web + `},"status":{"recommendedValue":` + info(strings.Repeat("[", 10_000)) + `,"action":"Delete","description":"\u0000\u202e"}`,
	}

	for _, monthly := range []string{"1e308", "1.7e308", "-1.7e308", "-1e308", "NaN", "Inf", "", "0x1p1023"} {
		out = append(out, `"spec":{"type":"Resource",`+web+`},"status":{`+ready+`,"action":"Patch",`+savings(monthly)+`}`)
	}

	for _, text := range []string{
		`null`, `[]`, `"x"`, strings.Repeat(`{"spec":`, 5_000), `{"spec":{"template":{"spec":{"containers":[null,{"resources":{"requests":{"cpu":"9E","memory":null}}},{"resources":{"requests":{"cpu":"9E","memory":"9E"}}}]}}}}`,
		`{"spec":{"template":{"spec":{"containers":[{"name":"no such container","resources":{"requests":{"cpu":"-1","memory":"1e-400"}}}]}}}}`,
	} {
		out = append(out, `"spec":{"type":"Resource",`+web+`},"status":{`+ready+`,"action":"Patch","recommendedInfo":`+info(text)+`,"currentInfo":`+info(text)+`,"recommendedValue":`+info(text)+`}`)
	}

	return out
}

// hostilePredictions returns spec and status of TimeSeriesPredictions.
func hostilePredictions() []string {
	metric := `"predictionMetrics":[{"resourceIdentifier":"cpu","type":"ResourceQuery","resourceQuery":"cpu","algorithm":{}}]`
	samples := func(text string) string {
		return `"spec":{` + metric + `,"predictionWindowSeconds":2147483647},"status":{"predictionMetrics":[{"resourceIdentifier":"cpu","ready":true,"skill":"NaN","prediction":[{"samples":[` + text + `]}]}]}`
	}

	return []string{
		samples(`{"timestamp":1,"value":"NaN"},{"timestamp":61,"value":"1e308"},{"timestamp":121,"value":"-Inf"}`),
		samples(`{"timestamp":-9223372036854775808,"value":"1"},{"timestamp":9223372036854775807,"value":"1"},{"timestamp":-2,"value":"1"}`),
		samples(`{"timestamp":5,"value":"x"},{"timestamp":5,"value":""}`),
		samples(`{"timestamp":0,"value":"1"},{"timestamp":9223372037,"value":"1"},{"timestamp":18446744074,"value":"1"}`),
		samples(``),
		`"spec":{"predictionMetrics":[{"resourceIdentifier":"","type":"ExpressionQuery","expressionQuery":{"expression":"((("},"algorithm":{"algorithmType":"x"}},{"resourceIdentifier":"m","type":"MetricQuery"}]}`,
		`"spec":{"predictionWindowSeconds":-1,"predictionMetrics":null}`,
	}
}
