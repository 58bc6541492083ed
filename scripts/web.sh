#!/usr/bin/env bash
# usage: web.sh [build]    builds the page, puts it beside the server's binary, and serves it; with `build` it ends there.
# With the toolchain's own wasm32 target where it is installed, else with Debian's rustc-web, as in wasm.sh.
set -eu
. "$(dirname "$0")/env.sh"
bindgen_version=0.2.130 # as in app/Cargo.toml
native_target=$CARGO_TARGET_DIR

scripts/need.sh cc wasm
bindgen=$cache/tools/bin/wasm-bindgen
if [ "$("$bindgen" --version 2>/dev/null)" != "wasm-bindgen $bindgen_version" ]; then
  say "Installing wasm-bindgen $bindgen_version (once; minutes)"
  CARGO_TARGET_DIR=$cache/target-tools cargo install --quiet --debug --root "$cache/tools" "wasm-bindgen-cli@$bindgen_version"
  rm -rf "$cache/target-tools"
fi

say "Building the page (the first time takes minutes)"
(
  export CARGO_TARGET_DIR=${TWOSTROKE_WASM_TARGET_DIR:-$cache/target-web}
  args=(build --locked -p twostroke-app --lib --target wasm32-unknown-unknown --profile web)
  if [ -e "$(rustc --print sysroot)/lib/rustlib/wasm32-unknown-unknown" ]; then
    cargo "${args[@]}"
  else
    # Debian's compiler has no linker for wasm of its own; rustup's does.
    for folder in "$(rustc --print sysroot)"/lib/rustlib/*/bin; do PATH=$PATH:$folder; done
    export PATH
    RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 /usr/bin/cargo "${args[@]}" -Zbuild-std=std,panic_abort
  fi
)
wasm=${TWOSTROKE_WASM_TARGET_DIR:-$cache/target-web}/wasm32-unknown-unknown/web/twostroke_app.wasm
page=$cache/web
rm -rf "$page.new"
"$bindgen" --target web --no-typescript --remove-name-section --out-dir "$page.new" "$wasm"
cp app/web/index.html app/web/page.css app/web/boot.js "$page.new/"
rm -rf "$page"
mv "$page.new" "$page"
size=$(gzip -9 -c "$page/twostroke_app_bg.wasm" | wc -c)
say "$(printf 'The page is in %s: %d kB of wasm, %d kB gzipped' "$page" $(($(wc -c <"$page/twostroke_app_bg.wasm") / 1000)) $((size / 1000)))"
[ "${1:-}" != build ] || exit 0

cargo build --release --locked --bin twostroke
rm -rf "$native_target/release/web"
cp -r "$page" "$native_target/release/web"
exec "$native_target/release/twostroke" serve ${MODEL:+--model "$MODEL"}
