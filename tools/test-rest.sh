# Sourced by tools/test --all: what only that tier runs, beside the tests of cargo and Python.
# shellcheck shell=bash disable=SC2154
if cargo clippy --version >/dev/null 2>&1; then
  check "lints" cargo clippy --workspace --all-targets --quiet -- -D warnings
else
  skip "lints: this toolchain has no clippy"
fi

# The command has the name of the library, and no documentation but its help.
check "documentation" env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --exclude halocline-cli --no-deps --quiet

# The model checker replaces atomics and locks in the whole crate, so this build stands apart.
model() {
  RUSTFLAGS="--cfg loom" cargo test -p halocline-comm -p halocline-capi --release --lib --target-dir "$target/loom" model
}
tests "model check" model

miri() {
  PROPTEST_CASES=4 MIRIFLAGS=-Zmiri-disable-isolation cargo "$@" test -p halocline-device --test it copy::
}
if cargo miri --version >/dev/null 2>&1; then
  tests "Miri" miri miri
elif cargo +nightly miri --version >/dev/null 2>&1; then
  tests "Miri" miri +nightly miri
else
  skip "Miri: no toolchain here has it (rustup +nightly component add miri rust-src)"
fi

# Programs of C and C++, with the library that the build of the tests has made.
need valgrind valgrind
check "C and C++ under sanitizers and valgrind" tools/capi-memory "$target/debug/libhalocline_capi.a"

# With what the build of the tests has made.
nextest "limits of large patterns" --run-ignored only -E 'binary(scale)'
ranks=$target/debug/halocline-conformance
check "kill storm, shm" "$ranks" storm shm halos 50
check "kill storm, mpi" "$ranks" storm mpi halos 50
check "kill storm of packets, shm" "$ranks" storm shm packets 50
check "kill storm of packets, mpi" "$ranks" storm mpi packets 30
check "a payload of over 2 GiB, shm" "$target/debug/halocline" launch -n 2 -- "$ranks" large
check "a payload of over 2 GiB, MPI" env HALOCLINE_NODE_AWARE=off "${open_mpi[@]}" -n 2 "$ranks" large

# The command as a user runs it. Every run compares itself with one rank, bit by bit.
check "release build" cargo build --release
halocline=$target/release/halocline
ocean() {
  "$halocline" run ocean --ranks "$1" --transport "$2" --steps 20 --no-plot --json | tee "$log" | tail -n 1
  [ "${PIPESTATUS[0]}" = 0 ] && tail -n 1 "$log" | grep -Eq '"max_abs_diff":0(\.0)?[,}]'
}
check "halocline info" "$halocline" info
check "fuzzing" tools/fuzz --seconds 4
for transport in thread shm; do
  for ranks in 1 2 3 5 8; do
    check "ocean on $ranks ranks, $transport" ocean "$ranks" "$transport"
  done
done

heat() { # heat RANKS LAUNCH...: heat in a box of odd sizes on that many ranks
  local ranks=$1
  shift
  "$@" "$halocline" run heat --grid 37x29x31 --periodic x,z --halo 2 --fields 2 --steps 21 --rounds 1 --json | tee "$log" | tail -n 1
  [ "${PIPESTATUS[0]}" = 0 ] && tail -n 1 "$log" | grep -q '"max_abs_diff":0.0,.*"ranks":'"$ranks",
}
for ranks in 1 2 3 5; do
  check "heat on $ranks ranks, shm" heat $ranks "$halocline" launch -n $ranks --no-prefix --
done
check "heat on 4 ranks, thread" "$halocline" run heat --ranks 4 --transport thread --grid 37x29x31 --halo 3 --steps 20 --rounds 1
check "explain a rank of a million" "$halocline" explain --ranks 1000000 --rank 123456 --grid 100000x100000x128

# The same binary under every MPI launcher, with every library that goes with it.
ocean_mpi() { # ocean_mpi NODE_AWARE RANKS LAUNCHER...
  local node_aware=$1 ranks=$2
  shift 2
  "$@" -n "$ranks" "$halocline" run ocean --steps 20 --no-plot --json --node-aware "$node_aware" | tee "$log" | tail -n 1
  [ "${PIPESTATUS[0]}" = 0 ] && tail -n 1 "$log" | grep -E '"max_abs_diff":0(\.0)?[,}]' | grep -F '"transport":"mpi"' | grep -Eq '"ranks":'"$ranks"'[,}]'
}
for ranks in 1 3 8; do
  for node_aware in on off; do
    check "ocean on $ranks ranks, Open MPI, node-aware $node_aware" ocean_mpi $node_aware $ranks "${open_mpi[@]}"
    if [ -n "${HALOCLINE_TEST_MPIEXEC:-}" ]; then
      for library in libmpi.so.12 libmpi_abi.so.1; do
        check "ocean on $ranks ranks, MPICH ($library), node-aware $node_aware" ocean_mpi $node_aware $ranks \
          env HALOCLINE_MPI="$(dirname "$HALOCLINE_TEST_MPIEXEC")/../lib/$library" "$HALOCLINE_TEST_MPIEXEC"
      done
    fi
  done
done

for node_aware in on off; do
  check "heat on 4 ranks, Open MPI, node-aware $node_aware" heat 4 \
    env HALOCLINE_NODE_AWARE=$node_aware "${open_mpi[@]}" -n 4
done

