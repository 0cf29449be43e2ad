// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promflags

import (
	"slices"
	"testing"

	"github.com/spf13/pflag"
)

// TestCredentials checks the order of flags, files and the environment, and that a credential on the command line is reported
// without its value.
func TestCredentials(t *testing.T) {
	t.Setenv(envUsername, "eu")
	t.Setenv(envPassword, "ep")
	t.Setenv(envToken, "et")
	for name, c := range map[string]struct {
		args     []string
		noToken  bool
		want     [5]string // user, password, password file, token, token file
		warnings []string
	}{
		"environment, token first": {nil, false, [5]string{3: "et"}, nil},
		"environment, user":        {nil, true, [5]string{"eu", "ep"}, nil},
		"user by flag":             {[]string{"--prometheus-auth-username=u"}, false, [5]string{"u", "ep"}, nil},
		"password file":            {[]string{"--prometheus-auth-username=u", "--prometheus-auth-password-file=f"}, false, [5]string{0: "u", 2: "f"}, nil},
		"token file":               {[]string{"--prometheus-auth-bearertoken-file=f"}, false, [5]string{4: "f"}, nil},
		"password by flag": {[]string{"--prometheus-auth-username=u", "--prometheus-auth-password=hush"}, false, [5]string{"u", "hush"}, []string{
			"--prometheus-auth-password is visible in the list of processes: use --prometheus-auth-password-file or $CRANE_PROMETHEUS_PASSWORD",
		}},
		"token by flag": {[]string{"--prometheus-auth-bearertoken=hush"}, false, [5]string{3: "hush"}, []string{
			"--prometheus-auth-bearertoken is visible in the list of processes: use --prometheus-auth-bearertoken-file or $CRANE_PROMETHEUS_TOKEN",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.noToken {
				t.Setenv(envToken, "")
			}
			p := New()
			fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
			p.AddFlags(fs)
			if err := fs.Parse(append(c.args, "--prometheus-address=http://prometheus")); err != nil {
				t.Fatal(err)
			}
			warnings := p.Complete()
			if errs := p.Validate(); len(errs) > 0 {
				t.Error(errs)
			}
			cfg, err := p.Config()
			if err != nil {
				t.Fatal(err)
			}
			if got := [5]string{cfg.Username, cfg.Password, cfg.PasswordFile, cfg.BearerToken, cfg.BearerTokenFile}; got != c.want {
				t.Errorf("credentials %q, want %q", got, c.want)
			}
			if !slices.Equal(warnings, c.warnings) {
				t.Errorf("warnings %q, want %q", warnings, c.warnings)
			}
		})
	}
}
