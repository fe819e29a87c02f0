package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/fence"
	"github.com/lockbench/lockbench/examples/internal/app"
)

type shop struct {
	lock  *core.Lock // nil means to sell without a lock
	stock string     // URL
	http  *http.Client
}

func shopMain(fs *flag.FlagSet, args []string) {
	var flags app.Flags
	flags.Add(fs)
	listen := fs.String("listen", "127.0.0.1:7701", "addresses to serve on, one for each instance")
	stock := fs.String("stock", "http://127.0.0.1:7700", "where the stock is")
	locked := fs.Bool("lock", true, "sell under a lock; false shows the oversell")
	_ = fs.Parse(args) // an error ends the process
	addresses := list(*listen)
	flags.Main(func(ctx context.Context, i app.Instance) error {
		if i.Number > len(addresses) {
			return fmt.Errorf("--listen has %d addresses, and this is instance %d", len(addresses), i.Number)
		}
		s := shop{stock: *stock, http: &http.Client{Timeout: 10 * time.Second}}
		if *locked {
			var err error
			if s.lock, err = i.Client.Lock("coupons", nil); err != nil {
				return err
			}
		}
		return s.serve(ctx, addresses[i.Number-1])
	})
}

func (s *shop) serve(ctx context.Context, address string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /buy", s.buy)
	return serve(ctx, address, mux)
}

// buy replies 200 for a coupon, 410 if none is left, and 503 if the customer should try again.
func (s *shop) buy(w http.ResponseWriter, r *http.Request) {
	var left int
	var sold bool
	sell := func(ctx context.Context, token uint64) (err error) {
		left, err = s.sell(ctx, token)
		sold = err == nil
		return err
	}
	var err error
	if s.lock == nil {
		err = sell(r.Context(), 0)
	} else {
		err = s.lock.Do(r.Context(), func(ctx context.Context, lease *core.Lease) error { return sell(ctx, lease.Token()) })
	}
	switch {
	case sold: // even if the lock was lost meanwhile or its release failed
		fmt.Fprintf(w, "coupon; %d left\n", left)
	case errors.Is(err, errSoldOut):
		http.Error(w, err.Error(), http.StatusGone)
	default:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

var errSoldOut = errors.New("sold out")

// sell reads the number of coupons left and writes one less. Both requests carry the lock's token.
// The read is a POST, because the stock notes the token of a POST and then refuses earlier holders.
// So no earlier holder changes the number before sell writes.
func (s *shop) sell(ctx context.Context, token uint64) (left int, err error) {
	text, err := s.ask(ctx, http.MethodPost, token, "")
	if err != nil {
		return 0, err
	}
	left, err = strconv.Atoi(text)
	switch {
	case err != nil:
		return 0, err
	case left <= 0:
		return 0, errSoldOut
	}
	left--
	_, err = s.ask(ctx, http.MethodPut, token, strconv.Itoa(left))
	return left, err
}

func (s *shop) ask(ctx context.Context, method string, token uint64, body string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.stock+"/left", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	if token != 0 {
		r.Header.Set(fence.Header, strconv.FormatUint(token, 10))
	}
	resp, err := s.http.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the stock says %s: %s", resp.Status, strings.TrimSpace(string(text)))
	}
	return string(text), err
}
