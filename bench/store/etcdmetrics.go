package store

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// metricsTimeout bounds one reading of etcd's metrics.
const metricsTimeout = 5 * time.Second

func countEtcd(cfg driver.Config) (*Counter, error) {
	var urls []string
	for _, addr := range cfg.List("address") {
		if !strings.Contains(addr, "://") {
			addr = "http://" + addr
		}
		urls = append(urls, addr+"/metrics")
	}
	client := &http.Client{Timeout: metricsTimeout, Transport: &http.Transport{}}
	c := &Counter{nodes: float64(len(urls))} // to read metrics is no gRPC
	c.close = func() error { client.CloseIdleConnections(); return nil }
	c.total = func(ctx context.Context) (run, sent float64, err error) {
		for _, url := range urls {
			n, err := received(ctx, client, url)
			if err != nil {
				return 0, 0, err
			}
			run += n
		}
		return run, run, nil
	}
	return c, nil
}

// received sums up the messages of all methods.
func received(ctx context.Context, client *http.Client, url string) (sum float64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(io.LimitReader(resp.Body, 16<<20)); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "grpc_server_msg_received_total{"); ok {
			n, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
			if err != nil {
				return 0, fmt.Errorf("store: %s: %w", url, err)
			}
			sum += n
		}
	}
	return sum, nil
}
