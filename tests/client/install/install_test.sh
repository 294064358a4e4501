#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install_test.sh BUILD EXAMPLES FAKE_DAEMON CXX LIBDIR BINDIR
set -eu
build=$1 examples=$2 fake_daemon=$3 cxx=$4 libdir=$5 bindir=$6
work=$(mktemp -d)
cleanup() {
  exec 3>&- || true
  wait || true
  rm -rf "$work"
}
trap cleanup EXIT

for component in client tools; do
  cmake --install "$build" --component "$component" --prefix "$work/made" > "$work/install.log"
done
mv "$work/made" "$work/prefix"  # an installed tree may be moved
(cd "$work/prefix" && find . -type f -o -type l | sort)
test "$(readlink "$work/prefix/$libdir/libferry.so")" = libferry.so.0

# Nothing says where libferry is but ferryctl itself.
env -u LD_LIBRARY_PATH "$work/prefix/$bindir/ferryctl" --version

mkdir "$work/client"
mkfifo "$work/stdin" "$work/stdout"
"$fake_daemon" "$work/client" < "$work/stdin" > "$work/stdout" &
exec 3> "$work/stdin"
read -r ready < "$work/stdout"
test "$ready" = ready

run() {
  out=$(FERRY_CLIENT_DIR=$work/client LD_LIBRARY_PATH=$work/prefix/$libdir "$1")
  echo "$2: $out"
  test "$out" = 'host1 got "hello from host0"'
}

cp -r "$examples" "$work/examples"  # outside the tree
cmake -S "$work/examples" -B "$work/examples-build" -DCMAKE_PREFIX_PATH="$work/prefix" \
  -DCMAKE_CXX_COMPILER="$cxx" > "$work/configure.log"
cmake --build "$work/examples-build" > "$work/build.log"
run "$work/examples-build/hello_transfer" find_package

export PKG_CONFIG_PATH="$work/prefix/$libdir/pkgconfig"
# shellcheck disable=SC2046
"$cxx" -std=c++17 -Wall -Wextra -Werror -fno-exceptions -fno-rtti "$work/examples/hello_transfer.cc" \
  $(pkg-config --cflags --libs ferry) -o "$work/hello_pkg_config"
run "$work/hello_pkg_config" pkg-config

# shellcheck disable=SC2046
"$cxx" -std=c++17 -Wall -Wextra -Werror -pedantic -fno-exceptions -fno-rtti -fsyntax-only \
  "$work/examples/first_program.cc" $(pkg-config --cflags ferry)

# Those for CUDA need none of its own.
echo '#include <ferry/cuda.hpp>
#include <ferry/dlpack.hpp>
int main() { return ferry::cuda::Counts().connections == 0; }' > "$work/cuda.cc"
# shellcheck disable=SC2046
"$cxx" -std=c++17 -Wall -Wextra -Werror -pedantic -fno-exceptions -fno-rtti "$work/cuda.cc" \
  $(pkg-config --cflags --libs ferry) -o "$work/cuda"
LD_LIBRARY_PATH=$work/prefix/$libdir "$work/cuda"

# The headers are C.
echo '#include <ferry/ferry.h>
#include <ferry/ferry_cuda.h>
int main(void) { return ferry_version()[0] == 0; }' > "$work/c.c"
# shellcheck disable=SC2046
cc -std=c99 -Wall -Wextra -Werror -pedantic "$work/c.c" $(pkg-config --cflags --libs ferry) -o "$work/c"
LD_LIBRARY_PATH=$work/prefix/$libdir "$work/c"
