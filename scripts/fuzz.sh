#!/usr/bin/env bash
# usage: fuzz.sh [SECONDS]    each fuzz target that long under libFuzzer (600), two at a time. Needs a nightly toolchain; installs
# cargo-fuzz. What is found lies in tests/fuzz/artifacts: mend it, then move the file to tests/fuzz/found/TARGET.
set -eu
. "$(dirname "$0")/env.sh"
seconds=${1:-600}

rustup toolchain list 2>/dev/null | grep -q nightly || { echo "no nightly toolchain: rustup toolchain install nightly" >&2; exit 1; }
command -v cargo-fuzz >/dev/null 2>&1 || cargo install --quiet --locked cargo-fuzz
corpus=$cache/fuzz
unset CARGO_TARGET_DIR
target=$cache/target-fuzz
cargo +nightly run --quiet --release --manifest-path tests/fuzz/Cargo.toml --target-dir "$target" --bin seeds "$corpus"
cargo +nightly fuzz build --fuzz-dir tests/fuzz --target-dir "$target"
one() {
  mkdir -p "$corpus/$1" tests/fuzz/artifacts/"$1"
  cargo +nightly fuzz run --fuzz-dir tests/fuzz --target-dir "$target" "$1" "$corpus/$1" -- \
    -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -max_len=8192 -print_final_stats=1 >"$corpus/$1.log" 2>&1 ||
    { tail -n 40 "$corpus/$1.log" >&2; echo "FAILED: $1" >&2; return 1; }
  printf '%-12s %s\n' "$1" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$corpus/$1.log") inputs in $seconds s"
}
export -f one; export corpus target seconds
printf '%s\n' request messages sse gguf safetensors trace | xargs -n 1 -P 2 bash -c 'one "$0"'
