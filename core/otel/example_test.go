package otel_test

import (
	"context"
	"log"

	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/otel"
	"github.com/lockbench/lockbench/plugins/memory"
)

// The application chooses the metric reader and exporter. One Recorder can
// record the events of any number of clients.
func ExampleNew() {
	meters := metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))
	recorder, err := otel.New(&otel.Options{Meters: meters})
	if err != nil {
		log.Fatal(err)
	}
	client := core.New(memory.NewStore().Open(), &core.Options{OnEvent: recorder.OnEvent})
	defer client.Close(context.Background())
}
