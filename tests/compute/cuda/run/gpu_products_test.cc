// SPDX-License-Identifier: Apache-2.0
// Products of programs by cuBLASLt, on a GPU that is the CPU.
#include <array>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compute/numerics/convert.h"
#include "tests/compute/cuda/run/gpu_machine_fixture.h"
#include "tests/compute/doublings.h"
#include "tests/compute/product_text.h"

namespace ferry::compute {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using testing::Bytes;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class GpuProductsTest : public testing::GpuMachineFixture {
 protected:
  void TearDown() override {
    machine_->Close();
    fake_cublaslt_counts counts;
    fake_cublaslt_get_counts(&counts);
    EXPECT_EQ(counts.handles, 0u);
    EXPECT_EQ(counts.objects, 0u);
  }

  static fake_cublaslt_counts Counts() {
    fake_cublaslt_counts counts;
    fake_cublaslt_get_counts(&counts);
    return counts;
  }

  static Program Product(const testing::ProductShape& shape) {
    return testing::ParsedProgram(testing::ProductText(shape));
  }

  // Factors between -1 and 1, and a result that is not 0 by luck.
  static std::vector<Bytes> Factors(const Program& program, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<float> among(-1, 1);
    std::vector<Bytes> made;
    for (const Node& node : program.nodes) {
      if (node.op != Op::kInput) continue;
      const DType type = program.types[node.first_result].dtype;
      std::vector<float> values(program.buffers[made.size()].bytes * 8 / InfoOf(type).bits);
      for (float& value : values) value = among(random);
      made.emplace_back(program.buffers[made.size()].bytes);
      Convert(DType::kF32, testing::BytesOfValues(values).data(), type, made.back().data(),
              values.size());
    }
    made.emplace_back(program.buffers.back().bytes, std::byte{0xA5});
    return made;
  }
  void CompareProduct(const Program& program, int seed) {
    CompareWithReference(program, Factors(program, static_cast<uint64_t>(seed)));
  }

  // Runs the program and returns what is in its last buffer.
  std::vector<double> ResultOf(const Program& program, const std::vector<Bytes>& contents,
                               DType type) {
    const GpuProgram made = Made(program);
    Memory memory = Bind(made, contents);
    GpuMachine::Aside aside;
    const absl::Status ran = Run(made, memory, aside);
    EXPECT_TRUE(ran.ok()) << ran;
    const absl::Span<std::byte> got = memory.buffers.back();
    return testing::NumbersOf(type, Bytes(got.begin(), got.end()),
                              got.size() * 8 / InfoOf(type).bits);
  }
};

// Every type that cuBLASLt multiplies, and those that become one; rows and columns of any order.
TEST_F(GpuProductsTest, AllTypesAndOrdersAreAsTheReferenceSays) {
  int seed = 0;
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"bf16", "bf16"},
                                                        {"bf16", "f32"},
                                                        {"f16", "f16"},
                                                        {"f16", "f32"},
                                                        {"f32", "f32"},
                                                        {"f32", "bf16"},
                                                        {"f64", "f64"},
                                                        {"f8e4m3fn", "bf16"},
                                                        {"f8e5m2", "f32"}}) {
    for (const char* left : {"mk", "km"}) {
      for (const char* right : {"kn", "nk"}) {
        for (const int64_t batches : {1, 3}) {
          const Program program = Product({batches, 24, 40, 18, from, to, left, right});
          EXPECT_THAT(ToText(Made(program).plan()), HasSubstr("product cublaslt"));
          CompareProduct(program, ++seed);
        }
      }
    }
  }
}

// A dimension of one element, and nothing that is a multiple of anything.
TEST_F(GpuProductsTest, ThinProductsAreAsTheReferenceSays) {
  int seed = 0;
  for (const auto& [m, k, n] : std::vector<std::array<int64_t, 3>>{
           {1, 40, 24}, {24, 40, 1}, {1, 40, 1}, {24, 1, 18}, {1, 1, 1}, {7, 13, 5}}) {
    for (const char* left : {"mk", "km"}) {
      for (const char* right : {"kn", "nk"}) {
        CompareProduct(Product({1, m, k, n, "bf16", "f32", left, right}), ++seed);
      }
    }
  }
}

