#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# symbols_test.sh LIBFERRY NM READELF SANITIZED: yes or no; if yes it needs the C++ library, Abseil and the sanitizers' library
set -eu
lib=$1 nm=$2 readelf=$3 sanitized=$4
fail() {
  echo "FAIL: $1" >&2
  exit 1
}
shown=$("$nm" -D --defined-only "$lib" | awk '{print $NF}')
echo "$shown" | grep -q '^ferry_session_open' || fail "ferry_session_open is not shown"
extra=$(echo "$shown" | grep -v '^ferry_' || true)
test -z "$extra" || fail "shows more than ferry_*: $extra"
# What every host has, whatever its distribution; readelf's last field is "[libc.so.6]".
needed=$("$readelf" -d "$lib" | awk '$2 == "(NEEDED)" { print $NF }' | tr -d '[]')
for name in $needed; do
  case $name in
    libc.so.6 | libm.so.6 | libgcc_s.so.1 | ld-linux-*.so.*) ;;
    *) test "$sanitized" = yes || fail "needs $name" ;;
  esac
done
# Ubuntu 22.04 has GLIBC 2.35, Red Hat 9 has 2.34; what libgcc_s gives is older than both.
if [ "$sanitized" = no ]; then
  newer=$("$nm" -D --undefined-only "$lib" | grep -o '@.*' | sort -uV | awk -F '[_.]' '
    $1 == "@GLIBC" && ($2 > 2 || $3 > 34) || $1 == "@GCC" && ($2 > 4 || $3 > 3) || $1 !~ /^@(GLIBC|GCC)$/')
  test -z "$newer" || fail "needs newer versions of the C library than 2.34: $newer"
fi
undefined=$("$nm" -D --undefined-only "$lib" | awk '{ print $NF }' \
  | grep -E '^(grpc_|gpr_|upb_|ares_|_Z(TH|TW|GV|TV|TI)?N?K?(4grpc|9grpc_core|6google8protobuf|4absl|St|S[abdios]))' || true)
test -z "$undefined" || test "$sanitized" = yes || fail "looks outside for: $undefined"
"$readelf" -d "$lib" | grep -q 'SONAME.*\[libferry\.so\.0\]' || fail "SONAME is not libferry.so.0"
echo "shows $(echo "$shown" | wc -l) functions, all ferry_*"
