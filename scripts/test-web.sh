#!/usr/bin/env bash
# The page in a headless Chromium, on its software adapter: served by our own server, computing in the page. Longer than 25 minutes is a hang.
set -eu
. "$(dirname "$0")/env.sh"
start=$SECONDS
for thing in cc wasm browser node; do
  if ! scripts/need.sh "$thing"; then
    [ -n "${REQUIRE_GPU:-}" ] && exit 1
    echo "SKIP no $thing: the page is not tried in a browser" >&2
    exit 0
  fi
done
scripts/web.sh build
say "a server for the page"
scripts/need.sh pip
# As the root's tests build it: with other features it would be compiled anew.
cargo test --locked --no-run --test it
model=$("$CARGO_TARGET_DIR/debug/twostroke" fetch)
rm -rf "$CARGO_TARGET_DIR/debug/web"
cp -r "$cache/web" "$CARGO_TARGET_DIR/debug/web"
private_runtime_dir
(cd tests/browser && npm ci --ignore-scripts --no-audit --no-fund --silent)
say "the page in a browser"
timeout --kill-after=10 1500 node tests/browser/page.mjs "$CARGO_TARGET_DIR/debug/twostroke" "$model" "$CARGO_TARGET_DIR/tmp"
say "$(printf 'the page took %d:%02d' $(((SECONDS - start) / 60)) $(((SECONDS - start) % 60)))"