TEST_F(GpuProductsTest, LongSumsAreMadeInPieces) {
  int seed = 0;
  for (const auto& [from, k] : std::vector<std::pair<std::string, int64_t>>{
           {"bf16", 8193}, {"f16", 14000}, {"f32", 257}, {"f32", 2048}, {"f64", 700}}) {
    for (const int64_t batches : {1, 2}) {
      for (const char* order : {"mk", "km"}) {
        const Program program = Product({batches, 2, k, 3, from, from, order, "nk"});
        const std::string plan = ToText(Made(program).plan());
        EXPECT_THAT(plan, AnyOf(HasSubstr(" adds"), HasSubstr("cublaslt batches=8 "),
                                HasSubstr("cublaslt batches=4 ")));
        EXPECT_EQ(plan.find(absl::StrCat(" k=", k, " ")), std::string::npos) << plan;
        CompareProduct(program, ++seed);
      }
    }
  }
}

// Partial sums of the result's type, which the library would take by itself, lose too much.
TEST_F(GpuProductsTest, SumsAreOfTheTypeInWhichTheyAreMade) {
  CompareProduct(Product({1, 16, 2048, 16, "bf16", "bf16", "mk", "nk"}), 1);
  CompareProduct(Product({1, 16, 8192, 16, "f16", "f16", "mk", "nk"}), 2);
}

// What is small is made in many pieces at once, what is large in one sum after the other.
TEST_F(GpuProductsTest, ALargeResultIsAddedToWhereItIs) {
  const auto plan = [&](int64_t side) {
    absl::StatusOr<GpuPlan> made =
        MakeGpuPlan(Product({1, side, 1024, side, "f32", "f32"}), kGpuArchs[0], {});
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  };
  const GpuPlan large = plan(4096);
  EXPECT_EQ(large.commands.size(), 4u);
  for (const GpuCommand& command : large.commands) {
    EXPECT_EQ(command.product.k, 256);
    EXPECT_EQ(command.product.adds, &command != &large.commands[0]);
    EXPECT_EQ(command.product.result.place.kind, GpuPlace::Kind::kBuffer);
  }
  const GpuPlan small = plan(128);
  ASSERT_EQ(small.commands.size(), 2u) << "a product, and what adds up its sums";
  EXPECT_EQ(small.commands[0].product.batches, 4);
  EXPECT_FALSE(small.commands[0].product.adds);
}

// One running sum of 2^20 times 0.1 would come to 100,958 in f32, and of ones never beyond 2^24.
TEST_F(GpuProductsTest, ALongSumOfEqualTermsKeepsItsBound) {
  constexpr int64_t kTerms = int64_t{1} << 20;
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const std::string name(NameOf(type));
    const Program program = Product({1, 1, kTerms, 1, name, "f32"});
    const std::vector<Bytes> contents = {
        testing::ElementsOf(type, std::vector<double>(kTerms, 0.1)),
        testing::ElementsOf(type, std::vector<double>(kTerms, 1)), Bytes(4)};
    const double exact = testing::NumbersOf(type, contents[0], 1)[0] * kTerms;
    const std::vector<double> got = ResultOf(program, contents, DType::kF32);
    EXPECT_NEAR(got[0], exact, exact * 0x1p-17) << name;
  }
}

// So do our own kernels', which multiply where no library does.
TEST_F(GpuProductsTest, ALongSumOfOurOwnKernelsKeepsItsBound) {
  multiplier_ = nullptr;
  constexpr int64_t kTerms = int64_t{1} << 20;
  const Program program = Product({1, 1, kTerms, 1, "f32", "f32"});
  const std::vector<float> tenths(kTerms, 0.1f);
  const std::vector<float> ones(kTerms, 1.0f);
  const std::vector<double> got =
      ResultOf(program, {testing::BytesOfValues(tenths), testing::BytesOfValues(ones), Bytes(4)},
               DType::kF32);
  const double exact = static_cast<double>(0.1f) * kTerms;
  EXPECT_NEAR(got[0], exact, exact * 0x1p-17);
}

