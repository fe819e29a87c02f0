package bench

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/lockbench/lockbench/internal/record"
)

// TestAskedIsReadBack: what decides which cells are measured, and how, comes back
// from a folder as it was asked for: a run that is resumed measures the same.
func TestAskedIsReadBack(t *testing.T) {
	// Said anew by who resumes, or not of a run that can be resumed.
	others := map[string]bool{
		"Faults": true, "Parts": true, "State": true, "Targets": true, "Config": true,
		"PluginDirs": true, "VS": true, "Out": true, "Version": true,
	}
	var p Plan
	for i := range reflect.TypeFor[Plan]().NumField() {
		field := reflect.TypeFor[Plan]().Field(i)
		if !field.IsExported() || others[field.Name] {
			continue
		}
		fill(t, reflect.ValueOf(&p).Elem().Field(i), int64(i+1))
	}
	text, err := json.Marshal(p.asks())
	if err != nil {
		t.Fatal(err)
	}
	var asked record.Asked
	if err := json.Unmarshal(text, &asked); err != nil {
		t.Fatal(err)
	}
	if got := planOf(asked); !reflect.DeepEqual(got, p) {
		t.Errorf("asked for\n%+v\nread back\n%+v", p, got)
	}
}

// fill sets v to what is not its zero value. Times have nanoseconds.
func fill(t *testing.T, v reflect.Value, n int64) {
	t.Helper()
	switch v.Kind() {
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(t, v.Index(0), n)
		fill(t, v.Index(1), n+1)
	case reflect.String:
		v.SetString(string(rune('a' + n)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(float64(n) + 0.5)
	case reflect.Uint64:
		v.SetUint(uint64(n))
	case reflect.Int, reflect.Int64:
		v.SetInt(n)
	default:
		t.Fatalf("a plan has a field of kind %s", v.Kind())
	}
}
