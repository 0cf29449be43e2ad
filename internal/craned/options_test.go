// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"crane.io/crane/internal/component/featuregate"
	"crane.io/crane/internal/metrics/prometheus"
)

// parse returns the completed options of a command line.
func parse(t *testing.T, args ...string) (o *Options, warnings []string, err error) {
	t.Helper()

	o = NewOptions()
	fs := pflag.NewFlagSet("craned", pflag.ContinueOnError)
	o.AddFlags(fs)

	if err := fs.Parse(args); err != nil {
		return nil, nil, err
	}

	return o, o.Complete(fs), nil
}

const address = "--prometheus-address=http://prometheus:9090"

func TestDefaultsAreValid(t *testing.T) {
	t.Setenv("CRANE_SYSTEM_NAMESPACE", "")
	o, warnings, err := parse(t, address)
	if err != nil {
		t.Fatal(err)
	}

	if errs := o.Validate(); len(errs) > 0 || len(warnings) > 0 {
		t.Errorf("the defaults have errors %v, warnings %v, want none", errs, warnings)
	}
	if o.Namespace != "crane-system" || !o.runsController(recommendationController) || !o.FeatureGates.Enabled(featuregate.Analysis) {
		t.Errorf("the defaults are %+v, want namespace crane-system and recommendations", o)
	}

	t.Setenv("CRANE_SYSTEM_NAMESPACE", "elsewhere")
	if o := NewOptions(); o.Namespace != "elsewhere" {
		t.Errorf("the namespace is %s, want elsewhere, as CRANE_SYSTEM_NAMESPACE says", o.Namespace)
	}
}

// TestDefaultsAreGocranes checks the defaults that gocrane's manifests rely on.
func TestDefaultsAreGocranes(t *testing.T) {
	fs := pflag.NewFlagSet("craned", pflag.ContinueOnError)
	NewOptions().AddFlags(fs)

	for name, want := range map[string]string{
		"api-qps": "300", "api-burst": "400", "metrics-bind-address": ":8080", "health-probe-bind-address": ":8081",
		"leader-elect": "true", "lease-duration": "15s", "lease-retry-period": "2s", "lease-renew-period": "10s",
		"datasource": "[prom]", "prometheus-address": "", "prometheus-auth-username": "", "prometheus-auth-password": "",
		"prometheus-auth-bearertoken": "", "prometheus-query-concurrency": "10", "prometheus-insecure-skip-verify": "false",
		"prometheus-keepalive": "1m0s", "prometheus-timeout": "3m0s", "prometheus-maxpoints": "11000",
		"recommendation-configuration-file": "/tmp/recommendation-framework/recommendation_configuration.yaml",
		"recommendation-outdate-interval":   "24h0m0s", "extension-labels": "",
		"prediction-update-frequency-duration": "30s", "model-update-interval": "12h0m0s",
		"time-series-prediction-max-concurrent-reconciles": "10",
	} {
		f := fs.Lookup(name)
		if f == nil {
			t.Errorf("no flag --%s, want it as in gocrane", name)
			continue
		}

		if f.DefValue != want {
			t.Errorf("--%s is %s by default, want %s", name, f.DefValue, want)
		}
	}
}

