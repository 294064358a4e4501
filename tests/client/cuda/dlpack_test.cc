// SPDX-License-Identifier: Apache-2.0
#include "ferry/dlpack.hpp"

#include "tests/client/cuda/cuda_fixture.h"

namespace ferry::testing {
namespace {

using DlpackTest = CudaTest;

TEST_F(DlpackTest, AnExportedTensorOwnsItsArena) {
  Session session = Open();
  auto arena = session.CreateArena(kOtherGpu, 4096);
  ASSERT_OK(arena);
  void* const data = arena->data();
  EXPECT_EQ(dlpack::Export(*arena, FERRY_F4E2M1FN, {8}), nullptr);        // no name for it
  EXPECT_EQ(dlpack::Export(*arena, FERRY_BF16, {16, 127}, 33), nullptr);  // does not fit
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
  strides[1] = 5;
  EXPECT_EQ(dlpack::Import(session, kGpu, managed).status().reason(), "FIELD_INVALID");
  managed.tensor.strides = nullptr;
  managed.tensor.device.type = dlpack::kCpu;
  EXPECT_EQ(dlpack::Import(session, kGpu, managed).status().reason(), "FIELD_INVALID");
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
