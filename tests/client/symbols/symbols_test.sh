#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# symbols_test.sh LIBFERRY NM READELF
set -eu
lib=$1 nm=$2 readelf=$3
fail() {
  echo "FAIL: $1" >&2
  exit 1
}
shown=$("$nm" -D --defined-only "$lib" | awk '{print $NF}')
echo "$shown" | grep -q '^ferry_session_open' || fail "ferry_session_open is not shown"
extra=$(echo "$shown" | grep -v '^ferry_' || true)
test -z "$extra" || fail "shows more than ferry_*: $extra"
needed=$(ldd "$lib" | awk '{print $1}')
for name in grpc gpr protobuf upb; do
  if echo "$needed" | grep -q "lib$name"; then fail "needs lib$name"; fi
done
undefined=$("$nm" -D --undefined-only "$lib" | grep -E ' (grpc_|gpr_|upb_|_ZNK?4grpc|_ZNK?9grpc_core|_ZNK?6google8protobuf)' || true)
test -z "$undefined" || fail "looks outside for: $undefined"
"$readelf" -d "$lib" | grep -q 'SONAME.*\[libferry\.so\.0\]' || fail "SONAME is not libferry.so.0"
echo "shows $(echo "$shown" | wc -l) functions, all ferry_*"
