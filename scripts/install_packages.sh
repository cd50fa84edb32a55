#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian 12 packages needed to build and test tinyloop; asks nothing, and does nothing if all are there.
# Not for other systems: there the compiler and Meson report what is missing.
set -euo pipefail

packages=(g++ meson ninja-build pkg-config libfmt-dev libcli11-dev doctest-dev
  nlohmann-json3-dev libxxhash-dev libpcre2-dev libutf8proc-dev mandoc python3)

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "install_packages: not a Debian system; install the equivalents of ${packages[*]}" >&2
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
  [ "$status" = 'install ok installed' ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install_packages: run as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "install_packages: installing ${missing[*]}" >&2
apt_get() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" </dev/null >&2
}
apt_get update
apt_get install --no-install-recommends "${missing[@]}"