TEST_F(GpuProductsTest, AProductMayBeStoredOverItsFactor) {
  CompareWithReference(testing::ParsedProgram(
                           "program 1\nbuffer @x read_write 512 donated\nbuffer @w read 512\n%x = "
                           "input @x : bf16[16,16]\n"
                           "%w = input @w : bf16[16,16]\n%p = dot_general %x, %w lhs_contract=[1] "
                           "rhs_contract=[0] : bf16[16,16]\nstore @x, %p\n"),
                       1);
}

TEST_F(GpuProductsTest, TheLibraryIsAskedOnceForEachProduct) {
  const Program program = Product({1, 48, 40, 24});
  const GpuProgram made = Made(program);
  const GpuProgram equal = Made(program);
  Memory memory = Bind(made, testing::RandomBuffers(program, 1));
  const uint64_t before = Counts().asked;
  GpuMachine::Aside aside;
  for (const GpuProgram* each : {&made, &equal, &made}) {
    ASSERT_TRUE(Run(*each, memory, aside).ok());
  }
  EXPECT_EQ(Counts().asked, before + 1);
  EXPECT_EQ(machine_->prepared_products(), 1u);
}

// Its program is planned without it, and says so.
TEST_F(GpuProductsTest, AProductThatTheLibraryRefusesIsMadeByOurOwnKernels) {
  const Program program = Product({1, 48, 40, 24});
  fake_cublaslt_configure("no_choice=1");
  const GpuProgram made = Made(program);
  fake_cublaslt_configure("no_choice=0");
  EXPECT_THAT(ToText(made.plan()), Not(HasSubstr("cublaslt")));
  EXPECT_THAT(made.multiplier(),
              AllOf(StartsWith("our own kernels (multiply 1 x [48,40] by "),
                    HasSubstr("bf16 of strides (0,40,1)"),
                    EndsWith("by cuBLASLt 13.1.0: CUBLAS_STATUS_NOT_SUPPORTED)")));
  const uint64_t before = Counts().products;
  CompareRun(program, made, Factors(program, 1));
  EXPECT_EQ(Counts().products, before);
  // The refusal is remembered, for this product alone.
  const uint64_t asked = Counts().asked;
  EXPECT_EQ(Made(program).multiplier(), made.multiplier());
  EXPECT_EQ(Counts().asked, asked);
  EXPECT_EQ(Made(Product({1, 48, 40, 26})).multiplier(), "cuBLASLt 13.1.0");
}

// Of several products each is made by who has it; also in a repeat.
TEST_F(GpuProductsTest, WhatTheLibraryHasIsStillMadeByIt) {
  const Program program = testing::ParsedProgram(
      "program 1\nbuffer @x read 512\nbuffer @w read 512\nbuffer @y write 1024\n"
      "%x = input @x : bf16[16,16]\n%w = input @w : bf16[16,16]\n"
      "%a = dot_general %x, %w lhs_contract=[1] rhs_contract=[1] : f32[16,16]\n"
      "%b = convert %a : bf16[16,16]\n"
      "%r = repeat %b trips=2 (%i, %c)\n"
      "  %d = dot_general %c, %w lhs_contract=[1] rhs_contract=[0] : bf16[16,16]\n"
      "  yield %d\n"
      "%f = convert %r : f32[16,16]\nstore @y, %f\n");
  fake_cublaslt_configure("no_type=14");  // of results: bf16
  const GpuProgram made = Made(program);
  fake_cublaslt_configure("no_type=-1");
  EXPECT_THAT(ToText(made.plan()), HasSubstr("product cublaslt"));
  EXPECT_THAT(made.multiplier(),
              AllOf(StartsWith("cuBLASLt 13.1.0, but in step "), HasSubstr(" our own kernels (")));
  const uint64_t before = Counts().products;
  CompareRun(program, made, Factors(program, 1));
  EXPECT_EQ(Counts().products, before + 1);
}

