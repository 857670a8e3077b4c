# `just` lists what there is.
default:
    @just --list

# Formatting, lints, every test
test:
    scripts/test

# The long forms of the tests
torture:
    scripts/torture

# Record simulated venues for half a minute, with a page of live figures
demo:
    cargo run --release -- demo --for 30s

# Record three sample envelopes in a temporary folder, then verify what was written
try:
    #!/usr/bin/env bash
    set -euo pipefail
    dir=$(mktemp -d)
    trap 'rm -rf "$dir"' EXIT
    printf '%s\n' \
        '{"exchange":"kraken","channel":"trades","symbol":"BTC/USD","sequence":1,"payload":{"price":"64250.10","qty":"0.010"}}' \
        '{"exchange":"kraken","channel":"trades","symbol":"ETH/USD","sequence":2,"payload":{"price":"3120.50","qty":"2"}}' \
        '{"exchange":"kraken","channel":"ticker","symbol":"BTC/USD","payload":{"bid":"64250.0","ask":"64250.2"}}' \
        | cargo run --release -- ingest --ack --data-dir "$dir"
    cargo run --release -- verify "$dir"

# Every benchmark; ends with an error if one misses its goal, after all have run
bench-all:
    #!/usr/bin/env bash
    set -euo pipefail
    cargo build --release
    missed=0
    for name in spool sink-file sink-mongo dedup handoff pipeline permit parse-books passthrough fuzz-scanner poll peer-depth peer-trade peer-file ws-pipe descriptor isolation jobs job-pick tokens backfill sink-redis memory; do
        echo "== $name" >&2
        cargo run --release --quiet -- bench "$name" || missed=1
    done
    exit $missed

# Format the code
fmt:
    cargo fmt --all

# What the compiler and clippy have to say; warnings are errors
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --all-features -- -D warnings
