package report

import (
	"fmt"
	"strings"
)

// notes are lines of which the head is seen, and the rest by who opens them.
type notes struct {
	Head  string
	Lines []string
}

// headed puts the beginnings of the lines, up to a colon, into their head. It
// returns nil for no lines.
func headed(lines []string) *notes {
	if len(lines) == 0 {
		return nil
	}
	heads := distinct(lines, func(line string) string {
		head, _, _ := strings.Cut(line, ": ")
		return head
	})
	return &notes{"Before you believe the figures: " + strings.Join(heads, "; "), lines}
}

// shownFindings is how many findings stand above the figures.
const shownFindings = 3

// findings of the page: the first ones, and those that are folded.
type pageFindings struct{ Shown, More []string }

func folded(lines []string) *pageFindings {
	if len(lines) == 0 {
		return nil
	}
	n := min(len(lines), shownFindings)
	return &pageFindings{lines[:n], lines[n:]}
}

// omissions say what was left out, one line for each reason.
func (r Report) omissions() []string {
	var reasons []string
	what := map[string][]string{}
	for _, s := range r.Manifest.Skipped {
		subject, reason, ok := strings.Cut(s, ": ")
		if !ok {
			subject, reason = "", s
		}
		if what[reason] == nil {
			reasons = append(reasons, reason)
		}
		what[reason] = append(what[reason], subject)
	}
	var out []string
	for _, reason := range reasons {
		if subjects := listed(what[reason]); subjects != "" {
			reason = fmt.Sprintf("%s: %s", subjects, reason)
		}
		out = append(out, "left out: "+reason)
	}
	return out
}
