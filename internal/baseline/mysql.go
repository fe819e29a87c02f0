package baseline

import (
	"context"
	"maps"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/plugins/mysql"
)

// tablePrefix is keyPrefix for SQL.
const tablePrefix = "lockbench_baseline_"

var inProcessMySQL = Baseline{
	Name:    "mysql-in-process",
	Doc:     "our mysql library without the plugin process",
	Backend: "mysql",
	Open: func(ctx context.Context, cfg driver.Config) (load.Locker, error) {
		own := maps.Clone(cfg)
		own["prefix"] = tablePrefix + "in_process_"
		own, err := mysql.Spec.CheckConfig(own) // with the defaults
		if err != nil {
			return nil, err
		}
		b, err := mysql.Spec.Open(ctx, own, discard)
		if err != nil {
			return nil, err
		}
		return load.NewCore(b, &core.Options{Logger: discard}), nil
	},
}
