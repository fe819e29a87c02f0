// Command coupons sells a limited number of coupons from several shops at once.
//
//	coupons stock   keeps the number of coupons left; checks fencing tokens,
//	                but has no transactions, only reads and writes
//	coupons shop    sells a coupon for each HTTP request: takes the lock,
//	                reads the number left, and writes one less
//	coupons buy     plays many customers, who buy until nothing is left
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	commands := map[string]func(*flag.FlagSet, []string){"stock": stockMain, "shop": shopMain, "buy": buyMain}
	if len(os.Args) > 1 {
		if run := commands[os.Args[1]]; run != nil {
			run(flag.NewFlagSet("coupons "+os.Args[1], flag.ExitOnError), os.Args[2:])
			return
		}
	}
	fmt.Fprintln(os.Stderr, "coupons: give a command: stock, shop or buy")
	os.Exit(2)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "coupons:", err)
	os.Exit(1)
}

func list(value string) []string {
	return strings.FieldsFunc(value, func(r rune) bool { return r == ',' })
}
