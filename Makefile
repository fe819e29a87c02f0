# Two commands do everything on a fresh machine: make bench, make test.

OUT ?= results/$(shell date -u +%Y%m%dT%H%M%SZ)

.PHONY: bench bench-peers test lint gen build dist servers soak fuzz clean

bench: build servers
	bin/lockbench run --quick --scenarios acquire,throughput,contend,takeover --baselines -o $(OUT) && bin/lockbench report $(OUT)

bench-peers: build servers
	scripts/bench-peers $(OUT)

# Two packages at a time: the suites wait for servers, processes and TTLs most of
# the time, and more of them would compete for the cores.
test: build servers
	go build -race ./... && go test -race -p 2 -timeout 15m ./...
	go -C examples test -race -p 1 -parallel 6 -timeout 5m ./...
	go -C examples/integrations test -race -p 1 -parallel 6 -timeout 5m ./...

lint:
	scripts/lint

gen:
	scripts/gen

# As scripts/dist: a plugin with cgo starts itself anew to refuse new privileges.
build:
	CGO_ENABLED=0 go build -o bin/ ./cmd/... ./plugins/*/lockplugin-*

dist:
	scripts/dist

servers:
	scripts/servers

soak: build servers
	scripts/soak

fuzz:
	scripts/fuzz

clean:
	rm -rf bin dist results
