package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// Locks shows and breaks the locks in one store, through the plugin of its backend.
type Locks struct {
	Servers
	Backend string    // its name, or the path of its plugin
	Warn    io.Writer // gets warnings
}

type store struct {
	*core.Client
	timed  bool // the plugin claims that its tokens are times
	kind   *servers.Kind
	prefix string
}

// locksTimeout limits a command about locks. The time for the user's answer does not count.
const locksTimeout = 30 * time.Second

// The with method opens the backend, checks that the store answers, and calls the function work.
// The function work is called even if the plugin refuses new grants because of the store's
// settings. So the user can still see existing locks.
func (l Locks) with(ctx context.Context, work func(context.Context, store) (*Outcome, error)) (o *Outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, locksTimeout)
	defer cancel()
	d, err := l.resolve(ctx, l.Backend, l.Warn)
	if err != nil {
		return nil, err
	}
	if d.says.Properties.Scope == driver.ScopeHost {
		return nil, usagef("the locks of %s live in its plugin: no process but its host sees them", d.Name)
	}
	log := slog.New(slog.DiscardHandler)
	b, err := plugin.Open(ctx, d.Name, &plugin.Options{Config: d.config, Path: d.Path, StartTimeout: locksTimeout, Logger: log})
	if err != nil {
		return nil, &EnvError{Backend: d.Name, Err: err}
	}
	s := store{core.New(b, &core.Options{Logger: log}), d.says.Properties.TimedTokens, kinds.Of(d.Name), d.config["prefix"]}
	defer func() { err = errors.Join(err, s.Close(context.WithoutCancel(ctx))) }()
	if err := b.Check(ctx); errors.Is(err, driver.ErrUnavailable) {
		return nil, unreachable(d.Name, err)
	}
	o, err = work(ctx, s)
	if errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrDenied) {
		return nil, &EnvError{Backend: d.Name, Err: err}
	}
	return o, err
}

func unreachable(backend string, err error) error {
	return Hinted(&EnvError{backend, err}, fmt.Sprintf("--target %s=ADDRESS says where the store is, --target %[1]s=@FILE also user and password", backend))
}

// List shows the held locks whose names start with prefix.
func (l Locks) List(ctx context.Context, prefix string) (*Outcome, error) {
	return l.with(ctx, func(ctx context.Context, s store) (*Outcome, error) {
		all, err := s.held(ctx, prefix)
		if err != nil {
			return nil, err
		}
		slices.SortFunc(all, func(a, b driver.Holder) int { return cmp.Compare(a.Name, b.Name) })
		docs := []holderDoc{}
		var b strings.Builder
		// The lock's name is in the last column, because a name can have 512 bytes.
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "SINCE\tTOKEN\tTTL LEFT\tWAITERS\tHOLDER\tLOCK")
		for _, h := range all {
			docs = append(docs, s.document(h.Name, h))
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\n", s.since(h), h.Token, left(h), waiters(h), holderOf(h), printable(h.Name))
		}
		_ = t.Flush() // a write into memory cannot fail
		if len(all) == 0 {
			return &Outcome{data: docs, text: "no lock is held\n"}, nil
		}
		return &Outcome{data: docs, text: b.String()}, nil
	})
}

// Names returns the names of held locks that start with prefix. A shell proposes these names while
// the user types. If ctx ends early, some names are missing.
func (l Locks) Names(ctx context.Context, prefix string) (names []string) {
	l.Warn = io.Discard
	_, _ = l.with(ctx, func(ctx context.Context, s store) (*Outcome, error) { // a shell shows no error while the user types
		all, err := s.held(ctx, prefix)
		for _, h := range all {
			names = append(names, h.Name)
		}
		return nil, err
	})
	return names
}

func (s store) held(ctx context.Context, prefix string) (all []driver.Holder, err error) {
	for h, err := range s.Client.List(ctx, prefix) {
		if err != nil {
			return all, err
		}
		all = append(all, h)
	}
	return all, nil
}

// Inspect shows who holds the lock called name.
func (l Locks) Inspect(ctx context.Context, name string) (*Outcome, error) {
	return l.with(ctx, func(ctx context.Context, s store) (*Outcome, error) {
		h, err := s.Client.Inspect(ctx, name)
		if err != nil {
			return nil, err
		}
		o := &Outcome{data: s.document(name, h)}
		if !h.Held() {
			o.text = fmt.Sprintf("%s is free; %s wait\n", printable(name), waiters(h))
			return o, nil
		}
		for _, line := range [][2]string{
			{"lock", printable(name)}, {"holder", holderOf(h)}, {"since", s.since(h)}, {"owner", printable(h.Owner)}, {"token", strconv.FormatUint(h.Token, 10)},
			{"TTL left", left(h)}, {"waiters", waiters(h)}, {"value", printable(string(h.Value))},
		} {
			o.text += fmt.Sprintf("%-9s %s\n", line[0], line[1])
		}
		return o, nil
	})
}

