#!/bin/bash
# compiler.sh PYTHON [check]: make sure that C extensions for PYTHON can be built, or say that they cannot. As root it installs
# what is missing. The library works without a compiler; the tests then run interpreted only.
# With "check" it only tells, by its exit status.
set -euo pipefail
PYTHON=${1:?python}
usable() {
    command -v cc >/dev/null &&
        [ -e "$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ]
}
usable && exit 0
[ "${2:-}" != check ] || exit 1
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing a C compiler and Python's headers"
    apt-get update -qq || true
    DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=5 -o DPkg::Lock::Timeout=300 install -y -qq \
        --no-install-recommends gcc libc6-dev python3-dev >/dev/null || true
fi
usable || echo "NO C COMPILER (or no Python.h): only the interpreted build is tested" >&2
