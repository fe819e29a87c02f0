package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/internal/results"
)

// openOther opens the plugin of the other build on the same servers, when the
// plan has one. It is driven by this lockbench, so that only the plugins differ.
func (s *session) openOther(ctx context.Context, d described, cfg driver.Config, of *subject) error {
	if s.plan.VS == "" {
		return nil
	}
	d.Path = filepath.Join(s.plan.VS, filepath.Base(d.Path))
	b, err := s.open(ctx, d.Name, d.Path, cfg)
	if err != nil {
		return err
	}
	d.config = cfg
	sub := s.pluginSubject(b, d)
	sub.Name, sub.BuildOf, sub.Reference = of.Name+results.OtherBuild, of.Name, of.Reference
	sub.series, sub.counter, sub.server = 1, of.counter, of.server
	s.subjects = append(s.subjects, sub)
	s.binaries[d.Name+results.OtherBuild] = d.Path
	return nil
}

// checkOther holds the plan's TTL and configuration against what the other
// build says of itself.
func (p Plan) checkOther(ctx context.Context, f plugin.Found, cfg driver.Config) error {
	if p.VS == "" {
		return nil
	}
	f.Path = filepath.Join(p.VS, filepath.Base(f.Path))
	if _, err := os.Stat(f.Path); err != nil {
		return usagef("--vs: there is no %s in %s", filepath.Base(f.Path), p.VS)
	}
	d, err := p.ask(ctx, f, cfg)
	if err == nil && d.says.Name != f.Name {
		return usagef("--vs: %s is a plugin for %q", f.Path, d.says.Name)
	}
	if err != nil {
		return fmt.Errorf("--vs: %w", err)
	}
	return nil
}
