// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/workload"
)

// Bounds of the exported values: what lies beyond is no value of a workload.
const (
	maxPlausibleReplicas = 1_000_000
	maxPlausibleCores    = 1e6
	// maxPlausibleAmount bounds memory in bytes and other resources in their unit: 1 PiB.
	maxPlausibleAmount = 1 << 50
	// maxPlausibleMonthly bounds the savings of one target in the currency.
	maxPlausibleMonthly = 1e8
)

// Bounds of the series of one Recommendation.
const (
	maxExportedContainers = 64
	maxExportedResources  = 8
	// maxContainerName is the maximum length of the name of a container.
	maxContainerName = 63
	// maxResourceName is the maximum length of the name of a resource: a domain, a slash and a label.
	maxResourceName = 317
	maxCurrencyName = 16
	// maxCurrencies bounds the sums of savings. A price book has one currency.
	maxCurrencies = 16
)

// containerRequest is a recommended request in cores, in bytes or in the unit of the resource.
type containerRequest struct {
	container, resource string
	amount              float64
}

// amounts are savings.
type amounts struct {
	currency             string
	monthly, cpu, memory float64
}

// calibration holds the shares of a container.
type calibration struct {
	container        string
	target, achieved float64
}

// plausibleRequests returns the requests to export, sorted by container and resource.
func plausibleRequests(containers map[string]corev1.ResourceList) []containerRequest {
	var out []containerRequest
	exported := 0
	for _, container := range slices.Sorted(maps.Keys(containers)) {
		if container == "" || len(container) > maxContainerName {
			continue
		}

		if exported == maxExportedContainers {
			break
		}

		exported++
		out = append(out, requestsOfContainer(container, containers[container])...)
	}

	return out
}

func requestsOfContainer(container string, list corev1.ResourceList) []containerRequest {
	var out []containerRequest
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if len(out) == maxExportedResources {
			break
		}

		maxAmount := float64(maxPlausibleAmount)
		if name == corev1.ResourceCPU {
			maxAmount = maxPlausibleCores
		}

		amount := amountOf(list[name])
		if len(name) > maxResourceName || !isWithin(amount, 0, maxAmount) {
			continue
		}

		out = append(out, containerRequest{container: container, resource: string(name), amount: amount})
	}

	return out
}

func plausibleReplicas(n *int32) *int32 {
	if n == nil || *n < 0 || *n > maxPlausibleReplicas {
		return nil
	}

	return n
}

// plausibleSavings returns savings to export, nil for none.
func plausibleSavings(s *analysisv1alpha1.Savings) *amounts {
	if s == nil || len(s.Currency) > maxCurrencyName {
		return nil
	}

	monthly, err := strconv.ParseFloat(s.Monthly, 64)
	if err != nil {
		return nil
	}

	out := amounts{
		currency: s.Currency,
		monthly:  monthly,
		cpu:      amountOf(s.CPU),
		memory:   amountOf(s.Memory),
	}
	if !isWithin(out.monthly, -maxPlausibleMonthly, maxPlausibleMonthly) ||
		!isWithin(out.cpu, -maxPlausibleCores, maxPlausibleCores) || !isWithin(out.memory, -maxPlausibleAmount, maxPlausibleAmount) {
		return nil
	}

	return &out
}

// plausibleEvidence returns the first evidence of each container.
func plausibleEvidence(list []analysisv1alpha1.CalibrationEvidence) []calibration {
	var out []calibration
	for _, e := range list {
		if len(out) == maxExportedContainers {
			break
		}

		exists := slices.ContainsFunc(out, func(c calibration) bool { return c.container == e.Container })
		target, targetErr := strconv.ParseFloat(e.Target, 64)

		achieved, achievedErr := strconv.ParseFloat(e.Achieved, 64)
		if exists || e.Container == "" || len(e.Container) > maxContainerName || targetErr != nil || achievedErr != nil ||
			!isWithin(target, 0, 1) || !isWithin(achieved, 0, 1) {
			continue
		}

		out = append(out, calibration{container: e.Container, target: target, achieved: achieved})
	}

	return out
}

func amountOf(q resource.Quantity) float64 { return q.AsApproximateFloat64() }

// isWithin reports whether a value is in a range; NaN is in none.
func isWithin(value, low, high float64) bool { return value >= low && value <= high }

// totalSavings sums the savings of Recommendations. Several of one target, such as Resource and Unused, save the same requests: the largest counts.
type totalSavings struct {
	largest map[identity]*amounts
	// currencies are the numbers of Recommendations of each namespace by currency.
	currencies map[string]map[string]int
}

func (t *totalSavings) add(e *entry) {
	if e.savings == nil {
		return
	}

	if t.largest == nil {
		t.largest = map[identity]*amounts{}
		t.currencies = map[string]map[string]int{}
	}

	target := identity{
		group:     workload.GroupOf(e.target.APIVersion, e.target.Kind),
		kind:      e.target.Kind,
		namespace: e.target.Namespace,
		name:      e.target.Name,
	}
	if t.largest[target] == nil || e.savings.monthly > t.largest[target].monthly {
		t.largest[target] = e.savings
	}

	if t.currencies[e.target.Namespace] == nil {
		t.currencies[e.target.Namespace] = map[string]int{}
	}
	t.currencies[e.target.Namespace][e.savings.currency]++
}

// byNamespace returns the sums of the targets of each namespace and currency.
func (t *totalSavings) byNamespace() map[[2]string]*amounts {
	out := map[[2]string]*amounts{}
	for target, saving := range t.largest {
		key := [2]string{target.namespace, saving.currency}
		if out[key] == nil {
			out[key] = &amounts{currency: saving.currency}
		}

		out[key].monthly += saving.monthly
		out[key].cpu += saving.cpu
		out[key].memory += saving.memory
	}

	return out
}

// shareWithin returns the share of a sum that counts, so that its monthly amount is within a limit.
func (a *amounts) shareWithin(limit float64) float64 {
	if monthly := math.Abs(a.monthly); monthly > limit {
		return limit / monthly
	}

	return 1
}

// commonCurrencies returns the currencies of most namespaces. Each namespace counts for its most frequent one: those that one invents do not replace
// that of the price book.
func (t *totalSavings) commonCurrencies() []string {
	namespaces := map[string]int{}
	for _, counts := range t.currencies {
		namespaces[mostFrequent(counts)[0]]++
	}

	sorted := mostFrequent(namespaces)

	return sorted[:min(len(sorted), maxCurrencies)]
}

// mostFrequent returns the keys by falling count, and by name where counts are equal.
func mostFrequent(counts map[string]int) []string {
	return slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
}
