# Sourced by tools/test and tools/test-python: steps that are counted, and what is installed for them.
# shellcheck shell=bash
set -uo pipefail
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed=0
skipped=()
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")

# What every build of the tests builds, so that they share it: other selections give the crates other features.
# shellcheck disable=SC2034
built=(--workspace --lib --bins --tests --examples)

# Open MPI refuses to run as root otherwise, as containers do.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# A job of Open MPI that ends removes the folder of all jobs if it is empty, also when another job is about to make its own in it. A folder
# within keeps it.
mkdir -p "${TMPDIR:-/tmp}/ompi.$(uname -n).$(id -u)/kept"
# There are fewer cores than ranks where tests run: ranks that wait give way to each other, under Open MPI and MPICH.
open_mpi=(mpirun --oversubscribe --mca mpi_yield_when_idle 1)
export MPIR_CVAR_ENABLE_HEAVY_YIELD=1

skip() { # skip REASON
  echo "== SKIPPED: $1"
  skipped+=("$1")
}

begin() { # begin NAME: says which step begins, and when
  echo "== $1 ($((SECONDS / 60)) min $((SECONDS % 60)) s)"
}

# check NAME COMMAND...: one check, passed or failed by its exit code.
check() {
  local name=$1
  shift
  begin "$name"
  if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $name"; fi
}

# count NAME CODE PASSED FAILED: counts a run of many tests. A run without a test has failed, and so has one that ends badly without
# naming a failed test.
count() {
  local name=$1 code=$2 ok=$3 bad=$4
  if [ "$ok" = 0 ] && [ "$bad" = 0 ] || { [ "$code" != 0 ] && [ "$bad" = 0 ]; }; then bad=1; fi
  passed=$((passed + ok)) failed=$((failed + bad))
  if [ "$bad" != 0 ]; then echo "FAILED: $name"; fi
}

# tests NAME COMMAND...: a run of `cargo test`, or of a script that ends as it does, counted by what it reports.
tests() {
  local name=$1 code ok bad line
  shift
  begin "$name"
  "$@" 2>&1 | tee "$log"
  code=${PIPESTATUS[0]}
  read -r ok bad < <(awk '/^test result:/ { for (i = 2; i <= NF; i++) {
    if ($i == "passed;") p += $(i - 1); if ($i == "failed;") f += $(i - 1) } } END { print p + 0, f + 0 }' "$log")
  count "$name" "$code" "$ok" "$bad"
  while read -r line; do skipped+=("$name: $line"); done < <(sed -n 's/^== SKIPPED: //p' "$log")
}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

add_package() { # add_package PACKAGE FOR
  echo "== installing $1, for $2"
  as_root apt-get update -qq && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y "$1"
}

# need COMMAND PACKAGE: installs the package if the command is missing.
need() {
  command -v "$1" >/dev/null || add_package "$2" "$1" || { echo "cannot install $2"; exit 1; }
}

# can_venv PYTHON: installs what makes virtual environments.
can_venv() { "$1" -c 'import ensurepip, venv' 2>/dev/null || add_package python3-venv "virtual environments"; }

# venv FOLDER [PYTHON]: a virtual environment.
venv() {
  [ -x "$1/bin/python" ] && return
  can_venv "${2:-python3}"
  "${2:-python3}" -m venv "$1"
}

# summary FORMAT: what was skipped, then the closing line; fails if anything failed.
summary() {
  local step
  for step in "${skipped[@]}"; do echo "skipped: $step"; done
  # shellcheck disable=SC2059
  printf "$1\n" "$passed" "$failed"
  [ "$failed" = 0 ]
}

# end: the closing line of a script that others call, and its exit.
end() {
  local verdict=ok
  if [ "$failed" != 0 ]; then verdict=FAILED; fi
  summary "test result: $verdict. %d passed; %d failed;"
  exit
}
