package plugin_test

import (
	"context"
	"errors"
	"log"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/plugin"
)

// A host opens a backend by name. If only the store is down, Open succeeds, and Check fails.
func ExampleOpen() {
	ctx := context.Background()
	backend, err := plugin.Open(ctx, "redis", &plugin.Options{
		Config:    map[string]string{"address": "redis.internal:6379", "prefix": "billing:"},
		Dirs:      []string{"/usr/lib/lockplugins"},
		Checksums: "/usr/lib/lockplugins/plugins.sha256",
	})
	var open *plugin.OpenError
	if errors.As(err, &open) {
		log.Fatalf("%s cannot be used: %v", open.Path, err)
	}
	if err != nil {
		log.Fatal(err) // for example a wrong configuration
	}
	client := core.New(backend, nil)
	defer client.Close(ctx)
	if err := client.Check(ctx); err != nil {
		log.Print("not ready yet: ", err)
	}
}