func TestValidate_InvalidOptions(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no address":          {nil, "--prometheus-address: Required value"},
		"address without URL": {[]string{"--prometheus-address=prometheus:9090"}, "--prometheus-address: Invalid value"},
		"unknown source":      {[]string{address, "--datasource=prom,influx"}, `--datasource[1]: Unsupported value: "influx"`},
		"mock source":         {[]string{address, "--datasource=mock"}, `--datasource[0]: Unsupported value: "mock"`},
		"source twice":        {[]string{address, "--datasource=prom,Prometheus"}, `--datasource[1]: Duplicate value: "prom"`},
		"csv without files":   {[]string{"--datasource=csv"}, "--csv-dir: Required value"},
		"grpc without place":  {[]string{"--datasource=grpc", "--grpc-ds-address="}, "--grpc-ds-address: Required value"},
		"grpc without time":   {[]string{"--datasource=grpc", "--grpc-ds-timeout=0s"}, "--grpc-ds-timeout: Invalid value"},
		"grpc without TLS":    {[]string{"--datasource=grpc", "--grpc-ds-insecure", "--grpc-ds-ca-file=a"}, "--grpc-ds-insecure: Forbidden"},
		"two passwords":       {[]string{address, "--prometheus-auth-username=u", "--prometheus-auth-password=a", "--prometheus-auth-password-file=b"}, "--prometheus-auth-password-file: Forbidden"},
		"no source":           {[]string{address, "--datasource="}, "--datasource: Required value"},
		"unknown controller":  {[]string{address, "--controllers=*,-ehpa"}, `--controllers[1]: Unsupported value: "-ehpa"`},
		"bad address":         {[]string{address, "--metrics-bind-address=8080"}, "--metrics-bind-address: Invalid value"},
		"bad port":            {[]string{address, "--health-probe-bind-address=:port"}, "--health-probe-bind-address: Invalid value"},
		"lease too short":     {[]string{address, "--lease-duration=10s"}, "--lease-duration: Invalid value"},
		"renewal too short":   {[]string{address, "--lease-renew-period=2s"}, "--lease-renew-period: Invalid value"},
		"no retry":            {[]string{address, "--lease-retry-period=0s"}, "--lease-retry-period: Invalid value"},
		"no queries":          {[]string{address, "--prometheus-query-concurrency=0"}, "--prometheus-query-concurrency: Invalid value"},
		"no points":           {[]string{address, "--prometheus-maxpoints=1"}, "--prometheus-maxpoints: Invalid value"},
		"no time":             {[]string{address, "--prometheus-timeout=0s"}, "--prometheus-timeout: Invalid value"},
		"two tokens":          {[]string{address, "--prometheus-auth-bearertoken=a", "--prometheus-auth-bearertoken-file=b"}, "--prometheus-auth-bearertoken-file: Forbidden"},
		"header":              {[]string{address, "--prometheus-header=A"}, "--prometheus-header[0]: Invalid value: want 'Name: value'"},
		"user and token":      {[]string{address, "--prometheus-auth-username=a", "--prometheus-auth-bearertoken=b"}, "--prometheus-auth-username: Forbidden"},
		"password alone":      {[]string{address, "--prometheus-auth-password=a"}, "--prometheus-auth-username: Required value"},
		"half a certificate":  {[]string{address, "--prometheus-cert-file=a"}, "--prometheus-cert-file: Required value"},
		"bad labels":          {[]string{address, "--extension-labels=cluster"}, "--extension-labels: Invalid value"},
		"bad log":             {[]string{address, "--log-format=xml"}, "--log-format: Unsupported value"},
		"quiet log":           {[]string{address, "-v=-1"}, "--v: Invalid value"},
		"no requests":         {[]string{address, "--api-qps=0"}, "--api-qps: Invalid value"},
		"no burst":            {[]string{address, "--api-burst=0"}, "--api-burst: Invalid value"},
		"no end":              {[]string{address, "--shutdown-timeout=0s"}, "--shutdown-timeout: Invalid value"},
		"negative delay":      {[]string{address, "--shutdown-delay-duration=-1s"}, "--shutdown-delay-duration: Invalid value"},
		"never outdated":      {[]string{address, "--recommendation-outdate-interval=0s"}, "--recommendation-outdate-interval: Invalid value"},
		"no node labels":      {[]string{address, "--node-load-labels="}, "--node-load-labels: Required value"},
		"change in percent":   {[]string{address, "--node-load-material-change=2"}, "--node-load-material-change: Invalid value"},
		"day of the report":   {[]string{address, "--weekly-report=Someday 09:00"}, `"Someday" is not a day of the week`},
		"hour of the report":  {[]string{address, "--weekly-report=friday 09:30 Asia/Shanghai"}, `"09:30" is not a full hour`},
		"zone of the report":  {[]string{address, "--weekly-report=Friday 09:00 Asia/Atlantis"}, "--weekly-report: Invalid value"},
		"unknown time zone":   {[]string{address, "--node-load-time-zone=Asia/Atlantis"}, "--node-load-time-zone: Invalid value"},
		"no patches":          {[]string{address, "--node-load-api-qps=0"}, "--node-load-api-qps: Invalid value"},
		"no writers":          {[]string{address, "--node-load-workers=0"}, "--node-load-workers: Invalid value"},
		"no readings":         {[]string{address, "--rebalance-rounds=0"}, "--rebalance-rounds: Invalid value"},
		"no moves":            {[]string{address, "--rebalance-max-moves-per-hour=0"}, "--rebalance-max-moves-per-hour: Invalid value"},
		"no rebalance time":   {[]string{address, "--rebalance-interval=0s"}, "--rebalance-interval: Invalid value"},
		"negative rest":       {[]string{address, "--rebalance-cool-down=-1s"}, "--rebalance-cool-down: Invalid value"},
		"two places of rules": {[]string{address, "--prometheus-adapter-config=a", "--prometheus-adapter-configmap-name=b"}, "--prometheus-adapter-config: Forbidden"},
		"half a ConfigMap":    {[]string{address, "--prometheus-adapter-configmap-name=b"}, "--prometheus-adapter-configmap-namespace: Required value"},
		"labels of rules":     {[]string{address, "--prometheus-adapter-extension-labels=a"}, "--prometheus-adapter-extension-labels: Invalid value"},
		"negative budget":     {[]string{address, "--scaling-ahead-budget=-0.1"}, "--scaling-ahead-budget: Invalid value: -0.1: must be from 0 to 10"},
		"huge budget":         {[]string{address, "--scaling-ahead-budget=11"}, "--scaling-ahead-budget: Invalid value"},
		"budget of nothing":   {[]string{address, "--scaling-ahead-budget=NaN"}, "--scaling-ahead-budget: Invalid value"},
		"negative reaction":   {[]string{address, "--adoption-reaction-interval=-1s"}, "--adoption-reaction-interval: Invalid value"},
		"rare reaction":       {[]string{address, "--adoption-reaction-interval=2h"}, "--adoption-reaction-interval: Invalid value"},
		"no grace":            {[]string{address, "--ehpa-metrics-grace=0s"}, "--ehpa-metrics-grace: Invalid value"},
		"no namespace":        {[]string{address}, "CRANE_SYSTEM_NAMESPACE: Invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "no namespace" {
				t.Setenv("CRANE_SYSTEM_NAMESPACE", "Not_A_Name")
			}

			o, _, err := parse(t, c.args...)
			if err != nil {
				t.Fatal(err)
			}

			err = o.Validate().ToAggregate()
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

func TestValidate_ValidOptions(t *testing.T) {
	for name, args := range map[string][]string{
		"another name of a source":  {"--datasource=Prometheus"},
		"several sources in order":  {"--datasource=grpc,prom,metrics-server"},
		"no leader, any lease":      {"--leader-elect=false", "--lease-duration=1s"},
		"no servers":                {"--metrics-bind-address=0", "--health-probe-bind-address=0"},
		"a controller left out":     {"--controllers=*,-recommendation"},
		"labels of several sorts":   {`--extension-labels=cluster=eu,tier=~"a|b"`},
		"no budget, no reaction":    {"--scaling-ahead-budget=0", "--adoption-reaction-interval=0s"},
		"a gate that means nothing": {"--feature-gates=PodResource=false"},
	} {
		t.Run(name, func(t *testing.T) {
			o, warnings, err := parse(t, append(args, address)...)
			if err != nil {
				t.Fatal(err)
			}

			if errs := o.Validate(); len(errs) > 0 {
				t.Errorf("Validate = %v, want no error", errs)
			}
			if wants := name == "a gate that means nothing"; wants != (len(warnings) == 1) {
				t.Errorf("warnings %v, want one: %t", warnings, wants)
			}
			if name == "a controller left out" && o.runsController(recommendationController) {
				t.Error("recommendation runs, want it left out")
			}
		})
	}

	if _, _, err := parse(t, address, "--feature-gates=Nonsense=true"); err == nil {
		t.Error("--feature-gates=Nonsense=true is accepted, want an error")
	}
}

func TestRecommendationSettings(t *testing.T) {
	o, _, err := parse(t, address)
	if err != nil {
		t.Fatal(err)
	}

	o.RecommendationConfigurationFile = filepath.Join(t.TempDir(), "none.yaml")
	if _, err := recommendationSettings(t.Context(), o); err != nil {
		t.Errorf("recommendationSettings without a file at the default path: %v, want none", err)
	}

	o.requireConfiguration = true
	if _, err := recommendationSettings(t.Context(), o); err == nil || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("recommendationSettings without the file of the flag: %v, want an error that names none.yaml", err)
	}
	if err := os.WriteFile(o.RecommendationConfigurationFile, []byte("kind: Nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	if _, err := recommendationSettings(t.Context(), o); err == nil || !strings.Contains(err.Error(), "--recommendation-configuration-file") {
		t.Errorf("recommendationSettings of another kind of file: %v, want an error that names the flag", err)
	}
}

// TestNewSource checks that a source accepts the options that Validate accepts.
func TestNewSource(t *testing.T) {
	o, _, err := parse(t, address, "--extension-labels=cluster=eu", "--prometheus-auth-username=u", "--prometheus-auth-password=p")
	if err != nil {
		t.Fatal(err)
	}

	var source *prometheus.Source
	if source, err = newSource(o.Prometheus); err != nil || source == nil {
		t.Error(err)
	}

	o.Prometheus.CAFile = filepath.Join(t.TempDir(), "none.pem")
	if _, err := newSource(o.Prometheus); err == nil {
		t.Error("newSource with a CA file that does not exist = nil, want an error")
	}
}

// TestValidate_NodeLoadAlone checks that the controllers of node load run without the others, and that rebalancing evicts nothing by
// default.
func TestValidate_NodeLoadAlone(t *testing.T) {
	o, _, err := parse(t, address, "--controllers=nodeload")
	if err != nil || len(o.Validate()) > 0 {
		t.Fatalf("--controllers=nodeload: %v, %v, want no error", err, o.Validate())
	}

	for name, want := range map[string]bool{nodeLoadController: true, rebalanceController: false, recommendationController: false} {
		if o.runsController(name) != want {
			t.Errorf("%s runs: %v", name, !want)
		}
	}

	if !o.Rebalance.DryRun {
		t.Error("rebalancing is no dry run by default, want one")
	}

	format, err := (&NodeLoad{TimeZone: "Asia/Shanghai"}).format()
	if err != nil || format.Zone.String() != "Asia/Shanghai" {
		t.Errorf("format has the zone %v, %v, want Asia/Shanghai", format.Zone, err)
	}
}

// TestDisabledKinds checks that every kind without a running controller is listed with the setting that disables it.
func TestDisabledKinds(t *testing.T) {
	o := NewOptions()
	want := map[string]string{"ClusterNodePrediction": "the feature gate ClusterNodePrediction is off"}
	if diff := cmp.Diff(want, o.disabledKinds()); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}

	o.Controllers = []string{"*", "-" + effectiveVPAController}
	if err := o.FeatureGates.Set("Analysis=false,ClusterNodePrediction=true"); err != nil {
		t.Fatal(err)
	}

	want = map[string]string{
		"RecommendationRule": "the feature gate Analysis is off", "Analytics": "the feature gate Analysis is off",
		"EffectiveVerticalPodAutoscaler": "--controllers excludes " + effectiveVPAController,
	}

	if diff := cmp.Diff(want, o.disabledKinds()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
