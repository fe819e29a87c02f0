package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// lockbench must have the flags that the Kubernetes Job uses. The Job's --parts must equal its
// number of pods.
func TestJobOfDeployIsTaken(t *testing.T) {
	text, err := os.ReadFile("../../examples/deploy/bench-job.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var args []string
	for _, m := range regexp.MustCompile(`(?m)^ +- (run|--\S+)`).FindAllStringSubmatch(string(text), -1) {
		args = append(args, m[1])
	}
	if len(args) < 5 || args[0] != "run" {
		t.Fatalf("the arguments are %q", args)
	}
	ends(t, exitOK, "", append(args, "--help")...)
	parts := strings.TrimPrefix(args[slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "--parts=") })], "--parts=")
	for _, want := range []string{"completions: " + parts, "parallelism: " + parts, "minDomains: " + parts} {
		if !strings.Contains(string(text), want+"\n") && !strings.Contains(string(text), want+" #") {
			t.Errorf("there are %s parts, and no %q", parts, want)
		}
	}
}
