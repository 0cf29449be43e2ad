// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginconfig

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
)

// decode decodes a KubeSchedulerConfiguration as the scheduler does, strictly and with defaults, and returns the
// arguments of its only plugin.
func decode(t *testing.T, pluginConfig string) (runtime.Object, error) {
	t.Helper()

	scheme := runtime.NewScheme()
	if err := schedulerv1.AddToScheme(scheme); err != nil {
		t.Fatalf("AddToScheme: %v, want no error", err)
	}

	AddToScheme(scheme)
	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)

	file := `{"apiVersion":"kubescheduler.config.k8s.io/v1","kind":"KubeSchedulerConfiguration","profiles":[{"pluginConfig":[` + pluginConfig + `]}]}`
	obj, err := runtime.Decode(codecs.UniversalDecoder(schedulerv1.SchemeGroupVersion), []byte(file))
	if err != nil {
		return nil, err
	}

	args := obj.(*schedulerv1.KubeSchedulerConfiguration).Profiles[0].PluginConfig[0].Args.Object
	scheme.Default(args)
	return args, nil
}

func TestDynamicArgs(t *testing.T) {
	for name, c := range map[string]struct {
		args, want, wantErr string
	}{
		"default":       {args: `{}`, want: DefaultPolicyConfigPath},
		"given":         {args: `{"policyConfigPath":"/etc/crane/policy.yaml"}`, want: "/etc/crane/policy.yaml"},
		"relative path": {args: `{"policyConfigPath":"policy.yaml"}`, wantErr: `args.policyConfigPath: Invalid value: "policy.yaml": must be an absolute path`},
		"all of it": {
			args: `{"timeZone":"Asia/Shanghai","strategy":"Pack","packTargetPercent":60,"minFreshPercent":30,"explainAddress":"[::1]:1","history":"None"}`,
			want: DefaultPolicyConfigPath,
		},
		"no explanations":  {args: `{"explainAddress":"none"}`, want: DefaultPolicyConfigPath},
		"public address":   {args: `{"explainAddress":"0.0.0.0:10260"}`, wantErr: `args.explainAddress: Invalid value: "0.0.0.0:10260": must be a loopback address`},
		"unknown strategy": {args: `{"strategy":"Best"}`, wantErr: `args.strategy: Unsupported value: "Best": supported values: "Spread", "Pack", "Risk"`},
		"target of 100":    {args: `{"packTargetPercent":100}`, wantErr: `args.packTargetPercent: Invalid value: 100: must be from 1 to 99`},
		"negative margin":  {args: `{"riskMarginPercent":-1}`, wantErr: `args.riskMarginPercent`},
		"too many fresh":   {args: `{"minFreshPercent":101}`, wantErr: `args.minFreshPercent`},
		"unknown zone":     {args: `{"timeZone":"Mars/Olympus"}`, wantErr: `args.timeZone: Invalid value: "Mars/Olympus"`},
		"unknown history":  {args: `{"history":"Magic"}`, wantErr: `args.history: Unsupported value: "Magic"`},
		"unknown field":    {args: `{"policyPath":"/x"}`, wantErr: `.profiles[0].pluginConfig[0]: strict decoding error: decoding args for plugin Dynamic: strict decoding error: unknown field "policyPath"`},
		"wrong type":       {args: `{"policyConfigPath":7}`, wantErr: `DynamicArgs.policyConfigPath`},
		"wrong kind":       {args: `{"kind":"NodeResourceTopologyMatchArgs","apiVersion":"kubescheduler.config.k8s.io/v1"}`, wantErr: `not of type DynamicArgs`},
	} {
		t.Run(name, func(t *testing.T) {
			obj, err := decode(t, `{"name":"Dynamic","args":`+c.args+`}`)
			var a *DynamicArgs
			if err == nil {
				a, err = DynamicArgsFrom(obj)
			}

			if c.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantErr) {
					t.Fatalf("got error %v, want one with %q", err, c.wantErr)
				}

				return
			}

			if err != nil {
				t.Fatalf("DynamicArgsFrom(%s): %v, want no error", c.args, err)
			}

			if a.PolicyConfigPath != c.want {
				t.Errorf("got path %q, want %q", a.PolicyConfigPath, c.want)
			}
		})
	}
}

