// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package load

import "strings"

// entry is one line of the catalog without sizes.
type entry struct {
	namespace, name string
	// controller is d(eployment), s(tatefulset), n (daemonset: one on each node) or c(ronjob).
	controller byte
	kind       Kind
	// sidecar, migrates (has an init container) and scaled (has an autoscaler) are optional features.
	sidecar, migrates, scaled bool
	// schedule is the schedule of a CronJob.
	schedule string
}

// catalogText lists the workloads of an imaginary shop, ordered so that every prefix of the list is a mixture:
// namespace/name, controller, kind, then features.
const catalogText = `
shop/checkout d weekly sidecar migrates
shop/cart d daily scaled
platform/log-agent n flat
search/query d weekly
payments/gateway d weekly sidecar
data/orders-db s java
platform/ingress d daily scaled
shop/legacy-reports d idle
analytics/report-nightly c run 0_2_*_*_*
shop/catalog d cache
payments/fraud-score d shift
search/index s cache
data/events-writer d flat
shop/recommendations d leak
analytics/spark-worker d batch
platform/metrics-agent n flat
shop/frontend d daily sidecar scaled
payments/ledger s java
shop/wishlist d idle
analytics/thumbnailer d bursty
search/suggest d cache
data/sessions s cache
shop/pricing d daily migrates
platform/auth d weekly
analytics/feature-refresh c run 15_*/6_*_*_*
shop/inventory d java migrates
payments/payouts d batch
shop/email-sender d bursty
data/stream s flat
platform/webhooks d bursty
search/crawler d flat
shop/reviews d daily
payments/invoices d leak
platform/old-admin d idle
analytics/etl d batch
shop/promotions d shift
data/cache s cache
platform/network-agent n idle
shop/media d bursty
payments/risk-rules d java
search/ranker d shift
analytics/notebook d idle
shop/shipping d weekly
platform/config d idle
data/backup c run 30_3_*_*_*
shop/gift-cards d idle
payments/settlement d daily
analytics/ab-tests d flat
platform/feature-flags d daily
shop/returns d weekly migrates
search/synonyms d idle
data/search-sync d flat
payments/currency d flat
shop/loyalty d java
platform/image-proxy d bursty
analytics/clickstream d daily
payments/chargebacks d idle
shop/stock-sync c run */10_*_*_*_*
data/archive d leak
platform/status-page d daily
`

// catalog parses catalogText. It skips invalid lines; a test checks the count.
func catalog() []entry {
	var list []entry
	for line := range strings.Lines(catalogText) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}

		namespace, name, _ := strings.Cut(fields[0], "/")
		e := entry{
			namespace:  namespace,
			name:       name,
			controller: fields[1][0],
			kind:       Kind(fields[2]),
		}

		// Anything else is a schedule, with underscores for spaces.
		for _, extra := range fields[3:] {
			switch extra {
			case "sidecar":
				e.sidecar = true
			case "migrates":
				e.migrates = true
			case "scaled":
				e.scaled = true
			default:
				e.schedule = strings.ReplaceAll(extra, "_", " ")
			}
		}

		list = append(list, e)
	}

	return list
}
