# The project's commands. `make` without a target lists them.
.DEFAULT_GOAL := help
.PHONY: help toolchain disk console console-if-node console-tests screenshots run install check test test-full bench figures usage-figures search-figures fmt lint rust-tests without-flights without-flights-absence without-flights-tests debug-build outside-tests outside-sqlite outside-postgres client-tests client-matrix schema-tests mcp-tests tutorial-tests chaos chaos-build chaos-short fuzz hostile hostile-short interference interference-short supply-chain

CARGO ?= cargo
BIN := target/release/werkruf
# What `make run` starts. It takes little more than half the CPU time of `release` to build.
QUICK := target/quick/werkruf
NEED_RUST := 1.95

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

toolchain:
	@command -v $(CARGO) >/dev/null || { echo "Rust is missing: install it with rustup (https://rustup.rs), version $(NEED_RUST) or newer."; exit 1; }

# The console. Cargo puts the files of web/dist into the program; without them the program has a page that says how to build them.
WEB_SOURCES := $(shell find web docs/openapi.json \( -name node_modules -o -path web/dist -o -path web/tests \) -prune -o -type f -print 2>/dev/null)
NEED_NODE := 20.19

console: web/dist/index.html ## Build the console (needs Node); the next build of the server contains it

web/dist/index.html: $(WEB_SOURCES)
	@command -v npm >/dev/null || { echo "Node is missing: install version $(NEED_NODE) or newer (https://nodejs.org). The server runs without it, with a page instead of the console."; exit 1; }
	@test -f web/package.json || { echo "web/package.json is missing: this checkout has no console."; exit 1; }
	@echo "Building the console."
	@cd web && npm install --no-package-lock --no-audit --no-fund --loglevel=error && npm run --silent build
	@touch $@

# A newcomer without Node, or without its registry, gets a running server all the same.
console-if-node:
	@if command -v npm >/dev/null && test -f web/package.json; then $(MAKE) --no-print-directory console || echo "The console was not built (see above); the server starts without it."; \
	else echo "Without Node $(NEED_NODE) or newer the server has no console; everything else works."; fi

# Cargo is asked only if a source is newer than the binary, so that a built server starts at once.
SOURCES := Cargo.toml Cargo.lock docs/openapi.json $(shell find crates \( -path '*/src/*' -o -name Cargo.toml -o -name build.rs \) -type f) $(wildcard web/dist/index.html)

$(QUICK): $(SOURCES)
	@$(MAKE) --no-print-directory toolchain
	@test -x $(QUICK) || echo "Building werkruf once (three to five minutes on two cores); later starts take no time."
	@$(CARGO) build --profile quick -p werkruf -p werkruf-reader --bins
	@touch $(QUICK)

run: console-if-node ## Build and serve on 127.0.0.1:8080 with SQLite, sample data and no key
	@$(MAKE) --no-print-directory $(QUICK)
	@$(QUICK) serve $(ARGS)

PREFIX ?= /usr/local
PROFILE ?= dist
BUILT = target/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))

install: toolchain console-if-node ## Build, and copy the two programs to PREFIX/bin (/usr/local)
	@$(CARGO) build --profile $(PROFILE) -p werkruf -p werkruf-reader --bins
	@install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(BUILT)/werkruf $(BUILT)/werkruf-reader $(DESTDIR)$(PREFIX)/bin

check: toolchain fmt lint rust-tests ## Quick loop: formatting, lints, Rust tests

fmt:
	$(CARGO) fmt --all --check

# The tests need the generator of the OpenAPI document, so the server is also checked as it is shipped: without it.
lint:
	$(CARGO) clippy --workspace --all-targets --quiet
	$(CARGO) clippy -p werkruf --lib --bins --quiet

rust-tests:
	$(CARGO) test --workspace --quiet

# A module can be left out: the server without the flight search passes its lints and the test of its absence (`make test`) and all others (`make test-full`).
without-flights:
	$(CARGO) clippy -p werkruf --no-default-features --lib --bins --quiet
	$(CARGO) clippy -p werkruf --no-default-features --all-targets --quiet

# It puts a server without the module in the place of the one that the tests from outside start, so it never runs beside them. A dependency that turns
# the module on again would leave no test to run.
without-flights-absence:
	$(CARGO) test -p werkruf --no-default-features --test without_flights --quiet -- --list | grep -q tools_routes_and_tables_of_flights_are_not_there
	$(CARGO) test -p werkruf --no-default-features --test without_flights --quiet

without-flights-tests: without-flights-absence
	$(CARGO) test -p werkruf --no-default-features --quiet