func TestNodeResourceTopologyMatchArgs(t *testing.T) {
	for name, c := range map[string]struct {
		args, wantErr string
		want          []string
		missing       MissingTopology
	}{
		"default":         {args: `{}`, want: []string{"cpu"}, missing: MissingTopologyPass},
		"given":           {args: `{"topologyAwareResources":["cpu","memory","example.com/gpu"],"missingTopology":"Reject"}`, want: []string{"cpu", "memory", "example.com/gpu"}, missing: MissingTopologyReject},
		"switched off":    {args: `{"topologyAwareResources":[]}`, want: []string{}, missing: MissingTopologyPass},
		"bad name":        {args: `{"topologyAwareResources":["cpu","a b"]}`, wantErr: `args.topologyAwareResources[1]: Invalid value: "a b"`},
		"twice":           {args: `{"topologyAwareResources":["cpu","cpu"]}`, wantErr: `args.topologyAwareResources[1]: Duplicate value: "cpu"`},
		"unknown missing": {args: `{"missingTopology":"Ignore"}`, wantErr: `args.missingTopology: Unsupported value: "Ignore": supported values: "Pass", "Reject"`},
		"unknown field":   {args: `{"resources":[]}`, wantErr: `.profiles[0].pluginConfig[0]: strict decoding error: decoding args for plugin NodeResourceTopologyMatch: strict decoding error: unknown field "resources"`},
	} {
		t.Run(name, func(t *testing.T) {
			obj, err := decode(t, `{"name":"NodeResourceTopologyMatch","args":`+c.args+`}`)
			var a *NodeResourceTopologyMatchArgs
			if err == nil {
				a, err = NodeResourceTopologyMatchArgsFrom(obj)
			}

			if c.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantErr) {
					t.Fatalf("got error %v, want one with %q", err, c.wantErr)
				}

				return
			}

			if err != nil {
				t.Fatalf("NodeResourceTopologyMatchArgsFrom(%s): %v, want no error", c.args, err)
			}

			if strings.Join(a.TopologyAwareResources, ",") != strings.Join(c.want, ",") || a.MissingTopology != c.missing {
				t.Errorf("NodeResourceTopologyMatchArgsFrom(%s) = %v, %s, want %v, %s", c.args, a.TopologyAwareResources, a.MissingTopology, c.want, c.missing)
			}
		})
	}
}

// TestArgumentsNeedTheirType covers the nil and raw arguments that the scheduler passes without arguments in the file
// and a default.
func TestArgumentsNeedTheirType(t *testing.T) {
	for _, obj := range []runtime.Object{nil, &runtime.Unknown{}} {
		if _, err := DynamicArgsFrom(obj); err == nil || !strings.Contains(err.Error(), "want DynamicArgs") {
			t.Errorf("DynamicArgsFrom(%T): %v, want an error with the type", obj, err)
		}
		if _, err := NodeResourceTopologyMatchArgsFrom(obj); err == nil || !strings.Contains(err.Error(), "want NodeResourceTopologyMatchArgs") {
			t.Errorf("NodeResourceTopologyMatchArgsFrom(%T): %v, want an error with the type", obj, err)
		}
	}
}

func TestDeepCopySharesNothing(t *testing.T) {
	a := &NodeResourceTopologyMatchArgs{TopologyAwareResources: []string{"cpu"}}
	b := a.DeepCopyObject().(*NodeResourceTopologyMatchArgs)
	b.TopologyAwareResources[0] = "memory"

	if a.TopologyAwareResources[0] != "cpu" {
		t.Errorf("a change of the copy made the original %v, want cpu", a.TopologyAwareResources)
	}

	off := (&NodeResourceTopologyMatchArgs{TopologyAwareResources: []string{}}).DeepCopyObject().(*NodeResourceTopologyMatchArgs)
	SetNodeResourceTopologyMatchDefaults(off)

	if len(off.TopologyAwareResources) != 0 {
		t.Errorf("the copy of an empty list became %v, want it empty", off.TopologyAwareResources)
	}
}