// That is no answer, so it is not remembered, and no program is planned by it.
TEST_F(GpuProductsTest, ALibraryThatFailsIsAskedAgain) {
  const Program program = Product({1, 48, 40, 24});
  fake_cublaslt_configure("fail_create=1");
  const absl::Status status = GpuProgram::Make(program, arch_, store_, multiplier_.get()).status();
  fake_cublaslt_configure("fail_create=0");
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              StartsWith("ask how to multiply: open cuBLASLt 13.1.0 on a GPU"));
  EXPECT_EQ(Made(program).multiplier(), "cuBLASLt 13.1.0");
}

// As on a GPU that is none of those that were asked.
TEST_F(GpuProductsTest, AProductThatIsRefusedLaterFailsItsRunAlone) {
  const Program program = Product({1, 48, 40, 24});
  const GpuProgram made = Made(program);
  Memory memory = Bind(made, testing::RandomBuffers(program, 1));
  GpuMachine::Aside aside;
  fake_cublaslt_configure("no_choice=1");
  absl::Status status = Run(made, memory, aside);
  fake_cublaslt_configure("no_choice=0;fail_queue=1");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("multiply 1 x [48,40] by [40,24], bf16 of strides (0,40,1)"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("CUBLAS_STATUS_NOT_SUPPORTED; name another "
                                                       "library in devices.cublaslt_library"));
  status = Run(made, memory, aside);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_TRUE(Run(made, memory, aside).ok());
}

TEST_F(GpuProductsTest, AHandleThatCannotBeMadeIsMadeByTheNextRun) {
  const Program program = Product({1, 8, 8, 8, "f32", "f32"});
  const GpuProgram made = Made(program);
  Memory memory = Bind(made, testing::RandomBuffers(program, 1));
  GpuMachine::Aside aside;
  fake_cublaslt_configure("fail_create=1");
  const absl::Status status = Run(made, memory, aside);
  fake_cublaslt_configure("fail_create=0");
  EXPECT_THAT(std::string(status.message()), HasSubstr("open cuBLASLt 13.1.0 on a GPU"));
  EXPECT_TRUE(Run(made, memory, aside).ok());
}

TEST_F(GpuProductsTest, WithoutTheLibraryOurOwnKernelsMultiplyAndSayWhy) {
  const Program program = Product({1, 24, 40, 18, "bf16", "f32"});
  for (const auto& [library, why] : std::vector<std::pair<std::string, std::string>>{
           {"none", "devices.cublaslt_library is none"},
           {"/no/libcublasLt.so", "open /no/libcublasLt.so: cannot open shared object file"},
           {FAKE_CUDA_LIBRARY, "it has no cublasLtGetVersion; CUDA 12.0 or later is needed"}}) {
    UseLibrary(library);
    const GpuProgram made = Made(program);
    EXPECT_THAT(made.multiplier(), HasSubstr(why));
    EXPECT_THAT(ToText(made.plan()), Not(HasSubstr("cublaslt")));
    CompareWithReference(program, 1);
  }
  EXPECT_THAT(Made(testing::ParsedProgram(testing::Doublings(1))).multiplier(), IsEmpty());
}

TEST_F(GpuProductsTest, ALibraryOfALaterCudaThanTheDriversIsNotTaken) {
  std::string another = FAKE_CUBLASLT_LIBRARY;  // by a name by which it is not open yet
  another.insert(another.rfind('/'), "/.");
  const CublasLtLibrary library(another, 12080);
  EXPECT_THAT(std::string(library.Get().status().message()),
              HasSubstr("it is of CUDA 13, the driver of CUDA 12"));
}

}  // namespace
}  // namespace ferry::compute
