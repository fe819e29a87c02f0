package flock

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// bars are the owners that were withdrawn from the names of one stripe.
type bars struct {
	Boot  string
	Until map[string]time.Duration // by owner, since boot
}

// barred reports whether owner was withdrawn.
func (s *step) barred(owner string) (bool, error) {
	b, err := s.loadBars()
	return b.Until[owner] > s.now, err
}

// bar refuses owner from now on, and forgets the bars that are over.
func (s *step) bar(owner string) error {
	b, err := s.loadBars()
	if err != nil {
		return err
	}
	for other, until := range b.Until {
		if until <= s.now {
			delete(b.Until, other)
		}
	}
	b.Until[owner] = s.now + barFor
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	return replace(s.stripe.Name()+barsSuffix, text)
}

func (s *step) loadBars() (bars, error) {
	none := bars{Boot: s.Boot, Until: map[string]time.Duration{}}
	path := s.stripe.Name() + barsSuffix
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	if err != nil {
		return none, err
	}
	b := none
	if err := json.Unmarshal(text, &b); err != nil {
		return none, fmt.Errorf("%s: %w", path, err)
	}
	if b.Boot != s.Boot {
		return none, nil
	}
	return b, nil
}
