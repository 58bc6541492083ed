#!/usr/bin/env bash
# Builds the library, without the command line, for wasm32-unknown-unknown: with the toolchain's own target where it is
# installed, else with Debian's rustc-web, which brings the sources of std to build along. Not optimised: it must compile.
set -eu
. "$(dirname "$0")/env.sh"

export CARGO_TARGET_DIR=${TWOSTROKE_WASM_TARGET_DIR:-$cache/target-web}
built_here "$CARGO_TARGET_DIR"
args=(build --locked --lib --no-default-features --target wasm32-unknown-unknown
  --config profile.dev.opt-level=0 --config 'profile.dev.package."*".opt-level=0' --config profile.dev.debug=false)

if [ -e "$(rustc --print sysroot)/lib/rustlib/wasm32-unknown-unknown" ]; then
  exec cargo "${args[@]}"
fi
# RUSTC by path, or a rustup proxy that stands first in PATH would be taken.
export RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1
exec /usr/bin/cargo "${args[@]}" -Zbuild-std=std,panic_abort --config 'profile.dev.panic="abort"'
