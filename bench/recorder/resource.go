package recorder

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	_ "github.com/go-sql-driver/mysql" // registers itself
	"github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/bench/record"
	"github.com/lockbench/lockbench/core/fence"
	"github.com/lockbench/lockbench/internal/proc"
)

// Resources are what holders write to: for each lock one thing of its name
// behind a guard, and its twin without. Lock number i writes to the i-th of those that are
// there, and round again.
type Resources struct {
	Dir   string `json:"dir"`             // for files
	Redis string `json:"redis,omitempty"` // host:port
	SQL   string `json:"sql,omitempty"`   // address in the form of go-sql-driver/mysql
}

// PrepareSQL makes the table that recorderes write to.
func PrepareSQL(ctx context.Context, address string) error {
	db, err := sql.Open("mysql", address)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS things (
		name VARCHAR(200) PRIMARY KEY, body BIGINT UNSIGNED NOT NULL DEFAULT 0,
		lock_token BIGINT UNSIGNED NOT NULL DEFAULT 0, writes BIGINT NOT NULL DEFAULT 0)`)
	return err
}

// resource is one kind of thing. Both functions return an error wrapping
// fence.ErrStale when a guard refuses.
type resource struct {
	kind             string
	guarded, without func(ctx context.Context, thing string, token uint64) error
}

type writer struct {
	resources []resource
	redis     *redis.Client
	db        *sql.DB
}

func openWriter(r Resources) (*writer, error) {
	w := &writer{resources: []resource{fileResource(r.Dir)}}
	if r.Redis != "" {
		w.redis = redis.NewClient(&redis.Options{Addr: r.Redis})
		w.resources = append(w.resources, redisResource(w.redis))
	}
	if r.SQL != "" {
		db, err := sql.Open("mysql", r.SQL)
		if err != nil {
			return nil, err
		}
		w.db = db
		db.SetMaxOpenConns(4)
		w.resources = append(w.resources, sqlResource(db))
	}
	return w, nil
}

func (w *writer) close() error {
	var err error
	if w.redis != nil {
		err = w.redis.Close()
	}
	if w.db != nil {
		err = errors.Join(err, w.db.Close())
	}
	return err
}

// writeTimeout bounds one write: the resources share a machine with faults.
const writeTimeout = 5 * time.Second

// write writes to the guarded thing of a lock and to its twin. A write that
// fails otherwise than by its guard had no effect that anybody can tell, and
// is left out.
func (w *writer) write(a *agent, name string, l *record.Lease) {
	r := w.resources[l.Name%len(w.resources)]
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	for _, guarded := range []bool{true, false} {
		do, thing := r.without, name+"-bare"
		if guarded {
			do, thing = r.guarded, name
		}
		n := record.Write{Host: l.Host, Name: l.Name, Token: l.Token, Resource: r.kind, Guarded: guarded, SentNs: proc.Now()}
		err := do(ctx, thing, l.Token)
		n.DoneNs = proc.Now()
		n.Refused = errors.Is(err, fence.ErrStale)
		if err == nil || n.Refused {
			a.tell(note{Write: &n})
		}
	}
}

func fileResource(dir string) resource {
	return resource{
		kind: "file",
		guarded: func(_ context.Context, thing string, token uint64) error {
			return fence.File{Path: filepath.Join(dir, thing)}.Write(token, strconv.AppendUint(nil, token, 10))
		},
		without: func(_ context.Context, thing string, token uint64) error {
			return os.WriteFile(filepath.Join(dir, thing), strconv.AppendUint(nil, token, 10), 0o644)
		},
	}
}

func redisResource(c *redis.Client) resource {
	return resource{
		kind: "redis",
		guarded: func(ctx context.Context, thing string, token uint64) error {
			wrote, err := c.Eval(ctx, fence.RedisSet, []string{thing, thing + ":token"}, token, token).Int()
			if err == nil && wrote == 0 {
				err = &fence.StaleError{Name: thing, Token: token}
			}
			return err
		},
		without: func(ctx context.Context, thing string, token uint64) error {
			return c.Set(ctx, thing, token, 0).Err()
		},
	}
}

func sqlResource(db *sql.DB) resource {
	insert := func(ctx context.Context, thing string) error {
		_, err := db.ExecContext(ctx, "INSERT IGNORE INTO things (name) VALUES (?)", thing)
		return err
	}
	return resource{
		kind: "sql",
		guarded: func(ctx context.Context, thing string, token uint64) error {
			if err := insert(ctx, thing); err != nil {
				return err
			}
			query := "UPDATE things SET body = ?, writes = writes + 1, " + fence.Set("lock_token") + " WHERE name = ? AND " + fence.Where("lock_token")
			return fence.Exec(ctx, db, thing, token, query, token, token, thing, token)
		},
		without: func(ctx context.Context, thing string, token uint64) error {
			if err := insert(ctx, thing); err != nil {
				return err
			}
			_, err := db.ExecContext(ctx, "UPDATE things SET body = ?, writes = writes + 1 WHERE name = ?", token, thing)
			return err
		},
	}
}
