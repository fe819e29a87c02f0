package kit

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestLimit(t *testing.T) {
	m := Recent[int, int]{Limit: 10}
	for i := range 1000 {
		m.Put(i, -i)
		for k := max(0, i-9); k <= i; k++ {
			if v, ok := m.Get(k); !ok || v != -k {
				t.Fatalf("after %d: Get(%d) = %d, %t", i, k, v, ok)
			}
		}
		if n := m.Len(); n > 20 {
			t.Fatalf("%d are remembered", n)
		}
	}
}

func TestAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := Recent[int, int]{Age: time.Minute}
		for i := range 1000 {
			m.Put(i, i)
			if first := max(0, i-60); !m.Has(first) {
				t.Fatalf("what was put %v ago is forgotten", time.Duration(i-first)*time.Second)
			}
			if m.Has(i - 125) {
				t.Fatal("what was put more than two minutes ago is remembered")
			}
			time.Sleep(time.Second)
		}
		time.Sleep(2 * time.Minute)
		if m.Len() != 0 {
			t.Errorf("%d are remembered", m.Len())
		}
	})
}

func TestPutAgain(t *testing.T) {
	m := Recent[string, int]{Limit: 2}
	m.Put("a", 1)
	m.Put("b", 1)
	m.Put("a", 2)
	if v, _ := m.Get("a"); v != 2 {
		t.Errorf("Get = %d, and 2 was put last", v)
	}
}

func TestTake(t *testing.T) {
	m := Recent[int, int]{Limit: 2}
	for i := range 3 {
		m.Put(i, i)
	}
	for i := range 3 {
		if !m.Take(i) || m.Take(i) || m.Has(i) {
			t.Errorf("%d was not there once", i)
		}
	}
}
