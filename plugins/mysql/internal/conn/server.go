package conn

import (
	"fmt"
	"strings"
)

// Server is what a new connection learns about the other end.
type Server struct {
	Version  string
	MariaDB  bool
	ReadOnly bool
	Name     string // host and port as the server calls itself
	Flush    int    // innodb_flush_log_at_trx_commit
	Binlog   bool
	Sync     int // sync_binlog
	Packet   int // max_allowed_packet
}

// Product is the name and version.
func (s *Server) Product() string {
	if s.MariaDB {
		return "MariaDB " + strings.SplitN(s.Version, "-", 2)[0]
	}
	return "MySQL " + s.Version
}

// Durable reports whether a commit is on disk when it is acknowledged.
func (s *Server) Durable() bool { return s.Flush == 1 && (!s.Binlog || s.Sync == 1) }

// Durability is the settings that [Server.Durable] depends on.
func (s *Server) Durability() string {
	d := fmt.Sprintf("innodb_flush_log_at_trx_commit=%d", s.Flush)
	if s.Binlog {
		d += fmt.Sprintf(", sync_binlog=%d", s.Sync)
	}
	return d
}
