package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
)

func locksListCommand() *cobra.Command {
	var f locksFlags
	cmd := &cobra.Command{
		Use:   "list BACKEND [PREFIX]",
		Short: "List the locks that are held, those whose names start with PREFIX",
		Example: `  lockbench locks list redis --target redis=10.0.0.7:6379
  lockbench locks list mysql jobs/ --target mysql=@/etc/lockbench/mysql --config mysql.prefix=app_`,
		Args: needs(1, 2, "a backend, and takes a prefix"),
	}
	return f.command(cmd, func(ctx context.Context, c *core.Client, prefix []string) error {
		return f.list(ctx, c, strings.Join(prefix, ""), cmd.OutOrStdout())
	})
}

func (f *locksFlags) list(ctx context.Context, c *core.Client, prefix string, w io.Writer) error {
	var all []driver.Holder
	for h, err := range c.List(ctx, prefix) {
		if err != nil {
			return err
		}
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b driver.Holder) int { return cmp.Compare(a.Name, b.Name) })
	if f.format == "json" {
		docs := []holderDoc{}
		for _, h := range all {
			docs = append(docs, f.document(h.Name, h))
		}
		return writeJSON(w, docs)
	}
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "no lock is held")
		return err
	}
	// The names come last: they may be 512 bytes long.
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SINCE\tTOKEN\tTTL LEFT\tWAITERS\tHOLDER\tLOCK")
	for _, h := range all {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\n", f.sinceText(h), h.Token, left(h), waiters(h), holderOf(h), printable(h.Name))
	}
	return t.Flush()
}

// holderDoc is a held lock as JSON has it.
type holderDoc struct {
	Name    string     `json:"name"`
	Held    bool       `json:"held"`
	Label   string     `json:"label,omitempty"`
	Owner   string     `json:"owner,omitempty"`
	Token   uint64     `json:"token,omitempty"`
	Since   *time.Time `json:"since"`            // by the store's clock; null when unknown
	TTLms   *int64     `json:"ttl_ms,omitempty"` // missing when the lease has no end
	Waiters *int       `json:"waiters"`          // null when unknown
	Value   []byte     `json:"value_base64,omitempty"`
}

func (f *locksFlags) document(name string, h driver.Holder) holderDoc {
	doc := holderDoc{Name: name, Held: h.Held(), Label: h.Label, Owner: h.Owner, Token: h.Token, Value: h.Value}
	if ms := h.TTL.Milliseconds(); h.TTL > 0 {
		doc.TTLms = &ms
	}
	if at, ok := f.since(h); ok {
		doc.Since = &at
	}
	if h.Waiters >= 0 {
		doc.Waiters = &h.Waiters
	}
	return doc
}
