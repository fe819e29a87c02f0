package main

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

func buyMain(fs *flag.FlagSet, args []string) {
	shops := fs.String("shops", "http://127.0.0.1:7701", "where the shops are, with commas between them")
	customers := fs.Int("customers", 200, "how many buy at the same time")
	_ = fs.Parse(args) // an error ends the process
	urls := list(*shops)
	if len(urls) == 0 || *customers < 1 {
		fail(fmt.Errorf("%d shops and %d customers: at least one of each is needed", len(urls), *customers))
	}
	buyAll(urls, *customers)
}

type tally struct{ bought, refused atomic.Int64 }

// buyAll lets each customer buy until no coupon is left or the customer's shop does not answer.
func buyAll(shops []string, customers int) {
	var t tally
	start := time.Now()
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: customers}}
	var all sync.WaitGroup
	for n := range customers {
		all.Go(func() {
			for t.buy(client, shops[n%len(shops)]+"/buy") {
			}
		})
	}
	all.Wait()
	took := time.Since(start)
	fmt.Printf("%d customers at %d shops: bought %d, refused %d, in %v (%.0f a second)\n",
		customers, len(shops), t.bought.Load(), t.refused.Load(), took.Round(time.Millisecond),
		float64(t.bought.Load())/took.Seconds())
}

// buy sends one request for a coupon, and reports whether the customer should send another one.
func (t *tally) buy(client *http.Client, url string) bool {
	resp, err := client.Post(url, "text/plain", nil)
	if err != nil {
		t.refused.Add(1)
		return false
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // so that the connection is used again
	switch resp.StatusCode {
	case http.StatusOK:
		t.bought.Add(1)
	case http.StatusGone:
		return false
	default:
		t.refused.Add(1)
	}
	return true
}
