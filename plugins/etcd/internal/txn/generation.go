package txn

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/lockbench/lockbench/plugins/etcd/internal/cluster"
)

// Generation is the life of a namespace from its first use to the loss of its
// data. A token is the create revision of the lock's key, above the generation's
// base: revisions rise through crashes and changes of leader, but a cluster that
// was set up anew begins again at 1, and a resource that remembers the highest
// token would refuse its holders or, worse, let an old one in.
//
// A generation is known by its base, which is the value of its key. The key's
// revision would not do: in two clusters that were set up one after the other
// the first key of each has the same.
type Generation struct {
	Base uint64 // in microseconds since 1970 when the generation began
}

// format begins the value of the generation's key. That of releases whose locks and
// queue entries were two kinds of key had none. They cannot read this one and refuse
// everything, and what they have left ends with their leases.
const format = "2:"

// value returns the value of the generation's key.
func (g *Generation) value() []byte { return strconv.AppendUint([]byte(format), g.Base, 10) }

// Token returns the token of a lock whose key was created at rev.
func (g *Generation) Token(rev int64) uint64 { return g.Base + uint64(rev) }

// Same reports whether revisions of both can be compared.
func (g *Generation) Same(other *Generation) bool { return g.Base == other.Base }

// generations knows the present one. Every Txn compares it, so that a process
// which outlives the data of its store cannot mix two.
//
// Note: etcd has no clock to ask, so the first user of an empty namespace takes
// its own to set the base. It orders generations, which are years apart, and
// decides nothing else.
type generations struct {
	cluster *cluster.Cluster
	key     string
	ended   func()
	present atomic.Pointer[Generation]
	highest atomic.Int64 // revision seen
}

// load returns the present generation. Its error changed no lock.
func (gs *generations) load(ctx context.Context) (*Generation, error) {
	if g := gs.present.Load(); g != nil {
		return g, nil
	}
	return gs.fetch(ctx, 0)
}

// fetch reads the generation, or begins one above least. It writes only a missing
// key, because a store without space refuses a Txn for any possible write.
func (gs *generations) fetch(ctx context.Context, least uint64) (*Generation, error) {
	look := []*pb.RequestOp{Range(&pb.RangeRequest{Key: []byte(gs.key)})}
	g := &Generation{Base: max(least, uint64(max(0, time.Now().UnixMicro())))}
	for _, req := range []*pb.TxnRequest{
		{Success: look},
		{Compare: []*pb.Compare{Absent(gs.key)}, Success: []*pb.RequestOp{Put(gs.key, g.value(), 0)}, Failure: look},
	} {
		resp, err := gs.send(ctx, true, req)
		if err != nil {
			return nil, gs.cluster.Untouched(err)
		}
		kvs := resp.Responses[0].GetResponseRange().GetKvs()
		if len(kvs) == 0 {
			continue
		}
		base, present := strings.CutPrefix(string(kvs[0].Value), format)
		if g.Base, err = strconv.ParseUint(base, 10, 62); err != nil {
			return nil, fmt.Errorf("etcd: key %q: %w", gs.key, err)
		}
		if !present { // done once, by the first that is here
			if _, err := gs.send(ctx, true, &pb.TxnRequest{
				Compare: []*pb.Compare{HasValue(gs.key, kvs[0].Value)}, Success: []*pb.RequestOp{Put(gs.key, g.value(), 0)},
			}); err != nil {
				return nil, gs.cluster.Untouched(err)
			}
		}
		break
	}
	gs.present.Store(g)
	return g, nil
}

// holds makes a Txn depend on g.
func (gs *generations) holds(g *Generation) *pb.Compare { return HasValue(gs.key, g.value()) }

// goesOn reports whether g was still there when ops, whose last one reads its
// key, were done.
func goesOn(g *Generation, ops []*pb.ResponseOp) bool {
	kvs := ops[len(ops)-1].GetResponseRange().GetKvs()
	return len(kvs) > 0 && bytes.Equal(kvs[0].Value, g.value())
}

// over is called when g turned out to have ended. The next generation is above
// it whatever this machine's clock says.
func (gs *generations) over(ctx context.Context, g *Generation) error {
	if gs.present.CompareAndSwap(g, nil) {
		gs.ended()
	}
	_, err := gs.fetch(ctx, g.Token(gs.highest.Swap(0))+1)
	return err
}

// read does a Txn of reads alone, and repeats it if the generation has ended.
// It returns the generation in which the answer's revisions count.
func (gs *generations) read(ctx context.Context, ops ...*pb.RequestOp) (*pb.TxnResponse, *Generation, error) {
	for range 2 {
		g, err := gs.load(ctx)
		if err != nil {
			return nil, nil, err
		}
		resp, err := gs.send(ctx, true, &pb.TxnRequest{Compare: []*pb.Compare{gs.holds(g)}, Success: ops})
		if err != nil || resp.Succeeded {
			return resp, g, err
		}
		if err := gs.over(ctx, g); err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, cluster.ErrDataLost
}

// send sends one Txn, which may be done twice or not, and notes the revision of
// the answer.
func (gs *generations) send(ctx context.Context, repeatable bool, req *pb.TxnRequest) (*pb.TxnResponse, error) {
	resp, err := gs.cluster.Txn(ctx, repeatable, req)
	if err != nil {
		return nil, err
	}
	rev := resp.Header.Revision
	for old := gs.highest.Load(); rev > old && !gs.highest.CompareAndSwap(old, rev); old = gs.highest.Load() {
	}
	return resp, nil
}
