// SPDX-License-Identifier: Apache-2.0
// The type rule of every op, by lines that follow it and lines that break it.
#include "compute/program/rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compute/program/text.h"
#include "compute/program/verify.h"

namespace ferry::compute {
namespace {

// Values of many types; %i is for the trip count and indices.
constexpr char kValues[] = R"(program 1
buffer @in read 1024
buffer @out write 1024
buffer @both read_write 1024 donated
%x = constant splat=1 : f32[2,3]
%y = constant splat=2 : f32[2,3]
%z = constant splat=2 : f32[3,2]
%s = constant splat=2 : f32[]
%h = constant splat=x0000 : f16[2,3]
%e = constant splat=1 : f32[0,3]
%o = constant splat=1 : f32[1,3]
%n = constant splat=7 : i32[2,3]
%i = constant splat=1 : i32[]
%j = constant splat=1 : i64[]
%u = constant splat=1 : u64[]
%b = constant splat=true : bool[2,3]
%p = constant splat=false : bool[]
%q = constant splat=x38 : f8e4m3fn[4,64]
%v = constant splat=x02 : f4e2m1fn[4,64]
%m = constant splat=x7f : f8e8m0fnu[4,2]
%k = constant splat=x38 : f8e4m3fn[4,4]
%w = constant splat=1 : f32[4,64]
%odd = constant splat=1 : f4e2m1fn[3]
%t = constant splat=x7f : f8e8m0fnu[512]
%3 = constant splat=1 : f32[5,2,3]
%4 = constant splat=1 : f32[5,3,4]
%long = constant splat=1 : u8[8193]
%count = constant splat=1 : u32[]
%bits = constant splat=1 : u32[1]
%rows = constant splat=1 : u8[7,64]
)";

struct Line {
  const char* text;    // of one op, without its results
  const char* result;  // its types
};

const Line kGood[] = {
    {"input @in offset=8 : f32[4]", "f32[4]"},
    {"input @in strides=[0,1] : f32[4,2]", "f32[4,2]"},
    {"constant splat=2.5 : f32[1000000]", "f32[1000000]"},
    {"constant values=[1,2] : i8[2]", "i8[2]"},
    {"constant values=[] : i8[0]", "i8[0]"},
    {"constant values=x2101 : f4e2m1fn[3]", "f4e2m1fn[3]"},
    {"empty : f4e2m1fn[2,3]", "f4e2m1fn[2,3]"},
    {"iota dimension=1 : f64[2,3]", "f64[2,3]"},
    {"rng_bits %u, %u : u32[7]", "u32[7]"},
    {"add %x, %y", "f32[2,3]"},
    {"subtract %e, %e", "f32[0,3]"},
    {"multiply %n, %n", "i32[2,3]"},
    {"divide %x, %y", "f32[2,3]"},
    {"maximum %x, %y", "f32[2,3]"},
    {"minimum %x, %y", "f32[2,3]"},
    {"power %x, %y", "f32[2,3]"},
    {"remainder %n, %n", "i32[2,3]"},
    {"and %b, %b", "bool[2,3]"},
    {"or %n, %n", "i32[2,3]"},
    {"xor %b, %b", "bool[2,3]"},
    {"not %b", "bool[2,3]"},
    {"shift_left %n, %n", "i32[2,3]"},
    {"shift_right_logical %n, %n", "i32[2,3]"},
    {"shift_right_arithmetic %n, %n", "i32[2,3]"},
    {"negate %n", "i32[2,3]"},
    {"abs %h", "f16[2,3]"},
    {"sign %x", "f32[2,3]"},
    {"floor %x", "f32[2,3]"},
    {"ceil %x", "f32[2,3]"},
    {"round_nearest_even %x", "f32[2,3]"},
    {"sqrt %x", "f32[2,3]"},
    {"rsqrt %x", "f32[2,3]"},
    {"cbrt %x", "f32[2,3]"},
    {"exponential %x", "f32[2,3]"},
    {"exponential_base_two %x", "f32[2,3]"},
    {"exponential_minus_one %x", "f32[2,3]"},
    {"log %x", "f32[2,3]"},
    {"log_base_two %x", "f32[2,3]"},
    {"log_plus_one %x", "f32[2,3]"},
    {"sine %x", "f32[2,3]"},
    {"cosine %x", "f32[2,3]"},
    {"tanh %s", "f32[]"},
    {"logistic %x", "f32[2,3]"},
    {"erf %x", "f32[2,3]"},
    {"fma %x, %y, %x", "f32[2,3]"},
    {"is_finite %h", "bool[2,3]"},
    {"compare %x, %y direction=lt total_order=1", "bool[2,3]"},
    {"compare %b, %b direction=ne", "bool[2,3]"},
    {"select %b, %x, %y", "f32[2,3]"},
    {"select %p, %q, %q", "f8e4m3fn[4,64]"},
    {"clamp %s, %x, %y", "f32[2,3]"},
    {"convert %x mode=saturate : f8e5m2[2,3]", "f8e5m2[2,3]"},
    {"convert %x rounding=floor : f8e8m0fnu[2,3]", "f8e8m0fnu[2,3]"},
    {"bitcast_convert %x : u32[2,3]", "u32[2,3]"},
    {"bitcast_convert %x : u8[2,3,4]", "u8[2,3,4]"},
    {"bitcast_convert %m : u16[4]", "u16[4]"},
    {"bitcast_convert %m : f4e2m1fn[4,2,2]", "f4e2m1fn[4,2,2]"},
    {"quantize_block %w block=32 rounding=nearest_half_up : f8e4m3fn[4,64], f8e8m0fnu[4,2]",
     "f8e4m3fn[4,64] f8e8m0fnu[4,2]"},
    {"quantize_block %w, %s block=16 : f4e2m1fn[4,64], f8e4m3fn[4,4]",
     "f4e2m1fn[4,64] f8e4m3fn[4,4]"},
    {"dequantize_block %q, %m : bf16[4,64]", "bf16[4,64]"},
    {"dequantize_block %v, %k, %s block=16 : f32[4,64]", "f32[4,64]"},
    {"swizzle_scales %m", "f8e8m0fnu[512]"},
    {"unswizzle_scales %t : f8e8m0fnu[100,3]", "f8e8m0fnu[100,3]"},
    {"broadcast_in_dim %s : f32[4,0]", "f32[4,0]"},
    {"broadcast_in_dim %o dimensions=[1,0] : f32[3,7]", "f32[3,7]"},
    {"reshape %x : f32[1,6,1]", "f32[1,6,1]"},
    {"reshape %e : f32[0]", "f32[0]"},
    {"transpose %x permutation=[1,0]", "f32[3,2]"},
    {"transpose %s", "f32[]"},
    {"slice %x start=[0,0] limit=[2,3] step=[1,2]", "f32[2,2]"},
    {"slice %x start=[2,0] limit=[2,1]", "f32[0,1]"},
    {"slice %s", "f32[]"},
    {"dynamic_slice %x, %i, %i sizes=[1,3]", "f32[1,3]"},
    {"pad %x, %s low=[1,0] high=[0,1] interior=[2,0]", "f32[5,4]"},
    {"pad %e, %s interior=[2,0]", "f32[0,3]"},
    {"concatenate %x, %e, %o dimension=0", "f32[3,3]"},
    {"reverse %x dimensions=[1]", "f32[2,3]"},
    {"gather_rows %x, %n", "f32[2,3,3]"},
    {"reduce %x reduction=sum dimensions=[0] accumulate=f64", "f32[3]"},
    {"reduce %b reduction=any dimensions=[1,0]", "bool[]"},
    {"reduce %x reduction=max", "f32[2,3]"},
    {"argmax %x dimension=1", "i32[2]"},
    {"argmax %x dimension=1 : i64[2]", "i64[2]"},
    {"cumulative_sum %x dimension=0", "f32[2,3]"},
    {"checksum %x", "u64[2]"},
    {"checksum %v", "u64[2]"},
    {"delta_encode %x, %y : u32[1], u8[0,64], u32[], u64[2]", "u32[1] u8[0,64] u32[] u64[2]"},
    {"delta_encode %long, %long : u32[3], u8[9,128], u32[], u64[2]",
     "u32[3] u8[9,128] u32[] u64[2]"},
    {"dot_general %x, %z lhs_contract=[1] rhs_contract=[0]", "f32[2,2]"},
    {"dot_general %3, %4 lhs_batch=[0] rhs_batch=[0] lhs_contract=[2] rhs_contract=[1]",
     "f32[5,2,4]"},
    {"dot_general %q, %q lhs_contract=[1] rhs_contract=[1] accumulate=f32 : bf16[4,4]",
     "bf16[4,4]"},
    {"block_scaled_dot %q, %q, %m, %m : f32[4,4]", "f32[4,4]"},
    {"block_scaled_dot %q, %w, %m : bf16[4,4]", "bf16[4,4]"},
    {"block_scaled_dot %v, %v, %k, %k, %s block=16 : f32[4,4]", "f32[4,4]"},
    {"block_scaled_dot %v, %v, %k, %k, %s block=16 : bf16[4,4]", "bf16[4,4]"},
    {"block_scaled_dot %q, %q, %m, %m block=64 : f32[4,4]", "f32[4,4]"},
    {"store @out, %x offset=4", ""},
    {"store @out, %x strides=[1,2]", ""},
    {"accumulate @both, %x", ""},
    {"copy @out, @in bytes=16 offset=4 source_offset=8", ""},
    {"delta_apply @both, %bits, %rows, %count bytes=1000 offset=24", ""},
    {"send %q device=3 key=\"a\"", ""},
    {"recv device=3 key=\"\" : i16[2]", "i16[2]"},
    {"barrier %x, %n", "f32[2,3] i32[2,3]"},
    {"keep %x", ""},
    {"repeat %x, %n trips=3 (%c, %d, %f)\nyield %d, %f", "f32[2,3] i32[2,3]"},
    {"repeat trips=0 (%c)\nyield", ""},
};

struct BadLine {
  const char* text;  // as above, with the types of its results
  const char* rule;
};

const BadLine kBad[] = {
    {"empty %x : f32[2,3]", "operands"},
    {"empty : f32[2,-3]", "shape"},
    {"input @in offset=1024 : f32[4]", "bounds"},
    {"input @in offset=4611686018427387904 : f32[4]", "bounds"},
    {"input @out : f32[4]", "access"},
    {"input @in strides=[1] : f32[4,2]", "strides"},
    {"input @in strides=[1] : f4e2m1fn[4]", "strides"},
    {"input @in : f32[1,1,1,1,1,1,1,1,1]", "rank"},
    {"input @in : f32[-1]", "shape"},
    {"input @in : f32[9223372036854775807,3]", "size"},
    {"input @in : f64[0,9223372036854775807,3]", "size"},
    {"input : f32[4]", "structure"},
    {"input @in, %x : f32[4]", "operands"},
    {"input @in bytes=2 : f32[4]", "structure"},
    {"constant : f32[1]", "constant"},
    {"constant splat=1 values=[1] : f32[1]", "constant"},
    {"constant values=[1,2] : f32[3]", "constant"},
    {"constant splat=x02 : bool[3]", "constant"},
    {"constant splat=x12 : f4e2m1fn[3]", "constant"},
    {"iota : f32[2]", "attributes"},
    {"iota dimension=1 : f32[2]", "dimension"},
    {"iota dimension=0 : f8e5m2[2]", "type"},
    {"rng_bits %u, %i : u32[2]", "operands"},
    {"rng_bits %u, %u : i32[2]", "result"},
    {"add %x : f32[2,3]", "operands"},
    {"add %x, %z : f32[2,3]", "same type"},
    {"add %x, %h : f32[2,3]", "same type"},
    {"add %x, %y : f32[3,2]", "result"},
    {"add %q, %q : f8e4m3fn[4,64]", "type"},
    {"subtract %b, %b : bool[2,3]", "type"},
    {"multiply %x, %s : f32[2,3]", "same type"},
    {"divide %x, %z : f32[2,3]", "same type"},
    {"maximum %x, %z : f32[2,3]", "same type"},
    {"minimum %x, %z : f32[2,3]", "same type"},
    {"power %n, %n : i32[2,3]", "type"},
    {"remainder %b, %b : bool[2,3]", "type"},
    {"and %x, %x : f32[2,3]", "type"},
    {"or %x, %x : f32[2,3]", "type"},
    {"xor %x, %x : f32[2,3]", "type"},
    {"not %x : f32[2,3]", "type"},
    {"shift_left %x, %x : f32[2,3]", "type"},
    {"shift_right_logical %b, %b : bool[2,3]", "type"},
    {"shift_right_arithmetic %x, %x : f32[2,3]", "type"},
    {"negate %b : bool[2,3]", "type"},
    {"abs %x : f16[2,3]", "result"},
    {"sign %b : bool[2,3]", "type"},
    {"floor %n : i32[2,3]", "type"},
    {"ceil %n : i32[2,3]", "type"},
    {"round_nearest_even %n : i32[2,3]", "type"},
    {"sqrt %n : i32[2,3]", "type"},
    {"rsqrt %n : i32[2,3]", "type"},
    {"cbrt %n : i32[2,3]", "type"},
    {"exponential %n : i32[2,3]", "type"},
    {"exponential_base_two %n : i32[2,3]", "type"},
    {"exponential_minus_one %n : i32[2,3]", "type"},
    {"log %n : i32[2,3]", "type"},
    {"log_base_two %n : i32[2,3]", "type"},
    {"log_plus_one %n : i32[2,3]", "type"},
    {"sine %n : i32[2,3]", "type"},
    {"cosine %n : i32[2,3]", "type"},
    {"tanh %n : i32[2,3]", "type"},
    {"logistic %n : i32[2,3]", "type"},
    {"erf %m : f8e8m0fnu[4,2]", "type"},
    {"fma %x, %y, %s : f32[2,3]", "same type"},
    {"is_finite %n : bool[2,3]", "type"},
    {"compare %x, %y : bool[2,3]", "attributes"},
    {"compare %n, %n direction=eq total_order=1 : bool[2,3]", "attributes"},
    {"compare %x, %y direction=eq : f32[2,3]", "result"},
    {"select %x, %x, %y : f32[2,3]", "type"},
    {"select %b, %z, %z : f32[3,2]", "shape"},
    {"select %b, %x, %h : f32[2,3]", "same type"},
    {"clamp %i, %x, %s : f32[2,3]", "same type"},
    {"clamp %s, %x, %z : f32[2,3]", "same type"},
    {"convert %x : f16[3,2]", "shape"},
    {"convert %x mode=saturate : f16[2,3]", "attributes"},
    {"convert %x rounding=floor : f8e5m2[2,3]", "attributes"},
    {"bitcast_convert %x : f16[2,3]", "bits"},
    {"bitcast_convert %x : u8[2,3,2]", "bits"},
    {"bitcast_convert %b : u8[2,3]", "type"},
    {"bitcast_convert %m : bool[4,2]", "bits"},
    {"quantize_block %w block=32 : f8e4m3fn[4,64], f8e8m0fnu[4,3]", "block format"},
    {"quantize_block %w block=32 : f8e4m3fn[4,64], f8e4m3fn[4,2]", "block format"},
    {"quantize_block %w block=32 : f8e4m3fn[4,32], f8e8m0fnu[4,2]", "shape"},
    {"quantize_block %w block=16 rounding=floor : f4e2m1fn[4,64], f8e4m3fn[4,4]", "attributes"},
    {"quantize_block %w, %i block=16 : f4e2m1fn[4,64], f8e4m3fn[4,4]", "global scale"},
    {"dequantize_block %q, %m block=16 : f32[4,64]", "block format"},
    {"dequantize_block %q, %m : i32[4,64]", "result"},
    {"dequantize_block %q, %m : f32[64,4]", "result"},
    {"dequantize_block %q, %m, %x : f32[4,64]", "global scale"},
    {"swizzle_scales %t : f8e8m0fnu[512]", "shape"},
    {"swizzle_scales %x : f32[512]", "type"},
    {"unswizzle_scales %t : f8e8m0fnu[129,3]", "shape"},
    {"unswizzle_scales %t : f8e4m3fn[100,3]", "shape"},
    {"broadcast_in_dim %x : f32[2,3]", "attributes"},
    {"broadcast_in_dim %x dimensions=[0,0] : f32[2,3]", "dimensions"},
    {"broadcast_in_dim %x dimensions=[0,2] : f32[2,3]", "dimensions"},
    {"broadcast_in_dim %x dimensions=[0,1] : f32[2,4]", "shape"},
    {"reshape %x : f32[5]", "shape"},
    {"reshape %x : i32[6]", "shape"},
    {"transpose %x permutation=[0] : f32[2,3]", "attributes"},
    {"transpose %x permutation=[0,0] : f32[2,2]", "dimensions"},
    {"slice %x start=[0] limit=[2,3] : f32[2,3]", "attributes"},
    {"slice %x start=[0,0] limit=[2,4] : f32[2,4]", "bounds"},
    {"slice %x start=[2,0] limit=[1,1] : f32[0,1]", "bounds"},
    {"dynamic_slice %x, %i sizes=[1,3] : f32[1,3]", "operands"},
    {"dynamic_slice %x, %i, %j sizes=[1,3] : f32[1,3]", "same type"},
    {"dynamic_slice %x, %s, %s sizes=[1,3] : f32[1,3]", "same type"},
    {"dynamic_slice %x, %i, %i sizes=[3,3] : f32[3,3]", "bounds"},
    {"pad %x, %i : f32[2,3]", "same type"},
    {"pad %x, %s low=[1] : f32[3,3]", "attributes"},
    {"pad %x, %s interior=[4611686018427387904,4611686018427387904] : f32[2,3]", "size"},
    {"concatenate %x, %z dimension=0 : f32[5,3]", "shape"},
    {"concatenate %x, %n dimension=0 : f32[4,3]", "shape"},
    {"concatenate %x, %s dimension=0 : f32[4,3]", "shape"},
    {"concatenate %x dimension=2 : f32[2,3]", "dimensions"},
    {"reverse %x dimensions=[2] : f32[2,3]", "dimensions"},
    {"gather_rows %x, %y : f32[2,3,3]", "type"},
    {"gather_rows %s, %n : f32[2,3]", "shape"},
    {"gather_rows %e, %n : f32[2,3,3]", "shape"},
    {"reduce %x : f32[]", "attributes"},
    {"reduce %x reduction=any : bool[2,3]", "type"},
    {"reduce %b reduction=sum : bool[2,3]", "type"},
    {"reduce %x reduction=sum dimensions=[1,1] : f32[2]", "dimensions"},
    {"reduce %x reduction=sum accumulate=f16 : f32[2,3]", "accumulate"},
    {"reduce %n reduction=sum accumulate=f32 : i32[2,3]", "accumulate"},
    {"reduce %q reduction=sum : f8e4m3fn[4,64]", "type"},
    {"argmax %x dimension=2 : i32[2]", "dimensions"},
    {"argmax %x dimension=1 : f32[2]", "result"},
    {"argmax %e dimension=0 : i32[3]", "shape"},
    {"cumulative_sum %x dimension=3 : f32[2,3]", "dimensions"},
    {"cumulative_sum %b dimension=0 : bool[2,3]", "type"},
    {"checksum %b : u64[2]", "type"},
    {"checksum %x : u64[]", "result"},
    {"checksum %odd : u64[2]", "bits"},
    {"delta_encode %x, %z : u32[1], u8[1,64], u32[], u64[2]", "same type"},
    {"delta_encode %odd, %odd : u32[1], u8[1,64], u32[], u64[2]", "bits"},
    {"delta_encode %b, %b : u32[1], u8[1,64], u32[], u64[2]", "type"},
    {"delta_encode %x, %x : u32[1], u8[1,63], u32[], u64[2]", "block"},
    {"delta_encode %x, %x : u32[1], u8[1,96], u32[], u64[2]", "block"},
    {"delta_encode %x, %x : u32[1], u8[1,8192], u32[], u64[2]", "block"},
    {"delta_encode %x, %x : u32[1], i8[1,64], u32[], u64[2]", "block"},
    {"delta_encode %x, %x : u32[1], u8[64], u32[], u64[2]", "block"},
    {"delta_encode %x, %x : u32[2], u8[1,64], u32[], u64[2]", "result"},
    {"delta_encode %x, %x : u32[1], u8[1,64], i32[], u64[2]", "result"},
    {"dot_general %x, %z : f32[2,2]", "dimensions"},
    {"dot_general %x, %z lhs_contract=[1] rhs_contract=[1] : f32[2,3]", "shape"},
    {"dot_general %x, %z lhs_contract=[0,1] rhs_contract=[1,0] : f32[]", "dimensions"},
    {"dot_general %x, %z lhs_batch=[1] lhs_contract=[1] rhs_contract=[0] : f32[2]", "dimensions"},
    {"dot_general %x, %z lhs_batch=[0] lhs_contract=[1] rhs_contract=[0] : f32[2]", "dimensions"},
    {"dot_general %x, %n lhs_contract=[1] rhs_contract=[1] : f32[2,2]", "type"},
    {"dot_general %x, %z lhs_contract=[1] rhs_contract=[0] : i32[2,2]", "type"},
    {"dot_general %x, %b lhs_contract=[1] rhs_contract=[1] : f32[2,2]", "type"},
    {"dot_general %x, %z lhs_contract=[1] rhs_contract=[0] accumulate=i32 : f32[2,2]", "type"},
    {"block_scaled_dot %q, %q, %m, %m : i32[4,4]", "result"},
    {"block_scaled_dot %q, %q, %m, %m : f32[4,5]", "result"},
    {"block_scaled_dot %q, %q, %m, %k : f32[4,4]", "block format"},
    {"block_scaled_dot %q, %n, %m : f32[4,4]", "block format"},
    {"block_scaled_dot %q, %x, %m : f32[4,2]", "shape"},
    {"block_scaled_dot %q, %q, %m, %m, %i : f32[4,4]", "global scale"},
    {"block_scaled_dot %q, %q, %m, %m block=16 : f32[4,4]", "block format"},
    {"store @in, %x", "access"},
    {"store @out, %x strides=[1,1]", "strides"},
    {"store @out, %x strides=[2,1]", "strides"},
    {"store @out, %x offset=1001", "bounds"},
    {"accumulate @out, %x", "access"},
    {"accumulate @both, %q", "type"},
    {"copy @out, @in offset=1", "attributes"},
    {"copy @in, @out bytes=1", "access"},
    {"copy @out, @in bytes=2000", "bounds"},
    {"copy @both, @both bytes=16 offset=8", "overlap"},
    {"delta_apply @both, %bits, %rows, %count", "attributes"},
    {"delta_apply @both, %x, %rows, %count bytes=1000", "type"},
    {"delta_apply @both, %bits, %long, %count bytes=1000", "block"},
    {"delta_apply @both, %bits, %rows, %bits bytes=1000", "count"},
    {"delta_apply @both, %bits, %rows, %count bytes=2049", "bitmap"},
    {"delta_apply @both, %bits, %rows, %count bytes=0", "bitmap"},
    {"delta_apply @both, %bits, %rows, %count bytes=1000 offset=25", "bounds"},
    {"delta_apply @out, %bits, %rows, %count bytes=1000", "access"},
    {"send %q device=3", "attributes"},
    {"recv key=\"a\" : i16[2]", "attributes"},
    {"barrier %x : f16[2,3]", "result"},
    {"keep", "operands"},
    {"repeat %x trips=3 (%c, %d) : f32[2,3]\nyield %n", "yield"},
    {"repeat %x trips=3 (%c, %d) : f32[2,3]\nyield", "yield"},
    {"repeat %x (%c, %d) : f32[2,3]\nyield %d", "attributes"},
    {"repeat trips=2 (%c)\nsend %x device=1 key=\"k\"\nyield", "key"},
};

// The line with as many results as the op has for it.
ParsedText ParseLine(const std::string& line) {
  const std::string op = std::vector<std::string>(absl::StrSplit(line, ' '))[0];
  const std::string first_line = std::vector<std::string>(absl::StrSplit(line, '\n'))[0];
  const std::string head = first_line.substr(0, first_line.find(" ("));
  const size_t operands = std::count(head.begin(), head.end(), '%');
  std::string results;
  for (size_t i = 0; i < InfoOf(*OpOf(op)).ResultsFor(operands); ++i) {
    absl::StrAppend(&results, i == 0 ? "" : ", ", "%r", i);
  }
  return Parse(absl::StrCat(kValues, results, results.empty() ? "" : " = ", line, "\n"));
}

std::string Text(const ParsedText& parsed) {
  std::string text;
  for (const TextProblem& problem : parsed.problems) absl::StrAppend(&text, problem.text, "\n");
  return text;
}

// Of the ops below kValues, the first.
const Node& FirstOf(const Program& program) {
  return program.nodes[Parse(kValues).program.nodes.size()];
}

TEST(RulesTest, WhatFollowsARuleHasTheTypesThatFollow) {
  for (const Line& line : kGood) {
    SCOPED_TRACE(line.text);
    const ParsedText parsed = ParseLine(line.text);
    ASSERT_TRUE(parsed.problems.empty()) << Text(parsed);
    std::string types;
    for (const TensorType& type : parsed.program.ResultTypes(FirstOf(parsed.program))) {
      absl::StrAppend(&types, types.empty() ? "" : " ", ToString(type));
    }
    EXPECT_EQ(types, line.result);
    const auto problems = Verify(parsed.program);
    EXPECT_TRUE(problems.empty()) << ToString(parsed.program, problems[0]);
  }
}

TEST(RulesTest, WhatBreaksARuleIsToldByIt) {
  for (const BadLine& line : kBad) {
    SCOPED_TRACE(line.text);
    const ParsedText parsed = ParseLine(line.text);
    if (!parsed.problems
             .empty()) {  // of a type that is written there: what uses it is not looked at
      EXPECT_TRUE(absl::StrContains(Text(parsed), absl::StrCat(": ", line.rule, ": ")))
          << Text(parsed);
      continue;
    }
    const auto problems = Verify(parsed.program);
    ASSERT_FALSE(problems.empty());
    EXPECT_EQ(problems[0].rule, line.rule) << ToString(parsed.program, problems[0]);
    EXPECT_GE(problems[0].op, static_cast<int64_t>(Parse(kValues).program.nodes.size()));
  }
}

TEST(RulesTest, EveryOpIsInBothTables) {
  std::set<std::string> good, bad;
  for (const Line& line : kGood)
    good.insert(std::string(
        absl::string_view(line.text).substr(0, absl::string_view(line.text).find(' '))));
  for (const BadLine& line : kBad)
    bad.insert(std::string(
        absl::string_view(line.text).substr(0, absl::string_view(line.text).find(' '))));
  for (size_t i = 0; i < kOps; ++i) {
    const std::string name(InfoOf(static_cast<Op>(i)).name);
    EXPECT_EQ(good.count(name), 1u) << name;
    EXPECT_EQ(bad.count(name), 1u) << name;
    EXPECT_EQ(OpOf(name), static_cast<Op>(i));
  }
}

}  // namespace
}  // namespace ferry::compute
