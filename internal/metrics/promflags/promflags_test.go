// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promflags

import (
	"slices"
	"strings"
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
		"password in the address": {[]string{"--prometheus-address=https://u:hush@prometheus"}, true, [5]string{"eu", "ep"}, []string{
			"--prometheus-address has credentials, which are visible in the list of processes: use --prometheus-auth-username with --prometheus-auth-password-file, or --prometheus-auth-bearertoken-file",
		}},
		"headers": {[]string{"--prometheus-header=X-Api-Key: hush", "--prometheus-header=X-Key: hush"}, true, [5]string{"eu", "ep"}, []string{
			"--prometheus-header is visible in the list of processes: use --prometheus-headers-file for headers with credentials",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.noToken {
				t.Setenv(envToken, "")
			}

			p := New()
			fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
			p.AddFlags(fs)

			if err := fs.Parse(append([]string{"--prometheus-address=http://prometheus"}, c.args...)); err != nil {
				t.Fatal(err)
			}

			warnings := p.Complete()
			if errs := p.Validate(); len(errs) > 0 {
				t.Errorf("Validate with flags %q: %v, want no error", c.args, errs)
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

// TestInvalidAddressHidesCredentials checks that the error of an invalid address does not repeat the password in it.
func TestInvalidAddressHidesCredentials(t *testing.T) {
	for _, address := range []string{"ftp://u:hush@prometheus", "u:hush@prometheus:9090", "https://u:hu%sh@prometheus", "https://u:hush/1@prometheus"} {
		p := New()
		p.Address = address
		if err := p.Validate().ToAggregate(); err == nil || strings.Contains(err.Error(), "hu") {
			t.Errorf("Validate with address %s: error %v, want one without the credentials", address, err)
		}
	}

	p := New()
	p.Address = "prometheus:9090"
	if err := p.Validate().ToAggregate(); err == nil || !strings.Contains(err.Error(), p.Address) {
		t.Errorf("Validate with an address without credentials: error %v, want one that names it", err)
	}
}
