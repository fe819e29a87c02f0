package wire

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/lockpb"
)

// Host and plugin must both cut error texts to 2 KiB, because the peer may not use this package.
func TestErrorTextsAreBounded(t *testing.T) {
	const size = 16 << 20
	long := "lock jobs: " + strings.Repeat("é", size/2) + ": out of memory"
	for what, err := range map[string]error{
		"received": DecodeError(&lockpb.Error{Text: long, Codes: []lockpb.Error_Code{lockpb.Error_DENIED}}),
		"sent":     errors.New(EncodeError(errors.New(long), nil).Text),
		"holder":   DecodeError(EncodeError(&driver.HeldError{Holder: driver.Holder{Owner: "o", Label: long, Token: 1}}, nil)),
		"foreign":  DecodeError(&lockpb.Error{Codes: []lockpb.Error_Code{lockpb.Error_HELD}, Holder: &lockpb.Holder{Owner: []byte("o"), Label: []byte(long)}}),
	} {
		if text := err.Error(); len(text) > MaxText || !utf8.ValidString(text) {
			t.Errorf("%s: %d bytes", what, len(text))
		} else if what != "foreign" && (!strings.Contains(text, "lock jobs") || !strings.Contains(text, "bytes]")) {
			t.Errorf("%s: %q", what, text)
		}
		var held *driver.HeldError
		if errors.As(err, &held) && len(held.Error()) > MaxText+100 {
			t.Errorf("%s: a holder with %d bytes", what, len(held.Error()))
		}
	}
}
