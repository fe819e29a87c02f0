package mysql

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/internal/servers"
)

func TestMariaDBSaysWhyItEnds(t *testing.T) {
	_, err := Start(t.Context(), &Options{Args: []string{"--no-such-option"}})
	if errors.Is(err, servers.ErrNotInstalled) {
		servers.Missing(t, "mysql", err)
	}
	if err == nil || !strings.Contains(err.Error(), "no-such-option") {
		t.Error(err)
	}
}
