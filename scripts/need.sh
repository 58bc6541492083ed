#!/usr/bin/env bash
# usage: need.sh THING...    installs what the machine lacks; THING: cc vulkan lavapipe browser node pip wasm
# On Debian and Ubuntu through apt-get (with sudo when not root); elsewhere it says what to install and ends with 1.
set -eu

has() { command -v "$1" >/dev/null 2>&1; }
file() { [ -e "$1" ]; }
macos() { [ "$(uname -s)" = Darwin ]; }

have() {
  case $1 in
    cc) has cc ;;
    # Some driver, and the loader that finds it. A Mac has Metal.
    vulkan) macos || { loader && drivers; } ;;
    lavapipe) macos || { loader && compgen -G '/usr/share/vulkan/icd.d/lvp_icd*.json' >/dev/null; } ;;
    browser) [ -n "${CHROMIUM:-}" ] || has chromium || has chromium-browser || has google-chrome || has google-chrome-stable ;;
    node) has node && has npm ;;
    pip) python3 -m pip --version >/dev/null 2>&1 ;;
    wasm) wasm_target || { file /usr/bin/cargo && file /usr/lib/rustlib/src/rust/library; } ;;
    *) echo "need.sh: unknown thing: $1" >&2; exit 2 ;;
  esac
}
loader() { { ldconfig -p 2>/dev/null || /sbin/ldconfig -p; } | grep -q 'libvulkan\.so\.1'; }
drivers() {
  [ -n "${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-}" ] ||
    compgen -G '/usr/share/vulkan/icd.d/*.json' >/dev/null || compgen -G '/etc/vulkan/icd.d/*.json' >/dev/null ||
    compgen -G '/usr/local/share/vulkan/icd.d/*.json' >/dev/null
}
wasm_target() { has rustc && file "$(rustc --print sysroot)/lib/rustlib/wasm32-unknown-unknown"; }

debian() {
  case $1 in
    cc) echo gcc libc6-dev ;;
    vulkan | lavapipe) echo mesa-vulkan-drivers ;;
    browser) echo chromium ;;
    node) has node && has npm || { has node && echo npm || echo nodejs npm; } ;;
    pip) echo python3 python3-pip ;;
    wasm) echo rustc-web rust-web-src cargo-web ;;
  esac
}
elsewhere() {
  case $1 in
    cc) echo "a C compiler (gcc or clang), which Rust links with" ;;
    vulkan) echo "a Vulkan driver of your card, or Mesa's software driver (lavapipe), and the Vulkan loader" ;;
    lavapipe) echo "Mesa's software Vulkan driver, lavapipe (Fedora: mesa-vulkan-drivers, Arch: vulkan-swrast)" ;;
    browser) echo "Chromium or Chrome (or set CHROMIUM to its path)" ;;
    node) echo "Node.js 18 or newer with npm" ;;
    pip) echo "Python 3 with pip" ;;
    wasm) echo "the wasm32 target (rustup target add wasm32-unknown-unknown)" ;;
  esac
}

missing=()
for thing in "$@"; do have "$thing" || missing+=("$thing"); done
[ ${#missing[@]} -eq 0 ] && exit 0

tell() {
  echo "This machine lacks, and you would have to install:" >&2
  for thing in "${missing[@]}"; do echo "  - $(elsewhere "$thing")" >&2; done
  exit 1
}
if ! has apt-get; then
  # rustup serves the target without the system's packages.
  if [ "${missing[*]}" = wasm ] && has rustup && rustup target add wasm32-unknown-unknown; then exit 0; fi
  tell
fi
sudo=()
if [ "$(id -u)" -ne 0 ]; then
  has sudo || tell
  sudo=(sudo)
fi
packages=()
for thing in "${missing[@]}"; do read -ra more <<<"$(debian "$thing")"; packages+=("${more[@]}"); done
echo "Installing: ${packages[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
apt() { ${sudo[@]+"${sudo[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get -q "$@" >>"$log" 2>&1; }
if ! apt update; then echo "(apt-get update failed; going on with what it knows)" >&2; fi
if ! apt install -y --no-install-recommends "${packages[@]}"; then
  tail -n 20 "$log" >&2
  tell
fi
still=()
for thing in "${missing[@]}"; do have "$thing" || still+=("$thing"); done
[ ${#still[@]} -eq 0 ] || { missing=("${still[@]}"); tell; }