# These use servers of their own and mostly wait, so three of them run beside each other.
FROM_OUTSIDE := outside-postgres outside-sqlite schema-tests client-tests console-tests mcp-tests without-flights hostile-short interference-short tutorial-tests search-figures

# A disk that fills up after twenty minutes looks like the fault of whatever test runs then.
NEED_DISK_GB := $(if $(filter 0,$(CARGO_INCREMENTAL)),11,19)

disk:
	@gb=$$({ df -Pk . | awk 'NR == 2 {print $$4}'; du -sk target 2>/dev/null | cut -f1; } | awk '{kb += $$1} END {print int(kb / 1048576)}'); \
	if [ $$gb -lt $(NEED_DISK_GB) ]; then echo "The tests write $(NEED_DISK_GB) GB into target, and there is room for $$gb GB. CARGO_INCREMENTAL=0 halves what they write."; exit 1; fi

test: disk toolchain console check ## What CI runs: `check`, then tests that use the server from outside, with real clients, and under attacks and faults
	$(MAKE) --no-print-directory without-flights-absence
	$(MAKE) --no-print-directory -j 3 --output-sync=target $(FROM_OUTSIDE)
	$(MAKE) --no-print-directory chaos-short

test-full: test ## `test`, then all clients over both APIs, and the whole harnesses of attacks, non-interference and crashes on both databases (about two hours)
	$(MAKE) without-flights-tests
	$(MAKE) client-matrix
	$(MAKE) hostile
	$(MAKE) interference
	$(MAKE) chaos DATABASE=sqlite
	$(MAKE) chaos DATABASE=postgres
	$(MAKE) usage-figures

# The programs that the tests below start. The same selection as `rust-tests`, so that only the server is compiled again: as it is shipped,
# without the generator of the OpenAPI document.
debug-build:
	$(CARGO) build --quiet --workspace --bins

# Runs on SQLite and on PostgreSQL. The tests install and start their own PostgreSQL; tests/postgres/down stops it.
outside-tests: outside-sqlite outside-postgres

outside-sqlite: debug-build
	tests/outside/run

outside-postgres: debug-build
	tests/outside/run --database postgres

# All attacks, against the debug build. They take a minute or two.
hostile-short: debug-build
	tests/hostile/run

hostile: toolchain ## Attack the release build with the weakest key and 1 GiB of address space, on both databases
	$(CARGO) build --release --quiet -p werkruf -p werkruf-reader --bins
	WERKRUF_BIN=$(CURDIR)/$(BIN) tests/hostile/run
	WERKRUF_BIN=$(CURDIR)/$(BIN) tests/hostile/run --database postgres

# A sample of the sequences, and the proof that the comparison finds deliberate leaks.
interference-short: debug-build
	tests/interference/run --prove
	tests/interference/run --sequences 120
	tests/interference/run --database postgres --sequences 60

SEQUENCES ?= 10000

interference: toolchain ## Compare what actors are told over rows that they may not see, on both databases (SEQUENCES=10000)
	$(CARGO) build --release --quiet -p werkruf -p werkruf-reader --bins
	WERKRUF_BIN=$(CURDIR)/$(BIN) tests/interference/run --prove
	WERKRUF_BIN=$(CURDIR)/$(BIN) tests/interference/run --sequences $(SEQUENCES) --jobs 2
	WERKRUF_BIN=$(CURDIR)/$(BIN) tests/interference/run --database postgres --sequences $(SEQUENCES) --jobs 2

# Real clients of OpenAI's APIs. Their packages are installed once, under target/clients.
client-tests: debug-build
	tests/clients/run

# All clients over both APIs. The table of docs/openai.md must be what the run saw.
client-matrix: debug-build
	tests/clients/run --full

# Requests made from /openapi.json, for three minutes. schemathesis is installed once, under target/schema.
schema-tests: debug-build
	tests/schema/run

# The console in Debian's Chromium, which is installed if it is missing. The server has to contain the console of this checkout.
console-tests: console debug-build
	cd web && npm run --silent test
	tests/console/run

screenshots: console debug-build ## Take the pictures of the README and of docs/console.md again
	tests/console/run --screenshots

# Real clients of the Model Context Protocol and its conformance suite, for the server and for its own client. Their packages are installed once, under
# target/mcp and target/mcp_client.
mcp-tests: debug-build
	tests/mcp/run
	timeout 300 tests/mcp_client/run

# The commands of docs/tutorial.md and docs/writing-a-tool.md, with Debian's nginx under target/nginx.
tutorial-tests: debug-build
	tests/tutorial/run

