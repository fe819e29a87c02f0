package nats_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	nats "github.com/lockbench/lockbench/examples/backend-nats"
)

func TestMain(m *testing.M) { plugintest.Main(m) }

// serve builds and starts a NATS server of the version in go.mod, with one
// user. The build omits the race detector, which would slow the server down.
func serve(t *testing.T) (*plugintest.Server, string) {
	binary, port := filepath.Join(t.TempDir(), "nats-server"), plugintest.Port(t)
	if out, err := exec.Command("env", "CGO_ENABLED=0", "go", "build", "-o", binary, "github.com/nats-io/nats-server/v2").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	address, dir := fmt.Sprintf("127.0.0.1:%d", port), t.TempDir()
	server := &plugintest.Server{
		Command: func() *exec.Cmd {
			return exec.Command(binary, "--addr", "127.0.0.1", "--port", strconv.Itoa(port), "--jetstream", "--store_dir", dir, "--user", "locks", "--pass", "secret")
		},
		Ready: func(ctx context.Context) error {
			conn, err := natsgo.Connect(address, natsgo.UserInfo("locks", "secret"))
			if err != nil {
				return err
			}
			defer conn.Close()
			js, err := jetstream.New(conn)
			if err != nil {
				return err
			}
			_, err = js.AccountInfo(ctx)
			return err
		},
		Wipe: func() error { return os.RemoveAll(dir) },
	}
	t.Cleanup(func() { server.Stop(t) })
	server.Start(t, false)
	return server, address
}

func TestConformance(t *testing.T) {
	server, address := serve(t)
	binary := plugintest.Build(t, "./lockplugin-nats")
	var buckets atomic.Int32
	config := func(password string) driver.Config {
		return driver.Config{"address": address, "username": "locks", "password": password, "prefix": fmt.Sprintf("test-%d", buckets.Add(1))}
	}
	for kind, harness := range map[string]func(driver.Config) func(drivertest.T) *drivertest.Harness{
		"plugin": func(cfg driver.Config) func(drivertest.T) *drivertest.Harness {
			return plugintest.Binary(binary, func(drivertest.T) driver.Config { return cfg })
		},
		"library": func(cfg driver.Config) func(drivertest.T) *drivertest.Harness {
			return func(drivertest.T) *drivertest.Harness {
				return &drivertest.Harness{Open: opener(cfg), InProcess: true}
			}
		},
	} {
		if kind == "library" && os.Getenv("LOCKBENCH_LONG") != "1" {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			drivertest.Run(t, func(t drivertest.T) *drivertest.Harness {
				cfg := config("secret")
				h := harness(cfg)(t)
				h.Other, h.Denied, h.Store = opener(config("secret")), harness(config("wrong"))(t).Open, server
				h.Leftovers = func(t drivertest.T) []string { return leftovers(t, address, cfg["prefix"]) }
				return h
			})
		})
	}
}

func opener(cfg driver.Config) func(t drivertest.T) driver.Backend {
	return func(t drivertest.T) driver.Backend {
		b, err := driver.Open(t.Context(), nats.Spec, cfg, nil)
		if err != nil {
			t.Fatalf("%v", err)
		}
		t.Cleanup(func() { _ = b.Close(context.Background()) })
		return b
	}
}

// leftovers returns the messages of a bucket that stay there for longer than two minutes.
func leftovers(t drivertest.T, address, bucket string) (left []string) {
	t.Helper()
	conn, err := natsgo.Connect(address, natsgo.UserInfo("locks", "secret"))
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatalf("%v", err)
	}
	stream, err := js.Stream(t.Context(), "KV_"+bucket)
	if err != nil {
		t.Fatalf("%v", err)
	}
	info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(">"))
	if err != nil {
		t.Fatalf("%v", err)
	}
	for subject := range info.State.Subjects {
		m, err := stream.GetLastMsgForSubject(t.Context(), subject)
		if err != nil {
			continue // the message has expired
		}
		ttl, err := time.ParseDuration(m.Header.Get(jetstream.MsgTTLHeader))
		if err != nil || m.Time.Add(ttl).Sub(info.TimeStamp) > 2*time.Minute {
			left = append(left, subject)
		}
	}
	return left
}
