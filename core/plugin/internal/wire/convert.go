package wire

import (
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/lockpb"
)

func fromRequest(r driver.Request) *lockpb.Request {
	return &lockpb.Request{
		Name:   r.Name,
		Owner:  r.Owner,
		Label:  r.Label,
		Value:  r.Value,
		Token:  r.Token,
		TtlNs:  int64(r.TTL),
		KeepNs: int64(r.Keep),
	}
}

func toRequest(r *lockpb.Request) driver.Request {
	return driver.Request{
		Name:  r.GetName(),
		Owner: r.GetOwner(),
		Label: r.GetLabel(),
		Value: r.GetValue(),
		Token: r.GetToken(),
		TTL:   time.Duration(r.GetTtlNs()),
		Keep:  time.Duration(r.GetKeepNs()),
	}
}

// FromHolder returns the holder h as a message, or nil for the zero Holder.
func FromHolder(h driver.Holder) *lockpb.Holder {
	if !h.Held() && h.Name == "" && h.Label == "" && h.Value == nil && h.Waiters == 0 {
		return nil
	}
	return &lockpb.Holder{
		Name:    []byte(h.Name),
		Owner:   []byte(h.Owner),
		Label:   []byte(h.Label),
		Value:   h.Value,
		Token:   h.Token,
		TtlNs:   int64(h.TTL),
		Waiters: int64(h.Waiters),
	}
}

// ToHolder returns the holder in a message, or the zero Holder for nil. It
// shortens the holder's long texts, because they become part of error texts.
func ToHolder(h *lockpb.Holder) driver.Holder {
	return driver.Holder{
		Name:    Bound(string(h.GetName())),
		Owner:   Bound(string(h.GetOwner())),
		Label:   Bound(string(h.GetLabel())),
		Value:   h.GetValue(),
		Token:   h.GetToken(),
		TTL:     time.Duration(h.GetTtlNs()),
		Waiters: int(h.GetWaiters()),
	}
}

func fromProperties(p driver.Properties) *lockpb.Properties {
	out := &lockpb.Properties{
		Name:           p.Name,
		Fencing:        string(p.Fencing),
		Scope:          string(p.Scope),
		TtlMinNs:       int64(p.TTLMin),
		TtlStepNs:      int64(p.TTLStep),
		TtlMaxNs:       int64(p.TTLMax),
		Fifo:           p.FIFO,
		TimedTokens:    p.TimedTokens,
		FirstSpanNs:    int64(p.FirstSpan),
		Durability:     p.Durability,
		Server:         p.Server,
		SurvivesPlugin: p.SurvivesPlugin,
	}
	for _, capability := range p.Capabilities {
		out.Capabilities = append(out.Capabilities, string(capability))
	}
	return out
}

func toProperties(p *lockpb.Properties) driver.Properties {
	out := driver.Properties{
		Name:           p.GetName(),
		Fencing:        driver.Fencing(p.GetFencing()),
		Scope:          driver.Scope(p.GetScope()),
		TTLMin:         time.Duration(p.GetTtlMinNs()),
		TTLStep:        time.Duration(p.GetTtlStepNs()),
		TTLMax:         time.Duration(p.GetTtlMaxNs()),
		FIFO:           p.GetFifo(),
		TimedTokens:    p.GetTimedTokens(),
		FirstSpan:      time.Duration(p.GetFirstSpanNs()),
		Durability:     p.GetDurability(),
		Server:         p.GetServer(),
		SurvivesPlugin: p.GetSurvivesPlugin(),
	}
	for _, capability := range p.GetCapabilities() {
		out.Capabilities = append(out.Capabilities, driver.Capability(capability))
	}
	return out
}

func fromNotice(n driver.Notice, redact *Redactor) *lockpb.Notice {
	return &lockpb.Notice{
		Kind:  lockpb.Notice_Kind(n.Kind), // NoticeKind has the same numbers in driver and lockpb
		Name:  n.Name,
		Owner: n.Owner,
		Token: n.Token,
		Cause: EncodeError(n.Err, redact),
	}
}

// toNotice leaves the Plugin field unset, because only the host knows its value.
func toNotice(n *lockpb.Notice) driver.Notice {
	return driver.Notice{
		Kind: driver.NoticeKind(n.GetKind()),
		Name: n.GetName(), Owner: n.GetOwner(), Token: n.GetToken(), Err: DecodeError(n.GetCause()),
	}
}

// The constants of OpKind have the same numbers in package driver and in package lockpb.
func fromOp(op driver.Op) *lockpb.Op {
	return &lockpb.Op{Kind: lockpb.Op_Kind(op.Kind), Request: fromRequest(op.Request)}
}

func toOp(op *lockpb.Op) driver.Op {
	return driver.Op{Kind: driver.OpKind(op.GetKind()), Request: toRequest(op.GetRequest())}
}
