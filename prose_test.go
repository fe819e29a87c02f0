package lockbench_test

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Readers would have to read a longer sentence or paragraph twice.
const (
	mostSentenceWords  = 40
	mostParagraphWords = 90
)

var (
	fenced      = regexp.MustCompile("(?ms)^```.*?^```$")
	remark      = regexp.MustCompile(`(?s)<!--.*?-->`)
	block       = regexp.MustCompile(`\n\s*\n|\n(?:[-*]|\d+\.) `)
	sentenceEnd = regexp.MustCompile(`[.?!][)*]*\s+`)
	hasWord     = regexp.MustCompile(`\pL|\d`)
	banned      = regexp.MustCompile(`(?i)\b(nobody|somebody|everybody|whoever|tells that|who has it|what it is of|which that is)\b`)
)

// TestProse checks that the documents have no long sentences, no long paragraphs
// and no banned words, such as "somebody", which does not say who is meant.
func TestProse(t *testing.T) {
	all := documents(t)
	maps.DeleteFunc(all, func(path, _ string) bool { return !isProse(path) })
	for _, path := range slices.Sorted(maps.Keys(all)) {
		for _, wrong := range badProse(all[path]) {
			t.Errorf("%s: %s", path, wrong)
		}
	}
}

// mostWords maps the path of a document to the largest number of words that it may have. Words in
// blocks of code do not count.
var mostWords = map[string]int{"README.md": 700, "CONTRIBUTING.md": 900, "docs/authoring.md": 2_000}

// mostWordsOfUsers limits the number of words in docs, without the pages for backend authors.
const mostWordsOfUsers = 15_000

// TestDocumentsAreShort keeps documents short, so that each fact is stated only once.
func TestDocumentsAreShort(t *testing.T) {
	ofUsers := 0
	for path, text := range documents(t) {
		n := words(fenced.ReplaceAllString(text, ""))
		if most := mostWords[path]; most > 0 && n > most {
			t.Errorf("%s has %d words, more than %d", path, n, most)
		}
		if filepath.Dir(path) == "docs" && path != "docs/authoring.md" && path != "docs/sql.md" && path != "docs/wire.md" {
			ofUsers += n
		}
	}
	t.Logf("the pages for users have %d words", ofUsers)
	if ofUsers > mostWordsOfUsers {
		t.Errorf("the pages for users have %d words, more than %d", ofUsers, mostWordsOfUsers)
	}
}

func isProse(path string) bool {
	return path == "README.md" || path == "CONTRIBUTING.md" || filepath.Dir(path) == "docs"
}

// badProse returns the banned words, and the sentences and paragraphs that are too
// long. In tables it looks only for banned words, because a table is no paragraph.
func badProse(text string) (wrong []string) {
	text = remark.ReplaceAllString(fenced.ReplaceAllString(text, ""), "")
	for _, w := range banned.FindAllString(text, -1) {
		wrong = append(wrong, "banned: "+w)
	}
	for _, paragraph := range block.Split(text, -1) {
		if paragraph = strings.TrimSpace(paragraph); strings.HasPrefix(paragraph, "|") || strings.HasPrefix(paragraph, "#") {
			continue
		}
		if n := words(paragraph); n > mostParagraphWords {
			wrong = append(wrong, shown(n, "paragraph", paragraph))
		}
		for _, sentence := range sentenceEnd.Split(paragraph, -1) {
			if n := words(sentence); n > mostSentenceWords {
				wrong = append(wrong, shown(n, "sentence", sentence))
			}
		}
	}
	return wrong
}

func words(text string) (n int) {
	for w := range strings.FieldsSeq(text) {
		if hasWord.MatchString(w) {
			n++
		}
	}
	return n
}

func shown(n int, what, text string) string {
	first := strings.Fields(text)
	return "a " + what + " of " + strconv.Itoa(n) + " words: " + strings.Join(first[:min(12, len(first))], " ") + " ..."
}

func TestBadProseIsFound(t *testing.T) {
	long := strings.Repeat("word ", mostSentenceWords)
	for text, want := range map[string]int{
		long + ".":                        0,
		long + "more.":                    1,
		strings.Repeat(long+". ", 3):      1,
		"- " + long + ".\n- " + long:      0,
		"```\n" + long + long + "\n```\n": 0,
		"Nobody waits.":                   1,
		"| " + long + " | nobody |":       1,
	} {
		if got := badProse(text); len(got) != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}
