#!/usr/bin/env bash
# Format, lints, and licences and advisories where cargo-deny is installed.
set -eu
. "$(dirname "$0")/env.sh"
cargo fmt --all --check
cargo clippy --locked --workspace --all-targets -- -D warnings
if cargo deny --version >/dev/null 2>&1; then
  cargo deny --locked check
else
  echo "cargo-deny is not installed (cargo install --locked cargo-deny): licences and advisories were not checked." >&2
fi