// Break ends the lease of the lock called name, if the lease has the given token. Token 0 means the
// current lease. Break first calls ask, and changes nothing if ask returns false.
func (l Locks) Break(ctx context.Context, name string, token uint64, ask func(question string) bool) (*Outcome, error) {
	return l.with(ctx, func(ctx context.Context, s store) (*Outcome, error) {
		h, err := s.Client.Inspect(ctx, name)
		switch {
		case err != nil:
			return nil, err
		case !h.Held():
			return nil, fmt.Errorf("%q is not held", name)
		case token != 0 && !sameGrant(h.Token, token):
			return nil, fmt.Errorf("%q is held under token %d, not %d: that lease is over", name, h.Token, token)
		case h.Token == 0:
			hint := ""
			if s.kind.Foreign != nil {
				hint = s.kind.Foreign(s.prefix, name)
			}
			return nil, Hinted(fmt.Errorf("%q is held by %s, which has no token to compare", name, holderOf(h)), hint)
		}
		if !ask(fmt.Sprintf("%q is held by %s under token %d, for another %v.\nBreak it? Its holder goes on until it notices.", name, holderOf(h), h.Token, left(h))) {
			return nil, errors.New("not broken")
		}
		// The user may have answered late, and the lock may have a new holder by now. So the store breaks
		// the lock only if its token is still the token that the user saw.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), locksTimeout)
		defer cancel()
		if err := s.Client.Break(ctx, name, h.Token); err != nil {
			return nil, err
		}
		return &Outcome{text: fmt.Sprintf("broke the lease of %q under token %d, held by %s\n", name, h.Token, holderOf(h))}, nil
	})
}

// sameGrant reports whether typed, a number from the user, belongs to the grant with this token. A
// program may have rounded the number to a double. The rounded number still identifies one grant:
// tokens of two grants differ by at least 1024, and neighboring doubles below 2^62 by at most 512.
func sameGrant(token, typed uint64) bool {
	return core.GrantNumber(token) == core.GrantNumber(typed) || token < 1<<62 && float64(token) == float64(typed)
}

func holderOf(h driver.Holder) string {
	switch {
	case h.Label != "":
		return printable(h.Label)
	case h.Token == 0 && h.Owner != "":
		return "a foreign client" // h.Owner may be a secret of another application
	}
	return "owner " + printable(h.Owner)
}

// left returns, as text, the time until the lease expires.
func left(h driver.Holder) string {
	if h.TTL < 0 {
		return "no end"
	}
	return h.TTL.Round(time.Millisecond).String()
}

// printable quotes an empty text, and a text with characters that could control a terminal.
func printable(s string) string {
	if quoted := strconv.Quote(s); quoted != `"`+s+`"` || s == "" {
		return quoted
	}
	return s
}

func waiters(h driver.Holder) string {
	if h.Waiters < 0 {
		return "unknown"
	}
	return strconv.Itoa(h.Waiters)
}

// granted returns when the lease was granted, by the store's clock. It returns nil if the token
// does not contain this time.
func (s store) granted(h driver.Holder) *time.Time {
	if !s.timed || h.Token == 0 {
		return nil
	}
	return new(time.UnixMicro(int64(core.GrantNumber(h.Token))).UTC())
}

func (s store) since(h driver.Holder) string {
	if at := s.granted(h); at != nil {
		return at.Format("2006-01-02 15:04:05Z")
	}
	return "unknown"
}

type holderDoc struct {
	Name  string `json:"name"`
	Held  bool   `json:"held"`
	Label string `json:"label,omitempty"`
	Owner string `json:"owner,omitempty"`
	// Token is a number. TokenText is the same number as text, because programs that read numbers
	// as doubles, such as jq 1.6, round numbers above 2^53.
	Token     uint64     `json:"token,omitempty"`
	TokenText string     `json:"token_text,omitempty"`
	Since     *time.Time `json:"since"`            // by the store's clock; null when unknown
	TTLms     *int64     `json:"ttl_ms,omitempty"` // missing when the lease has no end
	Waiters   *int       `json:"waiters"`          // null when unknown
	Value     []byte     `json:"value_base64,omitempty"`
}

func (s store) document(name string, h driver.Holder) holderDoc {
	doc := holderDoc{Name: name, Held: h.Held(), Label: h.Label, Owner: h.Owner, Token: h.Token, Since: s.granted(h), Value: h.Value}
	if h.Token != 0 {
		doc.TokenText = strconv.FormatUint(h.Token, 10)
	}
	if h.TTL > 0 {
		doc.TTLms = new(h.TTL.Milliseconds())
	}
	if h.Waiters >= 0 {
		doc.Waiters = &h.Waiters
	}
	return doc
}
