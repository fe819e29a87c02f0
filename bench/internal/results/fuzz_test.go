package results

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/perf/benchfmt"
)

// FuzzAttempts reads an events file with arbitrary content, but with correct checksums.
func FuzzAttempts(f *testing.F) {
	c := sampleCell("redis", 20)
	section, err := json.Marshal(c.Section)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(section, appendAttempts(nil, c.Attempts), byte(frameAttempts))
	f.Add([]byte(`{"names":null,"hosts":-1}`), []byte{0x11, 0xff}, byte(frameSection))
	f.Add([]byte(`{}`), []byte{2, 0, 0, 0, 0, 2, 1, 1, 2, 2}, byte(9))
	f.Fuzz(func(t *testing.T, section, block []byte, kind byte) {
		var file bytes.Buffer
		w, err := NewEventWriter(&file)
		for _, part := range []struct {
			kind    byte
			payload []byte
		}{{frameSection, section}, {kind, block}, {frameAttempts, block}, {frameEnd, nil}} {
			if err == nil {
				err = w.frame(part.kind, part.payload)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		readAgain(t, file.Bytes())
	})
}

func readAgain(t *testing.T, b []byte) {
	var sections []Section
	var all [][]Attempt
	_ = ReadEvents(bytes.NewReader(b), func(s Section, attempts []Attempt) error {
		sections, all = append(sections, s), append(all, slices.Clone(attempts))
		if most := blockSize * (len(b) / 9); len(attempts) > most {
			t.Errorf("%d bytes became %d attempts", len(b), len(attempts))
		}
		return nil
	})
	if len(sections) == 0 {
		return
	}
	var again bytes.Buffer
	w, err := NewEventWriter(&again)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range sections {
		if err := w.Write(s, all[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	n := 0
	err = ReadEvents(&again, func(s Section, attempts []Attempt) error {
		if !reflect.DeepEqual(s, sections[n]) || !slices.Equal(attempts, all[n]) {
			t.Errorf("section %d: %+v, %v; was %+v, %v", n, s, attempts, sections[n], all[n])
		}
		n++
		return nil
	})
	if err != nil || n != len(sections) {
		t.Errorf("%d of %d sections, %v", n, len(sections), err)
	}
}

func TestBlocksAreBounded(t *testing.T) {
	block := bytes.Repeat([]byte{2, 0, 0, 0, 0}, blockSize+1)
	if all, err := parseAttempts(nil, block[5:]); err != nil || len(all) != blockSize {
		t.Errorf("a whole block has %d attempts, %v", len(all), err)
	}
	if all, err := parseAttempts(nil, block); err == nil || len(all) != blockSize {
		t.Errorf("one more has %d attempts, %v", len(all), err)
	}
	var file bytes.Buffer
	w, err := NewEventWriter(&file)
	if err == nil {
		err = w.frame(frameAttempts, make([]byte, maxBlock+1))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := ReadEvents(&file, nil); !errors.Is(err, ErrTruncated) || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a frame that grows without end: %v", err)
	}
}

// FuzzHistograms checks that scanHistograms ends for any file. Each key that it reads must be equal
// to the key that parseTag reads from the tag of this key.
func FuzzHistograms(f *testing.F) {
	var file bytes.Buffer
	l, err := newHistogramLog(&file, time.Unix(1, 0))
	if err == nil {
		err = writeHistograms(l, sampleCell("redis", 40))
	}
	if err != nil {
		f.Fatal(err)
	}
	f.Add(file.Bytes())
	f.Add(file.Bytes()[:file.Len()-20])
	f.Add([]byte("Tag=a/b=c,0.1,x,y,HISTFAAA\nTag=\n#[StartTime: .\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		scanHistograms(bytes.NewReader(b), func(key HistogramKey, h *hdrhistogram.Histogram) {
			if again := parseTag(key.tag()); again != key && key.Clients >= 0 {
				t.Errorf("%+v is tagged %q, which is %+v", key, key.tag(), again)
			}
			sum := newHistogram()
			sum.Merge(h)
			if sum.Max() > 2*histogramMax || sum.TotalCount() < 0 {
				t.Errorf("%+v has %d latencies up to %d", key, sum.TotalCount(), sum.Max())
			}
		})
	})
}

// FuzzResult writes a line of results.txt and reads it. Values must agree to six digits.
func FuzzResult(f *testing.F) {
	f.Add("kill-host", 2, 64, 1024, int64(time.Millisecond), 700, 1234.5678, 1e6, int64(12345))
	f.Add("", 0, 1, 0, int64(0), 0, math.Inf(1), 0.0, int64(-5))
	f.Fuzz(func(t *testing.T, mode string, hosts, clients, keys int, hold int64, cycles int, rate, jain float64, ns int64) {
		clients = max(clients, 1)
		if !plainWord(mode) {
			t.Skip("modes are words")
		}
		c := Cell{
			Section: Section{CellName: CellName{"contend", "redis", mode, max(hosts, 0), clients, max(keys, 0), time.Duration(max(hold, 0)), 0}},
			Cycles:  cycles, Latencies: map[string][]int64{"wait": {ns}}, Values: map[string]float64{"cycles/s": rate, "jain": jain},
		}
		var line bytes.Buffer
		if err := writeResult(&line, c); err != nil {
			t.Fatal(err)
		}
		var got []Result
		if _, err := scanResults(line.Bytes(), func(res *benchfmt.Result) { got = append(got, parseResult(res)) }); err != nil || len(got) != 1 {
			t.Fatalf("%d lines of %q, %v", len(got), line.String(), err)
		}
		want := Result{CellName: c.CellName, Cycles: max(1, cycles)}
		values := got[0].Values
		got[0].Values = nil
		if !reflect.DeepEqual(got[0], want) {
			t.Errorf("%+v of %q, want %+v", got[0], line.String(), want)
		}
		for unit, v := range map[string]float64{"cycles/s": rate, "jain": jain, "p50-ns/wait": float64(ns)} {
			read, ok := values[unit]
			if finite := !math.IsInf(v, 0) && !math.IsNaN(v); ok != finite || ok && math.Abs(read-v) > 1e-5*math.Abs(v) {
				t.Errorf("%s is %v (%v) in %q, want %v", unit, read, ok, line.String(), v)
			}
		}
	})
}

func plainWord(s string) bool {
	for _, r := range s {
		if (r < 'a' || r > 'z') && r != '-' {
			return false
		}
	}
	return len(s) < 1 || s[len(s)-1] != '-'
}
