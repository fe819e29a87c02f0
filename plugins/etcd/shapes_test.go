package etcd

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// dice turns the bytes of a fuzz input into choices; 0 when there are none left.
type dice struct{ left []byte }

func (d *dice) below(n int) int {
	if len(d.left) == 0 {
		return 0
	}
	b := d.left[0]
	d.left = d.left[1:]
	return int(b) % n
}

// shaped is a copy of the keys of one lock, in which a step is done in one of its
// two shapes.
type shaped struct {
	b    *Backend
	name string
	revs map[string]int64 // create revisions
}

// keys are the ones that a step may name.
func (s *shaped) keys() []string {
	sp := s.b.space
	return []string{sp.hold(s.name), sp.place(s.name, "p1"), sp.place(s.name, "p2"), sp.bar(s.name, "o1"), sp.bar(s.name, "o2")}
}

// fill puts some keys, in some order.
func (s *shaped) fill(t *testing.T, d *dice) {
	s.revs = map[string]int64{}
	for range d.below(5) {
		keys := s.keys()
		key := keys[d.below(len(keys))]
		value := record{owner: fmt.Sprint("o", d.below(2))}.encode()
		resp, err := s.b.send(t.Context(), false, &pb.TxnRequest{Success: []*pb.RequestOp{put(key, value, 0)}})
		must(t, err)
		if s.revs[key] == 0 {
			s.revs[key] = resp.Header.Revision
		}
	}
}

// step draws compares, operations and what is read otherwise.
func (s *shaped) step(d *dice) *step {
	st := &step{name: s.name, req: &pb.TxnRequest{}}
	keys, sp := s.keys(), s.b.space
	for range d.below(4) {
		key := keys[d.below(len(keys))]
		st.req.Compare = append(st.req.Compare, []*pb.Compare{
			absent(key, nil), present(key), at(key, s.revs[key]), worth(key, record{owner: "o1"}.encode()),
			nothingBefore(sp.places(s.name), max(1, s.revs[key])), absent(sp.both(s.name), beyond(sp.both(s.name))),
		}[d.below(6)])
	}
	for i, key := range keys { // etcd refuses two writes of one key
		switch d.below(4) {
		case 0:
			st.req.Success = append(st.req.Success, remove(key))
		case 1:
			st.req.Success = append(st.req.Success, put(key, []byte{byte(i)}, 0))
		case 2:
			st.req.Success = append(st.req.Success, exists(key))
		}
	}
	st.req.Failure = look(sp, s.name)
	if d.below(2) == 1 {
		st.req.Failure = append(st.req.Failure, exists(sp.bar(s.name, "o1")))
	}
	return st
}

// told is what a step's answer says, and the store after it, without what differs
// between two copies.
func (s *shaped) told(t *testing.T, st *step, c *clientv3.Client) string {
	var out strings.Builder
	say := func(kvs []*mvccpb.KeyValue) {
		for _, kv := range kvs {
			fmt.Fprintf(&out, " %q=%x", strings.ReplaceAll(string(kv.Key), s.name, ""), kv.Value)
		}
	}
	fmt.Fprintf(&out, "ok %v, epoch over %v, failed %v", st.ok, errors.Is(st.err, errEpoch), st.err != nil)
	if st.err == nil {
		ops := st.ops
		if !st.ok {
			ops = ops[:len(st.req.Failure)] // after it a single one has the epoch
		}
		for _, op := range ops {
			fmt.Fprintf(&out, "\n%T deleted %d, count %d", op.Response, op.GetResponseDeleteRange().GetDeleted(), op.GetResponseRange().GetCount())
			say(op.GetResponseRange().GetKvs())
		}
	}
	out.WriteString("\nleft")
	for _, from := range []string{s.b.space.both(s.name), s.b.space.bar(s.name, "")} {
		resp, err := c.Get(t.Context(), from, clientv3.WithPrefix())
		must(t, err)
		slices.SortFunc(resp.Kvs, func(a, b *mvccpb.KeyValue) int { return int(a.CreateRevision - b.CreateRevision) })
		say(resp.Kvs)
	}
	return out.String()
}

// FuzzShapes does any step alone and among others, on equal keys: the same is
// answered, and left.
func FuzzShapes(f *testing.F) {
	random := rand.NewChaCha8([32]byte{})
	for i := range 300 { // what go test alone does, too
		choices := make([]byte, 40)
		_, _ = random.Read(choices)
		f.Add(choices, i%10 == 0)
	}
	server := start(f, nil)
	b, c := connect(f, on(server)), plain(f, server)
	runs := 0
	f.Fuzz(func(t *testing.T, choices []byte, lost bool) {
		runs++
		e, err := b.mint.load(t.Context())
		must(t, err)
		var told [2]string
		for shape := range told {
			s := &shaped{b: b, name: fmt.Sprintf("%d-%d.", runs, shape)}
			d := &dice{choices}
			s.fill(t, d)
			st := s.step(d)
			batch := []*step{st}
			if shape == 1 {
				refused := &step{name: "refused", req: &pb.TxnRequest{
					Compare: []*pb.Compare{present("nothing")}, Failure: look(b.space, "refused"),
				}}
				batch = []*step{refused, st, {name: "done", req: probe(b.space)}}
			}
			for _, s := range batch {
				s.Open()
			}
			if lost {
				b.mint.present.Store(&epoch{base: e.base - 1})
			}
			b.writer.do(batch)
			told[shape] = s.told(t, st, c)
		}
		if told[0] != told[1] {
			t.Errorf("alone:\n%s\nwith others:\n%s", told[0], told[1])
		}
	})
}
