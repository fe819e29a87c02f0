package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/internal/record"
)

func TestJudge(t *testing.T) {
	dir := t.TempDir()
	f, err := record.Create(filepath.Join(dir, "acquire"), record.Manifest{Plan: record.Plan{Scenarios: []string{"acquire"}}})
	if err == nil {
		err = f.Close(record.StateDone)
	}
	if err != nil {
		t.Fatal(err)
	}
	var out, complaints bytes.Buffer
	page := filepath.Join(dir, "page.md")
	if err := judge(&out, &complaints, []string{"-o", page, dir}); !errors.Is(err, errMissed) {
		t.Errorf("nothing was measured: %v", err)
	}
	if first, _, _ := strings.Cut(out.String(), "\n"); !strings.HasPrefix(first, "P1 not run (") {
		t.Errorf("the first line is %q", first)
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "| P1 |") {
		t.Errorf("the page: %v\n%s", err, text)
	}
}

func TestBadUse(t *testing.T) {
	for _, args := range [][]string{{}, {"a", "b"}, {"no such directory"}, {t.TempDir()}} {
		var out bytes.Buffer
		if err := judge(&out, &out, args); err == nil || errors.Is(err, errMissed) || out.Len() > 0 {
			t.Errorf("%q: %v, %q", args, err, out.String())
		}
	}
}
