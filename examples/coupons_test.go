package examples_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/core/fence"
)

// url waits for the output line with a server's address, and returns the address.
func url(t *testing.T, p *process, from int) (string, int) {
	t.Helper()
	line, from := p.await(t, from, "serving on ")
	return strings.TrimPrefix(line, "serving on "), from
}

type sale struct{ coupons, bought, refused, left int }

// sell starts a stock, calls the function open to start the
// shops, and lets all customers buy until nothing is left.
func sell(t *testing.T, checked bool, open func(stock string) []string) sale {
	t.Helper()
	s := sale{coupons: 200}
	customers := 50
	if long {
		s.coupons, customers = 1000, 200
	}
	stock, _ := url(t, run(t, "coupons", "stock", "--listen", "127.0.0.1:0",
		"--coupons", fmt.Sprint(s.coupons), fmt.Sprintf("--check=%t", checked)), 0)
	shops := open(stock)
	buy := run(t, "coupons", "buy", "--customers", fmt.Sprint(customers), "--shops", strings.Join(shops, ","))
	line, _ := buy.await(t, 0, "bought")
	_, counts, _ := strings.Cut(line, ": ")
	if _, err := fmt.Sscanf(counts, "bought %d, refused %d", &s.bought, &s.refused); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	resp, err := http.Get(stock + "/left")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(text), &s.left); err != nil {
		t.Fatal(err)
	}
	t.Log(line)
	return s
}

func (s sale) check(t *testing.T) {
	t.Helper()
	if s.bought != s.coupons || s.left != 0 || s.refused != 0 {
		t.Errorf("of %d coupons %d were bought and %d are left, %d refused; each must be bought once", s.coupons, s.bought, s.left, s.refused)
	}
}

func testCoupons(t *testing.T, w system) {
	sell(t, true, func(stock string) (shops []string) {
		for range 3 {
			shop, _ := url(t, w.run(t, "coupons", "shop", "--listen", "127.0.0.1:0", "--stock", stock), 0)
			shops = append(shops, shop)
		}
		return shops
	}).check(t)
}

func TestCouponsInOneProcess(t *testing.T) {
	t.Parallel()
	sell(t, true, threeInOne(t)).check(t)
}

// TestCouponsRefuseALateWrite checks that the stock refuses a write of the
// previous holder after it has answered a read of the new holder.
func TestCouponsRefuseALateWrite(t *testing.T) {
	t.Parallel()
	stock, _ := url(t, run(t, "coupons", "stock", "--listen", "127.0.0.1:0"), 0)
	ask := func(method, token, body string, want int) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, stock+"/left", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(fence.Header, token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s under token %s: %s, want %d", method, token, resp.Status, want)
		}
	}
	ask(http.MethodPost, "7", "", http.StatusOK)
	ask(http.MethodPost, "8", "", http.StatusOK)
	ask(http.MethodPut, "7", "999", http.StatusConflict)
	ask(http.MethodPut, "8", "999", http.StatusOK)
}

func TestCouponsWithoutLock(t *testing.T) {
	t.Parallel()
	s := sell(t, false, threeInOne(t, "--lock=false"))
	if s.bought <= s.coupons {
		t.Errorf("without a lock %d of %d coupons were bought: no oversell, so this proves nothing", s.bought, s.coupons)
	}
}

func threeInOne(t *testing.T, args ...string) func(stock string) []string {
	return func(stock string) (shops []string) {
		p := run(t, "coupons", append([]string{"shop", "--instances", "3", "--listen", "127.0.0.1:0,127.0.0.1:0,127.0.0.1:0", "--stock", stock}, args...)...)
		for from := 0; len(shops) < 3; {
			var shop string
			shop, from = url(t, p, from)
			shops = append(shops, shop)
		}
		return shops
	}
}
