package similar

import "testing"

func TestSuggest(t *testing.T) {
	known := []string{"run", "report", "address", "clients"}
	for word, want := range map[string]string{
		"rnu": "; did you mean run?", "rum": "; did you mean run?", "adress": "; did you mean address?", "rep": "; did you mean report?",
		"cleints": "; did you mean clients?", "nothing": "; there are address, clients, report, run", "": "; there are address, clients, report, run",
	} {
		if got := Suggest(word, known); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}
