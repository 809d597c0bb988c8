#!/bin/sh
# Installs the Debian packages that the tests need and this machine lacks, and those that are named. Elsewhere it only
# names them.
set -eu

packages="bubblewrap iproute2 curl git tmux vim less postgresql pgbouncer chromium $*"
missing=""
for package in $packages; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "install ok installed" || missing="$missing $package"
done
[ -z "$missing" ] && exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "These packages are missing; tests that need them are skipped:$missing" >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086
apt-get install -y -qq --no-install-recommends $missing >/dev/null
