# Two commands do everything on a fresh machine: make bench, make test.

OUT ?= results/$(shell date -u +%Y%m%dT%H%M%SZ)

.PHONY: bench bench-peers test test-main test-examples test-newest test-compose lint gen build dist servers soak fuzz clean

bench: build servers
	bin/lockbench run --quick --scenarios acquire,throughput,contend,takeover --baselines -o $(OUT) && bin/lockbench report $(OUT)

bench-peers: build servers
	scripts/bench-peers $(OUT)

# Most is compiled first, because compilers beside the tests starve servers.
# make lint runs go vet.
test: build servers
	go build -race ./... && go -C examples build -race ./...
	$(MAKE) test-main
	$(MAKE) test-examples
	$(MAKE) test-newest

test-main:
	go test -race -vet=off -timeout 15m ./...

test-examples:
	go -C examples test -race -vet=off -parallel 6 -timeout 15m ./...
	go -C examples/integrations test -race -vet=off -parallel 6 -timeout 15m ./...

# The newest Redis, Valkey and MySQL, where scripts/newest can have them.
test-newest:
	scripts/test-newest

# lockbench run --env compose; not part of test.
test-compose: build
	scripts/test-compose

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
