package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/internal/conform"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

type ConformPlan struct {
	Servers
	Plugin string // name or path
	// Require makes Conform fail if a conformance rule that applies to the plugin was not checked.
	Require bool
	// Rules receives one line for each rule as soon as the rule's result is known, and then the rule's
	// failed test cases. If AllCases is set, all test cases of the rule follow the line.
	Rules    io.Writer
	AllCases bool
}

// sweepTimeout limits the time in which lockbench removes its own data from the user's server.
const sweepTimeout = 30 * time.Second

// Conform runs the conformance suite.
func Conform(ctx context.Context, p ConformPlan, opts Options) (o *Outcome, err error) {
	p.starts = true
	d, err := p.resolve(ctx, p.Plugin, opts.Lines)
	if err != nil {
		return nil, err
	}
	suite := conform.Options{Name: d.Name, Path: d.Path, Config: d.config, Namespaces: d.takes("prefix") != nil, NoMTLS: p.noMTLS()}
	// Start throwaway servers if flags say how, or if the plugin takes an address and got none.
	if p.strangers[d.Name] != nil || len(p.Targets) == 0 && d.config["address"] == "" && d.takes("address") != nil {
		servers, err := new(environment).start(ctx, d.Found, true)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, servers.Close()) }()
		maps.Copy(d.config, servers.Config)
		suite.Servers = servers
	} else if prefix := d.ownPrefix(); prefix != "" {
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepTimeout)
			defer cancel()
			err = errors.Join(err, kinds.Of(d.Name).Sweep(ctx, d.config, prefix))
		}()
	}
	opts.Progress.Begin(len(drivertest.Rules()), 0)
	defer opts.Progress.End()
	opts.Progress.Step("")
	var all []drivertest.RuleResult
	err = conform.Run(ctx, suite, func(r drivertest.RuleResult) {
		all = append(all, r)
		p.show(r)
		opts.Progress.Step("after " + r.Rule.ID)
	})
	switch {
	case ctx.Err() != nil:
		return nil, ErrInterrupted
	case err != nil:
		return nil, &EnvError{Backend: d.Name, Err: err}
	}
	return conformed(all, p.Require)
}

func (p ConformPlan) show(r drivertest.RuleResult) {
	fmt.Fprintln(p.Rules, r)
	for _, c := range r.Cases {
		if !p.AllCases && c.Outcome != drivertest.Fail {
			continue
		}
		fmt.Fprintf(p.Rules, "      %-8s %s (%.1f s)", c.Outcome, c.Case.Name, c.Took.Seconds())
		if c.Reason != "" {
			fmt.Fprintf(p.Rules, ": %s", c.Reason)
		}
		fmt.Fprintln(p.Rules)
		for line := range strings.Lines(c.Log) {
			fmt.Fprintf(p.Rules, "          %s\n", strings.TrimRight(line, "\n"))
		}
	}
}

func conformed(results []drivertest.RuleResult, require bool) (*Outcome, error) {
	var counts [drivertest.NotRun + 1]int
	for _, r := range results {
		counts[r.Outcome]++
	}
	all, passed, failed, notRun := len(drivertest.Rules()), counts[drivertest.Pass], counts[drivertest.Fail], counts[drivertest.NotRun]
	o := &Outcome{text: fmt.Sprintf("%d of %d rules ran: %d passed, %d failed; %d could not be checked, %d do not apply\n",
		passed+failed, all, passed, failed, notRun, counts[drivertest.NA])}
	switch {
	case failed > 0:
		return o, fmt.Errorf("the plugin does not conform: %d of %d rules fail", failed, all)
	case notRun > 0 && require:
		return o, Hinted(fmt.Errorf("%d of %d rules could not be checked, and all that apply are required", notRun, all),
			"let it start a server of its own, or --require=false")
	}
	return o, nil
}
