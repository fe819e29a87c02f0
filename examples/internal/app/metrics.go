package app

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/lockbench/lockbench/core/otel"
	"github.com/lockbench/lockbench/core/status"
)

// serveMetrics serves /metrics, /ready and /leader on address, until stop is called. It returns the
// recorder for /metrics. If address is empty, it serves nothing and returns a nil recorder.
func serveMetrics(address string, state *status.Handler) (recorder *otel.Recorder, stop func(), err error) {
	if address == "" {
		return nil, func() {}, nil
	}
	recorder, page, err := newMetrics()
	if err != nil {
		return nil, nil, err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, nil, fmt.Errorf("--metrics: %w", err)
	}
	fmt.Fprintf(os.Stderr, "metrics on http://%s/metrics\n", listener.Addr())
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", page)
	mux.Handle("GET /ready", state)
	mux.Handle("GET /leader", state)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // Serve returns when stop is called
	}()
	return recorder, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = server.Shutdown(ctx) // no error matters, because the process ends next
		<-served
	}, nil
}

// metricName returns a lock's name in the metrics. Every tick of a job has a lock called job@TICK.
// The metrics count all these locks under the job's name, so that there are few series.
func metricName(lock string) string {
	name, _, _ := strings.Cut(lock, "@")
	return name
}

func newMetrics() (*otel.Recorder, http.Handler, error) {
	registry := client.NewRegistry()
	exporter, err := prometheus.New(prometheus.WithRegisterer(registry))
	if err != nil {
		return nil, nil, err
	}
	recorder, err := otel.New(&otel.Options{
		Meters:     metric.NewMeterProvider(metric.WithReader(exporter)),
		MetricName: metricName,
	})
	if err != nil {
		return nil, nil, err
	}
	return recorder, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
}
