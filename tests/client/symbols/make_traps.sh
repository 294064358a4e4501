#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make_traps.sh NM JUMP OUT LIBPROTOBUF ARCHIVE...: every function of theirs as a trap under the same name.
set -eu
nm=$1 jump=$2 out=$3 protobuf=$4
shift 4
{
  "$nm" -D --defined-only "$protobuf"
  "$nm" --defined-only "$@"
} 2>/dev/null | awk -v jump="$jump" '
  BEGIN { print "  .text" }
  $2 ~ /^[TW]$/ && ($3 ~ /^(grpc_|gpr_|upb_|ares_|_ZNK?4grpc|_ZNK?9grpc_core|_ZNK?6google8protobuf|_ZNK?4absl)/ ||
                    $3 ~ /^(deflate|inflate|compress|uncompress|crc32|adler32)/) && !seen[$3]++ {
    printf "  .globl %s\n  .type %s, @function\n%s:\n", $3, $3, $3
    names[n++] = $3
  }
  END {
    print "  " jump " ferry_trap_hit"
    print "  .section .note.GNU-stack,\"\",@progbits"
    if (n < 3000) exit 1
  }' > "$out"
