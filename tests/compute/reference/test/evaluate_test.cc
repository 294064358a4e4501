// SPDX-License-Identifier: Apache-2.0
// Every op by hand, as a line of a program and what it comes to.
#include "tests/compute/reference/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compute/program/text.h"
#include "compute/program/verify.h"

namespace ferry::compute::testing {
namespace {

struct Case {
  std::string text;      // defines %r
  std::string expected;  // of a constant of its type
};

// %NAME is a constant of these elements.
std::string C(const std::string& name, const std::string& type, const std::string& elements) {
  return absl::StrCat("%", name, " = constant ", elements, " : ", type, "\n");
}
std::string V(const std::string& name, const std::string& type, const std::string& elements) {
  return C(name, type, absl::StrCat("values=[", elements, "]"));
}
// An op of vectors of one type.
Case Of(const std::string& op, const std::string& type, std::vector<std::string> operands,
        const std::string& result) {
  std::string text;
  std::string names;
  for (size_t i = 0; i < operands.size(); ++i) {
    const std::string name(1, static_cast<char>('a' + i));
    const bool bytes = operands[i][0] == 'x';
    absl::StrAppend(&text,
                    bytes ? C(name, type, "values=" + operands[i]) : V(name, type, operands[i]));
    absl::StrAppend(&names, i == 0 ? "%" : ", %", name);
  }
  return {absl::StrCat(text, "%r = ", op, " ", names),
          result[0] == 'x' ? "values=" + result : absl::StrCat("values=[", result, "]")};
}

Program Parsed(const std::string& text) {
  ParsedText parsed = Parse(text);
  for (const TextProblem& problem : parsed.problems) {
    ADD_FAILURE() << text << "line " << problem.line << ": " << problem.text;
  }
  for (const Problem& problem : Verify(parsed.program)) {
    ADD_FAILURE() << text << ToString(parsed.program, problem);
  }
  return std::move(parsed.program);
}

// What @in begins with.
Bytes Counted(uint64_t count) {
  Bytes bytes;
  for (uint64_t i = 0; i < count; ++i) bytes.push_back(static_cast<std::byte>(i));
  return bytes;
}

using Cases = std::vector<Case>;

constexpr char kHead[] = "program 1\nbuffer @in read 64\nbuffer @out read_write 4096\n";

void Check(const Cases& cases) {
  for (const Case& test : cases) {
    SCOPED_TRACE(test.text);
    const Program program = Parsed(absl::StrCat(kHead, test.text, "\nstore @out, %r\n"));
    if (::testing::Test::HasFailure()) return;
    const TensorType type = program.types[program.nodes.back().operands[0]];
    const Program expected = Parsed(
        absl::StrCat("program 1\n%e = constant ", test.expected, " : ", ToString(type), "\n"));
    if (::testing::Test::HasFailure()) return;
    std::vector<Memory> buffers = {Memory(Counted(64)), Memory(Bytes(4096))};
    Evaluate(program, buffers);
    const Tensor tensor = EvaluateOp(expected.numerics, expected.nodes[0], {type}, {})[0];
    Bytes got = buffers[1].bytes();
    got.resize(BytesOf(type.dtype, tensor.elements.size()));
    EXPECT_EQ(DifferenceOf(tensor, got), "");
  }
}

Cases IntegersCases() {
  Cases cases;
  const auto add = [&](Case test) { cases.push_back(std::move(test)); };
  add(Of("add", "i8[2]", {"127,-3", "1,100"}, "-128,97"));
  add(Of("subtract", "u8[2]", {"0,200", "1,100"}, "255,100"));
  add(Of("multiply", "i16[2]", {"300,-7", "300,3"}, "24464,-21"));
  add(Of("divide", "i32[4]", {"-7,7,5,-2147483648", "2,-2,0,-1"}, "-3,-3,-1,-2147483648"));
  add(Of("divide", "u8[2]", {"200,9", "3,0"}, "66,255"));
  add(Of("remainder", "i32[4]", {"-7,7,5,-2147483648", "2,-2,0,-1"}, "-1,1,5,0"));
  add(Of("maximum", "i8[2]", {"-1,5", "1,4"}, "1,5"));
  add(Of("maximum", "u64[1]", {"18446744073709551615", "1"}, "18446744073709551615"));
  add(Of("minimum", "i64[2]", {"-1,5", "1,4"}, "-1,4"));
  add(Of("and", "u8[1]", {"12", "10"}, "8"));
  add(Of("or", "u8[1]", {"12", "10"}, "14"));
  add(Of("xor", "bool[2]", {"true,true", "true,false"}, "false,true"));
  add(Of("not", "u8[1]", {"12"}, "243"));
  add(Of("not", "bool[2]", {"true,false"}, "false,true"));
  add(Of("shift_left", "i8[4]", {"3,1,1,1", "4,7,8,-1"}, "48,-128,0,0"));
  add(Of("shift_right_logical", "i8[3]", {"-8,-8,-8", "1,8,-1"}, "124,0,0"));
  add(Of("shift_right_arithmetic", "i8[3]", {"-8,-8,8", "1,8,9"}, "-4,-1,0"));
  add(Of("negate", "i8[2]", {"-128,3"}, "-128,-3"));
  add(Of("abs", "i8[2]", {"-128,-3"}, "-128,3"));
  add(Of("sign", "i8[3]", {"-9,0,9"}, "-1,0,1"));
  return cases;
}

Cases FloatsCases() {
  Cases cases;
  const auto add = [&](Case test) { cases.push_back(std::move(test)); };
  add(Of("add", "f32[2]", {"16777216,0.5", "1,0.25"}, "16777216,0.75"));
  add(Of("subtract", "f64[1]", {"1", "0.25"}, "0.75"));
  add(Of("multiply", "f32[1]", {"1.5", "-2"}, "-3"));
  add(Of("divide", "f32[2]", {"1,-1", "3,4"}, "0.33333334,-0.25"));
  // f16: 1 + 2^-11 is a tie and goes to 1, a little more to the next.
  add(Of("add", "f16[1]", {"x003c", "x0010"}, "x003c"));
  add(Of("add", "f16[1]", {"x003c", "x0110"}, "x013c"));
  // bf16: 1 + 2^-8 is a tie, however little is added to it in one rounding.
  add({C("a", "bf16[1]", "values=x803f") + C("b", "bf16[1]", "values=x803b") +
           "%r = fma %a, %b, %a",
       "values=x803f"});
  // 1 * 2^-8 + 1 is the tie; 2^-8 * (1 + 2^-7) + 1 is above it.
  add({C("a", "bf16[1]", "values=x803f") + C("b", "bf16[1]", "values=x803b") +
           C("c", "bf16[1]", "values=x813f") + "%r = fma %b, %c, %a",
       "values=x813f"});
  add(Of("fma", "f32[1]", {"1.000244140625", "1.000244140625", "-1.00048828125"},
         "5.9604644775390625e-08"));
  add(Of("maximum", "f32[2]", {"1,-0", "2,0"}, "2,0"));
  add(Of("minimum", "f32[2]", {"0,3", "-0,4"}, "-0,3"));
  add(Of("maximum", "f16[2]", {"x003c01fe", "x01fe003c"}, "xff7fff7f"));  // NaN
  add(Of("remainder", "f32[2]", {"-7,7.5", "2,2"}, "-1,1.5"));
  add(Of("negate", "f32[2]", {"1,0"}, "-1,-0"));
  add(Of("abs", "f64[2]", {"-1,-0"}, "1,0"));
  add(Of("sign", "f32[3]", {"-3,-0,7"}, "-1,-0,1"));
  add(Of("floor", "f32[2]", {"-0.5,1.5"}, "-1,1"));
  add(Of("ceil", "f32[2]", {"-0.5,1.5"}, "-0,2"));
  add(Of("round_nearest_even", "f32[3]", {"0.5,1.5,-2.5"}, "0,2,-2"));
  add(Of("sqrt", "f32[2]", {"2,16"}, "1.4142135,4"));
  return cases;
}

Cases FunctionsCases() {
  Cases cases;
  const auto add = [&](Case test) { cases.push_back(std::move(test)); };
  const auto f64 = [&](const std::string& op, const std::string& of, const std::string& is) {
    add(Of(op, "f64[1]", {of}, is));
  };
  add(Of("power", "f64[2]", {"2,10", "0.5,-2"}, "1.4142135623730951,0.01"));
  f64("rsqrt", "4", "0.5");
  f64("cbrt", "-27", "-3");
  f64("exponential", "1", "2.718281828459045");
  f64("exponential_base_two", "10", "1024");
  f64("exponential_minus_one", "1e-10", "1.00000000005e-10");
  f64("log", "10", "2.302585092994046");
  f64("log_base_two", "8", "3");
  f64("log_plus_one", "1", "0.6931471805599453");
  f64("sine", "1", "0.8414709848078965");
  f64("cosine", "1", "0.5403023058681398");
  f64("tanh", "1", "0.7615941559557649");
  f64("logistic", "1", "0.7310585786300049");
  f64("erf", "1", "0.8427007929497149");
  add(Of("tanh", "f32[1]", {"1"}, "0.7615942"));
  return cases;
}

Cases ComparesAndSelectsCases() {
  Cases cases;
  const auto add = [&](Case test) { cases.push_back(std::move(test)); };
  const auto compare = [&](const std::string& direction, const std::string& is) {
    add({V("a", "f32[3]", "1,2,3") + V("b", "f32[3]", "2,2,2") +
             "%r = compare %a, %b direction=" + direction,
         "values=[" + is + "]"});
  };
  compare("eq", "false,true,false");
  compare("ne", "true,false,true");
  compare("lt", "true,false,false");
  compare("le", "true,true,false");
  compare("gt", "false,false,true");
  compare("ge", "false,true,true");
  add({V("a", "f32[1]", "-0") + V("b", "f32[1]", "0") +
           "%r = compare %a, %b direction=lt total_order=1",
       "values=[true]"});
  add({V("a", "u8[1]", "200") + V("b", "u8[1]", "100") + "%r = compare %a, %b direction=gt",
       "values=[true]"});
  add({C("a", "f16[3]", "values=x007c003c007e") + "%r = is_finite %a",
       "values=[false,true,false]"});
  add({V("p", "bool[2]", "true,false") + V("a", "i8[2]", "1,2") + V("b", "i8[2]", "3,4") +
           "%r = select %p, %a, %b",
       "values=[1,4]"});
  add({C("p", "bool[]", "splat=false") + V("a", "i8[2]", "1,2") + V("b", "i8[2]", "3,4") +
           "%r = select %p, %a, %b",
       "values=[3,4]"});
  add({C("l", "f32[]", "splat=0") + V("x", "f32[3]", "-1,0.5,9") + V("h", "f32[3]", "1,1,2") +
           "%r = clamp %l, %x, %h",
       "values=[0,0.5,2]"});
  return cases;
}

Cases TypesCases() {
  Cases cases;
  const auto add = [&](Case test) { cases.push_back(std::move(test)); };
  add({V("a", "f32[4]", "1.7,-1.7,300,-300") + "%r = convert %a : i8[4]",
       "values=[1,-1,127,-128]"});
  add({V("a", "i32[3]", "300,-1,0") + "%r = convert %a : u8[3]", "values=[44,255,0]"});
  add({V("a", "f32[3]", "464,1000,-0.0") + "%r = convert %a mode=saturate : f8e4m3fn[3]",
       "values=x7e7e80"});
  add({V("a", "f32[2]", "464,1000") + "%r = convert %a : f8e4m3fn[2]", "values=x7e7f"});
  add({V("a", "f32[3]", "0.5,6,-1") + "%r = convert %a : f4e2m1fn[3]", "values=x710a"});
  add({V("a", "f32[2]", "1.2,1.7") + "%r = convert %a rounding=floor : f8e8m0fnu[2]",
       "values=x7f7f"});
  add({V("a", "f32[2]", "0,-2.5") + "%r = convert %a : bool[2]", "values=[false,true]"});
  add({V("a", "bool[2]", "false,true") + "%r = convert %a : f32[2]", "values=[0,1]"});
  add({V("a", "u32[1]", "67305985") + "%r = bitcast_convert %a : u8[1,4]", "values=[1,2,3,4]"});
  add({V("a", "u8[1]", "113") + "%r = bitcast_convert %a : f4e2m1fn[1,2]", "values=x71"});
  add({V("a", "f32[1]", "1") + "%r = bitcast_convert %a : i32[1]", "values=[1065353216]"});
  return cases;
}

Cases BlockFormatsCases() {
  Cases cases;
  const auto add = [&](Case test) { cases.push_back(std::move(test)); };
  // The largest, 7, over f8e4m3fn's 448 is 2^-6: the elements are 64 times as large.
  const std::string quantize = V("a", "f32[1,3]", "7,-1,0") +
                               "%r0, %r1 = quantize_block %a block=2 : f8e4m3fn[1,3], "
                               "f8e8m0fnu[1,2]\n";
  add({quantize + "%r = reshape %r0 : f8e4m3fn[3]", "values=x7ee800"});
  add({quantize + "%r = reshape %r1 : f8e8m0fnu[2]", "values=x7900"});
  add({C("q", "f4e2m1fn[1,4]", "values=x7107") + C("s", "f8e8m0fnu[1,2]", "values=x8080") +
           "%r = dequantize_block %q, %s block=2 : f32[1,4]",
       "values=[1,12,12,0]"});
  // NVFP4: (12 / 2) / 6 = 1, so 6 and 3 of 12 and 6; the scale is f8e4m3fn's 1.
  const std::string nv = V("a", "f32[1,2]", "12,-6") + C("g", "f32[]", "splat=2") +
                         "%q, %s = quantize_block %a, %g block=2 : f4e2m1fn[1,2], f8e4m3fn[1,1]\n";
  add({nv + "%r = convert %q : f32[1,2]", "values=[6,-3]"});
  add({nv + "%r = convert %s : f32[1,1]", "values=[1]"});
  add({nv + "%r = dequantize_block %q, %s, %g block=2 : f32[1,2]", "values=[12,-6]"});
  // Row 33, column 1 is in tile row 1 of 32 at row 1: 16 + 4 + 1.
  const std::string swizzle = C("z", "f8e8m0fnu[33,1]", "splat=x00") +
                              C("o", "f8e8m0fnu[34,1]", "splat=x7f") +
                              "%a = concatenate %z, %o dimension=0\n%t = swizzle_scales %a\n";
  add({swizzle + "%r = slice %t start=[18] limit=[24]", "values=x00007f000000"});
  add({swizzle + "%u = unswizzle_scales %t : f8e8m0fnu[67,1]\n"
                 "%r = slice %u start=[32,0] limit=[35,1]",
       "values=x007f7f"});
  return cases;
}

Cases MovesCases() {
  Cases cases;
  const auto add = [&](Case test) { cases.push_back(std::move(test)); };
  const std::string a = V("a", "i8[2,3]", "1,2,3,4,5,6");
  add({V("v", "i8[2]", "1,2") + "%r = broadcast_in_dim %v dimensions=[0] : i8[2,3]",
       "values=[1,1,1,2,2,2]"});
  add({V("v", "i8[1,2]", "1,2") + "%r = broadcast_in_dim %v dimensions=[0,1] : i8[2,2]",
       "values=[1,2,1,2]"});
  add({a + "%r = reshape %a : i8[3,2]", "values=[1,2,3,4,5,6]"});
  add({a + "%r = transpose %a permutation=[1,0]", "values=[1,4,2,5,3,6]"});
  add({V("b", "i8[1,2,3]", "1,2,3,4,5,6") + "%r = transpose %b permutation=[2,0,1]",
       "values=[1,4,2,5,3,6]"});
  add({a + "%r = slice %a start=[1,0] limit=[2,3] step=[1,2]", "values=[4,6]"});
  add({a + V("i", "i32[1]", "9") + V("j", "i32[1]", "-9") +
           "%y = reshape %i : i32[]\n%x = reshape %j : i32[]\n"
           "%r = dynamic_slice %a, %y, %x sizes=[1,2]",
       "values=[4,5]"});
  add({V("v", "i8[2]", "1,2") + C("p", "i8[]", "splat=9") +
           "%r = pad %v, %p low=[1] high=[2] interior=[1]",
       "values=[9,1,9,2,9,9]"});
  add({a + V("c", "i8[2,1]", "7,8") + "%r = concatenate %a, %c dimension=1",
       "values=[1,2,3,7,4,5,6,8]"});
  add({a + "%r = reverse %a dimensions=[1]", "values=[3,2,1,6,5,4]"});
  add({a + V("i", "i64[3]", "1,-5,7") + "%r = gather_rows %a, %i", "values=[4,5,6,1,2,3,4,5,6]"});
  add({"%r = iota dimension=1 : bf16[2,2]", "values=x0000803f0000803f"});
  add({C("k", "u64[]", "splat=0") + "%r = rng_bits %k, %k : u32[5]",
       "values=[1713891541,3781805453,3159862348,2600524760,4175744164]"});
  return cases;
}

Cases BytesCases() {
  Cases cases;
  const auto add = [&](Case test) { cases.push_back(std::move(test)); };
  add({V("a", "u8[9]", "1,2,3,4,5,6,7,8,9") + "%r = checksum %a",
       "values=[10017413208973584640,8923799220271306446]"});
  add({V("e", "u8[0]", "") + "%r = checksum %e", "values=[0,0]"});
  const std::string delta =
      C("z", "u8[70]", "splat=0") + C("o", "u8[64]", "splat=1") + C("t", "u8[6]", "splat=2") +
      "%n = concatenate %o, %t dimension=0\n"
      "%b, %v, %c, %k = delta_encode %z, %n : u32[1], u8[2,64], u32[], u64[2]\n";
  add({delta + "%r = reshape %b : u32[1]", "values=[3]"});
  add({delta + "%r = reshape %c : u32[1]", "values=[2]"});
  add({delta + "%r = slice %v start=[1,4] limit=[2,8]", "values=[2,2,0,0]"});
  add({delta + "%s = checksum %n\n%r = compare %s, %k direction=eq", "values=[true,true]"});
  return cases;
}

Cases ReductionsCases() {
  Cases cases;
  const auto add = [&](Case test) { cases.push_back(std::move(test)); };
  const std::string a = V("a", "i32[2,3]", "1,2,3,4,5,6");
  const auto reduce = [&](const std::string& how, const std::string& is) {
    add({a + "%r = reduce %a reduction=" + how, "values=[" + is + "]"});
  };
  reduce("sum dimensions=[1]", "6,15");
  reduce("sum dimensions=[0]", "5,7,9");
  reduce("product dimensions=[1]", "6,120");
  reduce("max dimensions=[0,1]", "6");
  reduce("min dimensions=[1]", "1,4");
  reduce("sum", "1,2,3,4,5,6");
  add({V("b", "bool[2]", "false,true") + "%r = reduce %b reduction=any dimensions=[0]",
       "values=[true]"});
  add({V("b", "bool[2]", "false,true") + "%r = reduce %b reduction=all dimensions=[0]",
       "values=[false]"});
  add({V("e", "f32[0]", "") + "%r = reduce %e reduction=sum dimensions=[0]", "values=[0]"});
  add({V("e", "f32[0]", "") + "%r = reduce %e reduction=min dimensions=[0]", "values=x0000807f"});
  // Element 128 is added to element 0, before the halves are: (2^24 + 1) + ... of f32 loses it.
  add({C("z", "f32[63]", "splat=0") + C("l", "f32[1]", "splat=16777216") +
           C("o", "f32[1]", "splat=1") + C("y", "f32[64]", "splat=0") +
           "%c = concatenate %l, %z, %o, %y, %o dimension=0\n"  // 1 at 64 and at 129
           "%r = reduce %c reduction=sum dimensions=[0]",
       "values=[16777216]"});
  add({C("z", "f32[63]", "splat=0") + C("l", "f32[1]", "splat=16777216") +
           C("o", "f32[1]", "splat=1") + C("y", "f32[127]", "splat=0") +
           "%c = concatenate %l, %z, %o, %y, %o dimension=0\n"  // 1 at 64 and at 192
           "%r = reduce %c reduction=sum dimensions=[0]",
       "values=[16777218]"});
  add({C("v", "bf16[3]", "values=x804380438043") + "%r = reduce %v reduction=sum dimensions=[0]",
       "values=x4044"});
  add({V("a", "f32[2,3]", "1,5,5,-1,-2,-3") + "%r = argmax %a dimension=1", "values=[1,0]"});
  add({a + "%r = cumulative_sum %a dimension=1", "values=[1,3,6,4,9,15]"});
  return cases;
}

Cases ProductsCases() {
  Cases cases;
  const auto add = [&](Case test) { cases.push_back(std::move(test)); };
  add({V("a", "i8[2,2]", "1,2,3,4") + V("b", "i8[2,2]", "5,6,7,8") +
           "%r = dot_general %a, %b lhs_contract=[1] rhs_contract=[0] : i32[2,2]",
       "values=[19,22,43,50]"});
  add({V("a", "i8[1]", "100") + V("b", "u8[1]", "200") +
           "%r = dot_general %a, %b lhs_contract=[0] rhs_contract=[0] accumulate=i8 : i32[]",
       "values=[32]"});
  // Batches of the last dimension of one and the first of the other.
  add({V("a", "f32[2,2]", "1,2,3,4") + V("b", "f32[2,2,1]", "5,6,7,8") +
           "%r = dot_general %a, %b lhs_batch=[1] rhs_batch=[0] lhs_contract=[0] rhs_contract=[1]",
       "values=[23,46]"});
  // Factors are rounded to f32 where the sums are, and only there.
  for (const std::string wide : {"", " accumulate=f64"}) {
    add({V("a", "f64[1]", "1e-50") + V("b", "f64[1]", "1e36") +
             "%r = dot_general %a, %b lhs_contract=[0] rhs_contract=[0]" + wide + " : bf16[]",
         wide.empty() ? "splat=0" : "splat=1e-14"});
  }
  add({C("a", "f4e2m1fn[1,4]", "values=x4242") + C("b", "f4e2m1fn[1,4]", "values=x2222") +
           C("s", "f8e8m0fnu[1,2]", "values=x7f80") + C("t", "f8e8m0fnu[1,2]", "values=x7f7f") +
           C("g", "f32[]", "splat=-2") +
           "%r = block_scaled_dot %a, %b, %s, %t, %g block=2 : f32[1,1]",
       "values=[-18]"});
  // The global scale is made f32, whatever the result is.
  for (const std::string type : {"f32", "f64"}) {
    add({C("a", "f4e2m1fn[1,2]", "values=x22") + C("s", "f8e8m0fnu[1,1]", "values=x7f") +
             C("g", type + "[]", type == "f64" ? "splat=1e-50" : "splat=-2") +
             "%r = block_scaled_dot %a, %a, %s, %s, %g block=2 : f64[1,1]",
         type == "f64" ? "values=[0]" : "values=[-4]"});
  }
  return cases;
}

Cases EffectsAndControlCases() {
  Cases cases;
  const auto add = [&](Case test) { cases.push_back(std::move(test)); };
  add({"%r = input @in offset=4 : u8[3]", "values=[4,5,6]"});
  add({"%r = input @in offset=4 strides=[1,3] : u8[2,2]", "values=[4,7,5,8]"});
  add({"%r = input @in : bool[3]", "values=[false,true,true]"});
  add({V("a", "u8[2]", "1,2") + "%e = empty : u8[2]\n%c = concatenate %e, %a dimension=0\n"
                                "%r = slice %c start=[2] limit=[4]",
       "values=[1,2]"});
  add({"%r = input @in offset=1 : f4e2m1fn[3]", "values=x0102"});
  add(
      {"^c: copy @out, @in bytes=4 offset=100 source_offset=8\n"
       "%r = input @out offset=99 : u8[6] after ^c",
       "values=[0,8,9,10,11,0]"});
  add({V("a", "u8[2]", "250,1") + "^c: copy @out, @in bytes=4 offset=100 source_offset=8\n"
                                  "^d: accumulate @out, %a offset=101 after ^c\n"
                                  "%r = input @out offset=100 : u8[4] after ^d",
       "values=[8,3,11,11]"});
  add({V("a", "u8[2]", "1,2") + "^s: store @out, %a offset=100 strides=[2]\n"
                                "%r = input @out offset=100 : u8[4] after ^s",
       "values=[1,0,2,0]"});
  add({C("b", "u32[1]", "splat=2") + C("v", "u8[1,64]", "splat=7") + C("c", "u32[]", "splat=1") +
           "^d: delta_apply @out, %b, %v, %c bytes=66 offset=100\n"
           "%r = input @out offset=163 : u8[4] after ^d",
       "values=[0,7,7,0]"});
  add({V("a", "u8[2]", "1,2") + "%r = barrier %a\nkeep %r", "values=[1,2]"});
  // 1, then twice and the trip more: 2, 5, 12.
  add({C("a", "i32[]", "splat=1") +
           "%r = repeat %a trips=3 (%i, %x)\n  %d = add %x, %x\n  %e = add %d, %i\nyield %e",
       "values=[12]"});
  add({C("a", "i32[]", "splat=7") + "%r = repeat %a trips=0 (%i, %x)\nyield %i", "values=[7]"});
  return cases;
}

TEST(EvaluateTest, IntegersByHand) { Check(IntegersCases()); }
TEST(EvaluateTest, FloatsByHand) { Check(FloatsCases()); }
TEST(EvaluateTest, FunctionsByHand) { Check(FunctionsCases()); }
TEST(EvaluateTest, ComparesAndSelectsByHand) { Check(ComparesAndSelectsCases()); }
TEST(EvaluateTest, TypesByHand) { Check(TypesCases()); }
TEST(EvaluateTest, BlockFormatsByHand) { Check(BlockFormatsCases()); }
TEST(EvaluateTest, MovesByHand) { Check(MovesCases()); }
TEST(EvaluateTest, BytesByHand) { Check(BytesCases()); }
TEST(EvaluateTest, ReductionsByHand) { Check(ReductionsCases()); }
TEST(EvaluateTest, ProductsByHand) { Check(ProductsCases()); }
TEST(EvaluateTest, EffectsAndControlByHand) { Check(EffectsAndControlCases()); }

TEST(EvaluateTest, Transfers) {
  const Program program = Parsed(
      "program 1\n%a = recv device=3 key=\"in\" : u8[2]\n%b = add %a, %a\n"
      "send %b device=4 key=\"out\"\n");
  std::string sent;
  Transfers transfers;
  transfers.receive = [](int64_t device, const std::string& key, const TensorType& type) {
    EXPECT_EQ(absl::StrCat(device, key), "3in");
    return TensorOf(type, {std::byte{1}, std::byte{200}});
  };
  transfers.send = [&](int64_t device, const std::string& key, const Tensor& tensor) {
    absl::StrAppend(&sent, device, key, " ", tensor.elements[0].code, " ", tensor.elements[1].code);
  };
  std::vector<Memory> none;
  Evaluate(program, none, transfers);
  EXPECT_EQ(sent, "4out 2 144");
}

// The text of a case names each op that it has, as a word.
TEST(EvaluateTest, EveryOpHasACase) {
  std::set<std::string> words = {"send", "recv"};  // Transfers
  for (const Cases& cases :
       {IntegersCases(), FloatsCases(), FunctionsCases(), ComparesAndSelectsCases(), TypesCases(),
        BlockFormatsCases(), MovesCases(), BytesCases(), ReductionsCases(), ProductsCases(),
        EffectsAndControlCases()}) {
    for (const Case& test : cases) {
      for (const auto word : absl::StrSplit(test.text, absl::ByAnyChar(" \n"))) {
        words.insert(std::string(word));
      }
    }
  }
  words.insert("store");  // in all of them
  for (size_t i = 0; i < kOps; ++i) {
    const std::string name(InfoOf(static_cast<Op>(i)).name);
    EXPECT_EQ(words.count(name), 1u) << name;
  }
}

}  // namespace
}  // namespace ferry::compute::testing
