// SPDX-License-Identifier: Apache-2.0
#include "ferry/dlpack.hpp"

#include "tests/client/cuda/cuda_fixture.h"

namespace ferry::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class DlpackTest : public CudaTest {
 protected:
  // Their sizes would fit if they were counted in 64 bits with what does not fit left out.
  const std::vector<std::pair<int, std::vector<int64_t>>> kImpossible = {
      {FERRY_F64, {int64_t{1} << 58}},
      {FERRY_F32, {int64_t{1} << 32, int64_t{1} << 32}},
      {FERRY_U8, {-1, -1}},
      {FERRY_U8, {0, -1}},
  };

  // Why it is no arena.
  static std::string Refusal(Session& session, const dlpack::ManagedTensor& managed) {
    const auto refused = dlpack::Import(session, kGpu, managed);
    EXPECT_EQ(refused.status().code_name(), "INVALID_ARGUMENT");
    EXPECT_EQ(refused.status().reason(), "FIELD_INVALID");
    return std::string(refused.status().message());
  }
};

TEST_F(DlpackTest, AnExportedTensorOwnsItsArena) {
  Session session = Open();
  auto arena = session.CreateArena(kOtherGpu, 4096);
  ASSERT_OK(arena);
  void* const data = arena->data();
  EXPECT_EQ(dlpack::Export(*arena, FERRY_F4E2M1FN, {8}), nullptr);        // no name for it
  EXPECT_EQ(dlpack::Export(*arena, FERRY_BF16, {16, 127}, 33), nullptr);  // does not fit
  for (const auto& [type, shape] : kImpossible) {
    EXPECT_EQ(dlpack::Export(*arena, type, shape), nullptr);
  }
  dlpack::ManagedTensor* tensor = dlpack::Export(*arena, FERRY_BF16, {16, 127}, 32);
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(arena->get(), nullptr);
  EXPECT_EQ(tensor->tensor.data, data);
  EXPECT_EQ(tensor->tensor.byte_offset, 32u);
  EXPECT_EQ(tensor->tensor.device.type, dlpack::kCuda);
  EXPECT_EQ(tensor->tensor.device.id, 1);
  EXPECT_EQ(tensor->tensor.ndim, 2);
  EXPECT_EQ(tensor->tensor.shape[1], 127);
  EXPECT_EQ(tensor->tensor.dtype.code, 4);
  EXPECT_EQ(tensor->tensor.dtype.bits, 16);
  EXPECT_EQ(daemon_->arenas(), 1u);
  tensor->deleter(tensor);
  EXPECT_EQ(daemon_->arenas(), 0u);
}

TEST_F(DlpackTest, ACompactTensorIsImportedWhereItIs) {
  Session session = Open();
  const CUdeviceptr own = MapOwn({kGranule});
  int64_t shape[] = {2, 3, 4};
  int64_t strides[] = {12, 4, 1};
  dlpack::ManagedTensor managed{};
  managed.tensor.data = reinterpret_cast<void*>(own);
  managed.tensor.device = {dlpack::kCuda, 0};
  managed.tensor.ndim = 3;
  managed.tensor.dtype = *dlpack::ToDlpack(FERRY_F32);
  managed.tensor.shape = shape;
  managed.tensor.strides = strides;
  auto arena = dlpack::Import(session, kGpu, managed);
  ASSERT_OK(arena);
  EXPECT_EQ(arena->bytes(), 96u);
  EXPECT_EQ(arena->data(), managed.tensor.data);
}

TEST_F(DlpackTest, ATensorThatIsRefusedIsToldWhatIsWrongWithIt) {
  Session session = Open();
  int64_t shape[] = {2, 3, 4};
  int64_t strides[] = {15, 5, 1};
  dlpack::ManagedTensor managed{};
  managed.tensor.data = reinterpret_cast<void*>(MapOwn({kGranule}));
  managed.tensor.device = {dlpack::kCuda, 0};
  managed.tensor.ndim = 3;
  managed.tensor.dtype = *dlpack::ToDlpack(FERRY_F32);
  managed.tensor.shape = shape;
  managed.tensor.strides = strides;
  const auto says = AllOf(HasSubstr("in a CUDA GPU's own memory"), HasSubstr("make it contiguous"));
  EXPECT_THAT(Refusal(session, managed), says);
  managed.tensor.strides = nullptr;
  for (const int32_t type : {1, 13, 1 << 30, -1}) {  // kDLCPU, kDLCUDAManaged, none
    managed.tensor.device.type = type;
    EXPECT_THAT(Refusal(session, managed), says);
  }
  EXPECT_EQ(daemon_->arenas(), 0u);
}

TEST_F(DlpackTest, AShapeThatNoMemoryHasIsRefused) {
  Session session = Open();
  CUdeviceptr legacy = 0;
  EXPECT_CUDA(cuMemAlloc(&legacy, kGranule));
  dlpack::ManagedTensor managed{};
  managed.tensor.device = {dlpack::kCuda, 0};
  for (const CUdeviceptr own : {MapOwn({kGranule}), legacy}) {
    managed.tensor.data = reinterpret_cast<void*>(own);
    for (auto [type, shape] : kImpossible) {
      managed.tensor.dtype = *dlpack::ToDlpack(type);
      managed.tensor.ndim = static_cast<int32_t>(shape.size());
      managed.tensor.shape = shape.data();
      EXPECT_NE(Refusal(session, managed), "");
    }
  }
  int64_t shape[] = {int64_t{1} << 40, int64_t{1} << 40, 1};
  int64_t strides[] = {0, 1, 1};
  managed.tensor.ndim = 3;
  managed.tensor.shape = shape;
  managed.tensor.strides = strides;
  EXPECT_FALSE(dlpack::Compact(managed.tensor));
  EXPECT_EQ(daemon_->arenas(), 0u);
  EXPECT_CUDA(cuMemFree(legacy));
}

TEST_F(DlpackTest, TypesGoThereAndBack) {
  for (int type = FERRY_PRED; type < FERRY_F4E2M1FN; ++type) {
    const auto as = dlpack::ToDlpack(type);
    ASSERT_TRUE(as.has_value()) << type;
    EXPECT_EQ(dlpack::FromDlpack(*as), type);
  }
  EXPECT_EQ(dlpack::FromDlpack({2, 32, 4}), FERRY_UNSPECIFIED);
}

}  // namespace
}  // namespace ferry::testing
