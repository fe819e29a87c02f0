package txn

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/lockbench/lockbench/plugins/etcd/internal/cluster"
)

// Generation is the period from the first use of a namespace to the loss of its data. A token is
// the create revision of the lock's key plus the generation's base (decision etcd-5).
//
// The base identifies the generation, and is stored in the value of a key. The revision of this key
// cannot identify the generation, because the first key of every new cluster has the same revision.
type Generation struct {
	Base uint64 // when the generation began, in microseconds since 1970
}

// The value of the generation's key begins with the constant format. Old releases of this package
// wrote no such text, and had two kinds of key, for locks and for queue entries. They cannot read
// the new value, so they refuse all requests. Keys of old releases expire with their leases.
const format = "2:"

func (g *Generation) value() []byte { return strconv.AppendUint([]byte(format), g.Base, 10) }

// Token returns the token of a lock whose key was created at rev.
func (g *Generation) Token(rev int64) uint64 { return g.Base + uint64(rev) }

// Same reports whether g and other are one generation, so that their revisions are comparable.
func (g *Generation) Same(other *Generation) bool { return g.Base == other.Base }

// Generation returns the present generation of the store's data, which the first
// caller reads from the store. After an error no lock has been changed.
//
// Every Txn requires that the key in the store still has this generation's base. So a process that
// runs on after the store has lost its data cannot mix two generations. The first user of an empty
// namespace sets the base from its own clock, because etcd has no clock that can be read.
func (w *Writer) Generation(ctx context.Context) (*Generation, error) {
	if g := w.Known(); g != nil {
		return g, nil
	}
	return w.fetch(ctx, 0)
}

// Known returns the present generation of the data, or nil if it must first be read.
func (w *Writer) Known() *Generation { return w.present.Load() }

// fetch reads the generation, or begins a generation whose base is at least the number least. It
// first sends a Txn that only reads, because a store without space refuses a Txn that might write.
func (w *Writer) fetch(ctx context.Context, least uint64) (*Generation, error) {
	look := []*pb.RequestOp{Range(&pb.RangeRequest{Key: []byte(w.key)})}
	g := &Generation{Base: max(least, uint64(max(0, time.Now().UnixMicro())))}
	for _, req := range []*pb.TxnRequest{
		{Success: look},
		{Compare: []*pb.Compare{Absent(w.key)}, Success: []*pb.RequestOp{Put(w.key, g.value(), 0)}, Failure: look},
	} {
		resp, err := w.txn(ctx, true, req)
		if err != nil {
			return nil, w.cluster.Untouched(err)
		}
		kvs := resp.Responses[0].GetResponseRange().GetKvs()
		if len(kvs) == 0 {
			continue
		}
		base, present := strings.CutPrefix(string(kvs[0].Value), format)
		if g.Base, err = strconv.ParseUint(base, 10, 62); err != nil {
			return nil, fmt.Errorf("etcd: key %q: %w", w.key, err)
		}
		if !present { // the first host that finds an old value replaces it
			if _, err := w.txn(ctx, true, &pb.TxnRequest{
				Compare: []*pb.Compare{HasValue(w.key, kvs[0].Value)}, Success: []*pb.RequestOp{Put(w.key, g.value(), 0)},
			}); err != nil {
				return nil, w.cluster.Untouched(err)
			}
		}
		break
	}
	w.present.Store(g)
	return g, nil
}

// The method holds returns a compare that fails once the store has lost the data of generation g.
func (w *Writer) holds(g *Generation) *pb.Compare { return HasValue(w.key, g.value()) }

// The method over is called when the generation g has ended. It begins the next generation, unless
// another client has done so. The new base is above g's highest known token, even if this machine's
// clock is behind.
func (w *Writer) over(ctx context.Context, g *Generation) error {
	if w.present.CompareAndSwap(g, nil) {
		w.ended()
	}
	_, err := w.fetch(ctx, g.Token(w.highest.Swap(0))+1)
	return err
}

// Read sends the read operations ops in one Txn. It repeats the Txn once if the generation has
// ended. Its error is the client library's.
func (w *Writer) Read(ctx context.Context, ops ...*pb.RequestOp) (Found, error) {
	for range 2 {
		g, err := w.Generation(ctx)
		if err != nil {
			return Found{}, err
		}
		resp, err := w.txn(ctx, true, &pb.TxnRequest{Compare: []*pb.Compare{w.holds(g)}, Success: ops})
		if err != nil {
			return Found{}, err
		}
		if resp.Succeeded {
			return Found{resp.Responses, resp.Header.Revision, g}, nil
		}
		if err := w.over(ctx, g); err != nil {
			return Found{}, err
		}
	}
	return Found{}, cluster.ErrDataLost
}

// txn sends one Txn and records the revision of the answer.
func (w *Writer) txn(ctx context.Context, repeatable bool, req *pb.TxnRequest) (*pb.TxnResponse, error) {
	resp, err := w.cluster.Txn(ctx, repeatable, req)
	if err != nil {
		return nil, err
	}
	rev := resp.Header.Revision
	for old := w.highest.Load(); rev > old && !w.highest.CompareAndSwap(old, rev); old = w.highest.Load() {
	}
	return resp, nil
}