# The server with crash points (feature `crash-points`). It is a separate binary, because no other build may have them.
# It shares the dependencies of the normal build. The feature has no package before it: cargo would take `werkruf/…` for the server that its own tests
# depend on, and leave the points out.
CHAOS_BIN := $(CURDIR)/target/chaos/werkruf
KILLS ?= 1000

chaos-build: toolchain
	$(CARGO) build --quiet --workspace --bins --features crash-points
	install -D target/debug/werkruf $(CHAOS_BIN)

# On PostgreSQL three servers share one database of the harness for MINUTES minutes.
DATABASE ?= sqlite
MINUTES ?= 20
CHAOS_sqlite = --full --kills $$(($(KILLS) * 7 / 10)) --random $$(($(KILLS) * 3 / 10))
CHAOS_postgres = --database postgres --full --minutes $(MINUTES)

chaos: chaos-build ## Kill and stop the server, fill its disk, then audit the database (KILLS=1000; DATABASE=postgres: three servers)
	WERKRUF_BIN=$(CHAOS_BIN) tests/chaos/run $(CHAOS_$(DATABASE)) $(ARGS)

chaos-short: chaos-build
	WERKRUF_BIN=$(CHAOS_BIN) tests/chaos/run --random 20
	tests/postgres/up >/dev/null
	WERKRUF_BIN=$(CHAOS_BIN) tests/chaos/run --database postgres --minutes 0.5
	tests/postgres/down

bench: toolchain ## Compare CPU per turn and turns per second with a bare handler (DATABASE=postgres: also on PostgreSQL)
	$(CARGO) build --release --quiet -p werkruf -p werkruf-bench --bins
	target/release/bench $(if $(filter postgres,$(DATABASE)),--postgres "$$(tests/postgres/up)") $(ARGS)

# The two tools are built once, under target/tools. Advisories need the database at github.com/rustsec/advisory-db: where it cannot be
# reached and there is no copy, the target says so and checks the rest. cyclonedx writes beside every manifest, so the files are moved.
TOOLS := $(CURDIR)/target/tools
DENY := PATH="$(TOOLS)/bin:$$PATH" $(CARGO) deny --workspace
SBOM := werkruf-sbom
supply-chain: toolchain ## Check licences, bans, sources and advisories of all dependencies; write bills of materials to target/sbom
	@test -x $(TOOLS)/bin/cargo-deny || $(CARGO) install --locked --root $(TOOLS) cargo-deny@0.20.2
	@test -x $(TOOLS)/bin/cargo-cyclonedx || $(CARGO) install --locked --root $(TOOLS) cargo-cyclonedx@0.5.9
	$(DENY) check --hide-inclusion-graph licenses bans sources
	@if $(DENY) fetch db 2>/dev/null || test -d "$${CARGO_HOME:-$$HOME/.cargo}"/advisory-dbs/*/crates; then \
	  $(DENY) check --disable-fetch advisories; \
	else echo "The advisory database cannot be reached: advisories were NOT checked."; fi
	@PATH="$(TOOLS)/bin:$$PATH" $(CARGO) cyclonedx --quiet --format json --target $$(rustc -vV | sed -n 's/^host: //p') --override-filename $(SBOM)
	@mkdir -p target/sbom
	@mv crates/werkruf/$(SBOM).json target/sbom/werkruf.cdx.json && mv crates/werkruf-reader/$(SBOM).json target/sbom/werkruf-reader.cdx.json
	@rm -f bench/$(SBOM).json crates/*/$(SBOM).json
	@echo "Bills of materials (CycloneDX): target/sbom/werkruf.cdx.json, target/sbom/werkruf-reader.cdx.json"

figures: toolchain ## Run the benchmark on a quiet machine and write its figures into the README and docs/benchmark.md
	$(CARGO) build --release --quiet -p werkruf -p werkruf-bench --bins
	target/release/bench --json --rounds 7 --only one-call --only ten-calls --only history --only thousand > target/bench-turns.json
	target/release/bench --json --rounds 1 --only search > target/bench-search.json
	bench/publish target/bench-turns.json target/bench-search.json

# The limit is 200 ms at a million rows. It holds for the release build on a machine that does nothing else.
usage-figures: toolchain ## Measure the statistics of usage with a million rows on both databases
	$(CARGO) build --release --quiet -p werkruf --bins
	bench/usage
	bench/usage --database postgres

# The published quality of search, measured again on the generated sets.
search-figures: debug-build
	bench/search/figures --check

fuzz: toolchain ## Fuzz every parser, FUZZ_SECONDS each (600); the corpus is in fuzz/corpus
	fuzz/run
