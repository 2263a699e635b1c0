#!/usr/bin/env bash
# What the images consist of, installed on Debian: the Dockerfile runs this file, and so does the test that unpacks a Debian.
#
#   install.sh system                          Python, a C++ compiler, the user that Fuseplan runs as, and its folders
#   install.sh wheel SOURCE FOLDER             the wheel of a source tree, built with the build backend that is pinned there
#   install.sh fuseplan WHEEL PINS EXTRAS      the wheel in /opt/fuseplan, with these extras, every package as pinned
#
# All as root, in this order. The pages' pictures take no package of Debian's: pygraphviz brings Graphviz along.
set -euo pipefail

RELEASE=bookworm
PYTHON=3.11
USER_ID=10001
PREFIX=/opt/fuseplan
PACKAGES=(ca-certificates g++ python3 python3-venv)

fail() {
  echo "install.sh: $1" >&2
  exit "${2:-1}"
}

install_system() {
  # shellcheck source=/dev/null
  . /etc/os-release
  # Another base than Debian's (CUDA_BASE) is taken as it is, if its Python will do.
  [[ ${ID-} != debian || ${VERSION_CODENAME-} == "$RELEASE" ]] || fail "expected Debian $RELEASE, found ${PRETTY_NAME-}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -q
  apt-get install -qy --no-install-recommends "${PACKAGES[@]}"
  rm -rf /var/lib/apt/lists/*
  check_python
  getent group fuseplan >/dev/null || groupadd --gid "$USER_ID" fuseplan
  getent passwd fuseplan >/dev/null ||
    useradd --uid "$USER_ID" --gid "$USER_ID" --home-dir /var/lib/fuseplan --no-create-home --no-log-init \
      --shell /usr/sbin/nologin fuseplan
  # A volume that is mounted here for the first time takes owner and mode from these.
  install -d -o fuseplan -g fuseplan -m 700 /var/lib/fuseplan /var/cache/fuseplan
}

check_python() {
  local found
  found=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  case $found in
    "$PYTHON" | 3.12 | 3.13) ;;
    *) fail "expected Python $PYTHON to 3.13, found $found" ;;
  esac
}

# An environment with pip for the time of one step: none is left in an image.
with_pip() {
  local tools
  tools=$(mktemp -d)
  python3 -m venv "$tools"
  export PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
  "$@" "$tools/bin/python"
  rm -rf "$tools"
}

build_wheel() {
  local source=$1 folder=$2 python=$3
  "$python" -m pip install -q -c "$source/constraints.txt" hatchling
  "$python" -m pip wheel -q --no-deps --no-build-isolation -w "$folder" "$source"
}

install_fuseplan() {
  local wheel=$1 pins=$2 extras=$3 python=$4
  python3 -m venv --without-pip "$PREFIX"
  "$python" -m pip --python "$PREFIX/bin/python" install -q --only-binary :all: -c "$pins" "${wheel}[${extras}]"
  "$python" -m pip --python "$PREFIX/bin/python" check
  "$PREFIX/bin/fuseplan" --version
}

step="${1-} $#"
case $step in
  "system 1" | "wheel 3" | "fuseplan 4") ((EUID == 0)) || fail "$1: expected to run as root" ;;
esac
case $step in
  "system 1") install_system ;;
  "wheel 3") with_pip build_wheel "$2" "$3" ;;
  "fuseplan 4") with_pip install_fuseplan "$2" "$3" "$4" ;;
  *) fail "expected one of: system; wheel SOURCE FOLDER; fuseplan WHEEL PINS EXTRAS" 2 ;;
esac
