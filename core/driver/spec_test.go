package driver

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// The function Open, which opens a backend in this process, must refuse the same configurations as
// a plugin and fill in the same defaults.
func TestOpenChecks(t *testing.T) {
	var opened Config
	var logger *slog.Logger
	spec := Spec{
		Name: "x", Keys: []Key{{Name: "address", Required: true}, {Name: "prefix", Default: "lock:"}},
		Open: func(_ context.Context, cfg Config, log *slog.Logger) (Backend, error) {
			opened, logger = cfg, log
			return nil, nil
		},
	}
	_, err := Open(t.Context(), spec, Config{"address": "a", "prefx": "mine:"}, nil)
	if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "mean prefix") || opened != nil {
		t.Errorf("a key that is misspelt: %v, opened with %v", err, opened)
	}
	if _, err := Open(t.Context(), spec, Config{"address": "a"}, nil); err != nil {
		t.Fatal(err)
	}
	if opened["prefix"] != "lock:" || logger == nil {
		t.Errorf("opened with %v, logger %v", opened, logger)
	}
}
