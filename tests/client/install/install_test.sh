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

cmake --install "$build" --prefix "$work/made" > "$work/install.log"
mv "$work/made" "$work/prefix"  # an installed tree may be moved
(cd "$work/prefix" && find . -type f -o -type l | sort) > "$work/installed"
cat "$work/installed"
# What a user needs: the programs that tools/demo builds, which need not have built any other, the library, its headers, Ferry's UCX, and
# compiled kernels where they were built.
if grep -vE "^\./($bindir/(ferryd|ferryctl)|libexec/ferry/ferry-compile|$libdir/libferry\.so.*|$libdir/(cmake/ferry|pkgconfig)/.*|include/ferry/.*|lib/ferry/ucx/.*|share/ferry/kernels/.*)\$" \
  "$work/installed"; then
  echo "FAIL: a user does not need these" >&2
  exit 1
fi
for program in ferryd ferryctl; do test -x "$work/prefix/$bindir/$program"; done
test "$(readlink "$work/prefix/$libdir/libferry.so")" = libferry.so.0

# Nothing says where libferry is but ferryctl itself.
env -u LD_LIBRARY_PATH "$work/prefix/$bindir/ferryctl" --version

mkdir "$work/client"
mkfifo "$work/stdin" "$work/stdout"
"$fake_daemon" "$work/client" < "$work/stdin" > "$work/stdout" &
exec 3> "$work/stdin"
read -r ready < "$work/stdout"
test "$ready" = ready

unset LD_LIBRARY_PATH
run() {
  out=$(FERRY_CLIENT_DIR=$work/client "$1")
  echo "$2: $out"
  test "$out" = 'host1 got "hello from host0"'
}

# The lines that the files themselves say, as they are written, outside the tree.
cp -r "$examples" "$work/examples"
said() {  # FILE BEGINNING: the line in a comment of the file that begins so
  sed -nE "s@^(//|#)   ($2.*)@\2@p" "$work/examples/$1" | grep .
}
line=$(said CMakeLists.txt cmake | sed "s@/where/ferry/is@$work/prefix@")
(cd "$work" && CXX=$cxx && export CXX && eval "$line" > build.log) || { cat "$work/build.log"; exit 1; }
run "$work/build-examples/hello_transfer" find_package

export PKG_CONFIG_PATH="$work/prefix/$libdir/pkgconfig"
line=$(said hello_transfer.cc 'c\+\+')
(cd "$work/examples" && eval "$line")
run "$work/examples/hello_transfer" pkg-config

# shellcheck disable=SC2046
"$cxx" -std=c++17 -Wall -Wextra -Werror -fno-exceptions -fno-rtti "$work/examples/hello_transfer.cc" \
  $(pkg-config --cflags --libs ferry) -o "$work/hello_pkg_config"
run "$work/hello_pkg_config" "pkg-config, without exceptions"

# shellcheck disable=SC2046
"$cxx" -std=c++17 -Wall -Wextra -Werror -pedantic -fno-exceptions -fno-rtti -fsyntax-only \
  "$work"/examples/*.cc $(pkg-config --cflags ferry)

# Those for CUDA need none of its own.
echo '#include <ferry/cuda.hpp>
#include <ferry/dlpack.hpp>
int main() { return ferry::cuda::Counts().connections == 0; }' > "$work/cuda.cc"
# shellcheck disable=SC2046
"$cxx" -std=c++17 -Wall -Wextra -Werror -pedantic -fno-exceptions -fno-rtti "$work/cuda.cc" \
  $(pkg-config --cflags --libs ferry) -o "$work/cuda"
"$work/cuda"

# The headers are C.
echo '#include <ferry/ferry.h>
#include <ferry/ferry_cuda.h>
int main(void) { return ferry_version()[0] == 0; }' > "$work/c.c"
# shellcheck disable=SC2046
cc -std=c99 -Wall -Wextra -Werror -pedantic "$work/c.c" $(pkg-config --cflags --libs ferry) -o "$work/c"
"$work/c"

# The programs of examples/ in C are C99, and C++20 too (g++ warns of fields that are not named).
for program in send receive steps; do
  for compiler in "gcc -std=c99" "clang -std=c99" "g++ -x c++ -std=c++20 -Wno-missing-field-initializers" \
    "clang++ -x c++ -std=c++20"; do
    # shellcheck disable=SC2046,SC2086
    $compiler -Wall -Wextra -Werror -pedantic "$work/examples/$program.c" $(pkg-config --cflags --libs ferry) \
      -o "$work/$program"
  done
done
