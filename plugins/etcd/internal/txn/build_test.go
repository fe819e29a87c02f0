package txn

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/lockbench/lockbench/plugins/etcd/internal/cluster"
)

// dice turns the bytes of a fuzz input into choices, which are 0 when no bytes are left.
type dice struct{ left []byte }

func (d *dice) below(n int) int {
	if len(d.left) == 0 {
		return 0
	}
	b := d.left[0]
	d.left = d.left[1:]
	return int(b) % n
}

// shaped is one of two equal sets of keys. A Step runs alone on one set, in a batch on the other.
type shaped struct {
	w    *Writer
	name string           // prefix of the keys
	revs map[string]int64 // create revisions
}

func (s *shaped) keys() []string {
	return []string{s.name + "h", s.name + "w1", s.name + "w2", s.name + "b1", s.name + "b2"}
}

func under(prefix string, limit int64) *pb.RequestOp {
	return Range(&pb.RangeRequest{Key: []byte(prefix), RangeEnd: Beyond(prefix), Limit: limit, SortOrder: pb.RangeRequest_ASCEND, SortTarget: pb.RangeRequest_CREATE})
}

func present(key string) *pb.Compare { return created(key, nil, pb.Compare_GREATER, 0) }

func (s *shaped) fill(t *testing.T, d *dice) {
	s.revs = map[string]int64{}
	for range d.below(5) {
		keys := s.keys()
		key := keys[d.below(len(keys))]
		resp, err := s.w.txn(t.Context(), false, &pb.TxnRequest{Success: []*pb.RequestOp{Put(key, fmt.Append(nil, d.below(2)), 0)}})
		must(t, err)
		if s.revs[key] == 0 {
			s.revs[key] = resp.Header.Revision
		}
	}
}

func (s *shaped) step(d *dice) *Step {
	st := &Step{Name: s.name, Req: &pb.TxnRequest{}}
	keys := s.keys()
	for range d.below(4) {
		key := keys[d.below(len(keys))]
		st.Req.Compare = append(st.Req.Compare, []*pb.Compare{
			Absent(key), present(key), At(key, s.revs[key]), HasValue(key, []byte("1")),
			NoneBefore(s.name+"w", max(1, s.revs[key])), NoneUnder(s.name),
		}[d.below(6)])
	}
	for i, key := range keys { // etcd refuses two writes of one key
		switch d.below(5) {
		case 0:
			st.Req.Success = append(st.Req.Success, Delete(key))
		case 1:
			st.Req.Success = append(st.Req.Success, Put(key, []byte{byte(i)}, 0))
		case 2:
			st.Req.Success = append(st.Req.Success, Exists(key))
		case 3:
			st.Req.Success = append(st.Req.Success, When(present(key), Put(key, []byte{byte(i)}, 0)))
		}
	}
	st.Req.Failure = []*pb.RequestOp{under(s.name+"h", 1), under(s.name+"w", 1)}
	if d.below(2) == 1 {
		st.Req.Failure = append(st.Req.Failure, Exists(s.name+"b1"))
	}
	return st
}

// outcome describes the answer to the step st, and the keys that the store then has. It leaves out
// the prefix of the keys, because the two sets have different prefixes.
func (s *shaped) outcome(t *testing.T, st *Step) string {
	var out strings.Builder
	say := func(kvs []*mvccpb.KeyValue) {
		for _, kv := range kvs {
			fmt.Fprintf(&out, " %q=%x", strings.ReplaceAll(string(kv.Key), s.name, ""), kv.Value)
		}
	}
	fmt.Fprintf(&out, "ok %v, data lost %v, failed %v", st.OK, errors.Is(st.Err, cluster.ErrDataLost), st.Err != nil)
	if st.Err == nil {
		ops := st.Ops
		if !st.OK {
			ops = ops[:len(st.Req.Failure)] // a step that runs alone also reads the generation
		}
		for _, op := range ops {
			fmt.Fprintf(&out, "\n%T deleted %d, count %d", op.Response, op.GetResponseDeleteRange().GetDeleted(), op.GetResponseRange().GetCount())
			say(op.GetResponseRange().GetKvs())
		}
	}
	out.WriteString("\nleft")
	resp, err := s.w.txn(t.Context(), true, &pb.TxnRequest{Success: []*pb.RequestOp{under(s.name, 0)}})
	must(t, err)
	kvs := resp.Responses[0].GetResponseRange().GetKvs()
	slices.SortStableFunc(kvs, func(a, b *mvccpb.KeyValue) int { return int(a.CreateRevision - b.CreateRevision) })
	say(kvs)
	return out.String()
}

// FuzzShapes does a random operation twice, each time on the same keys and values: once alone, once
// in a Txn with other operations. The answers, and the keys after the operation, must be the same.
func FuzzShapes(f *testing.F) {
	random := rand.NewChaCha8([32]byte{})
	for i := range 300 { // seeds, so that plain go test runs these too
		choices := make([]byte, 40)
		_, _ = random.Read(choices)
		f.Add(choices, i%10 == 0)
	}
	w := onServer(f)
	runs := 0
	f.Fuzz(func(t *testing.T, choices []byte, lost bool) {
		runs++
		g, err := w.Generation(t.Context())
		must(t, err)
		var outcomes [2]string
		for shape := range outcomes {
			s := &shaped{w: w, name: fmt.Sprintf("%d-%d.", runs, shape)}
			d := &dice{choices}
			s.fill(t, d)
			st := s.step(d)
			batch := []*Step{st}
			if shape == 1 {
				refused := &Step{Name: "refused", Req: &pb.TxnRequest{
					Compare: []*pb.Compare{present("nothing")}, Failure: []*pb.RequestOp{under("nothing", 1)},
				}}
				batch = []*Step{refused, st, {Name: "done", Req: &pb.TxnRequest{Success: []*pb.RequestOp{Delete("nothing")}}}}
			}
			for _, s := range batch {
				s.Open()
			}
			if lost {
				w.present.Store(&Generation{Base: g.Base - 1})
			}
			w.do(batch)
			outcomes[shape] = s.outcome(t, st)
		}
		if outcomes[0] != outcomes[1] {
			t.Errorf("alone:\n%s\nwith others:\n%s", outcomes[0], outcomes[1])
		}
	})
}
