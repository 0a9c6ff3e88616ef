#!/bin/sh
# Install what is missing of the groups in tools/packages.txt: tools/host_packages.sh GROUP...
# Says what it does, needs root or sudo only when something is missing, and is safe to repeat.
set -eu
list=$(dirname "$0")/packages.txt

if ! command -v dpkg-query >/dev/null; then
    echo "packages: this is neither Debian nor Ubuntu; see tools/packages.txt for what to install"
    exit 0
fi

missing=
for group in "$@"; do
    for package in $(awk -v g="$group" '$1 == g { print $2 }' "$list"); do
        # A virtual environment is what counts, not which package brought it.
        if [ "$package" = python3-venv ] && "${PYTHON:-python3}" -c 'import ensurepip' 2>/dev/null; then
            continue
        fi
        status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
        [ "$status" = installed ] || missing="$missing $package"
    done
done
if [ -z "$missing" ]; then
    echo "packages: all of $* are installed"
    exit 0
fi

as_root=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "error: these packages are missing and need root:$missing" >&2
        echo "hint: as root, run: apt-get install --no-install-recommends$missing" >&2
        exit 1
    fi
    as_root=sudo
fi
echo "packages: installing$missing"
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq
# shellcheck disable=SC2086
$as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 $missing >/dev/null
echo "packages: done"
