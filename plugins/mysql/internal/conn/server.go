package conn

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lockbench/lockbench/core/driver"
)

// Server has the facts that a server reports about itself over a new connection.
type Server struct {
	Version  string
	MariaDB  bool
	ReadOnly bool
	Name     string // host and port as the server calls itself
	ID       string // unique among servers
	Cluster  string // the id of its Galera cluster, or ID without Galera
	Flush    int    // innodb_flush_log_at_trx_commit
	Binlog   bool
	Sync     int   // sync_binlog
	Packet   int   // max_allowed_packet
	NoLocks  error // the error that refuses GET_LOCK; nil if GET_LOCK is allowed
}

// supported returns an error if the server is too old for SKIP LOCKED or for
// column defaults that are expressions.
func (s *Server) supported() error {
	least, product := [3]int{8, 0, 13}, "MySQL 8.0.13"
	if s.MariaDB {
		least, product = [3]int{10, 6, 0}, "MariaDB 10.6"
	}
	var is [3]int
	for i, part := range strings.SplitN(strings.SplitN(s.Version, "-", 2)[0], ".", 3) {
		is[i], _ = strconv.Atoi(part)
	}
	if slices.Compare(is[:], least[:]) >= 0 {
		return nil
	}
	return fmt.Errorf("mysql: %w: %w: %s is %s, and %s or later is needed", driver.ErrDenied, driver.ErrNotSent, s.Name, s.Product(), product)
}

// Product returns the server's product name and version.
func (s *Server) Product() string {
	if s.MariaDB {
		return "MariaDB " + strings.SplitN(s.Version, "-", 2)[0]
	}
	return "MySQL " + s.Version
}

// Durable reports whether the server writes a commit to disk before it acknowledges the commit.
func (s *Server) Durable() bool { return s.Flush == 1 && (!s.Binlog || s.Sync == 1) }

// Durability returns the settings on which [Server.Durable] depends.
func (s *Server) Durability() string {
	d := fmt.Sprintf("innodb_flush_log_at_trx_commit=%d", s.Flush)
	if s.Binlog {
		d += fmt.Sprintf(", sync_binlog=%d", s.Sync)
	}
	return d
}
