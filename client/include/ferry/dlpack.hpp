// SPDX-License-Identifier: Apache-2.0
// Arenas as DLPack tensors and DLPack tensors as arenas, without a copy: what torch.from_dlpack,
// cupy and jax take and give. Header only. The structs are those of the DLPack specification's
// DLManagedTensor (the "dltensor" capsule) under names of our own, so that one file may include
// both this header and dlpack.h; a pointer to one is cast to the other.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ferry/cuda.hpp"
#include "ferry/ferry.hpp"

namespace ferry::dlpack {

enum DeviceType : int32_t { kCpu = 1, kCuda = 2 };

struct Device {
  int32_t type;  // DeviceType
  int32_t id;    // kCuda: the ordinal in this process
};

struct DataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  int32_t ndim;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null: compact and row-major
  uint64_t byte_offset;
};

struct ManagedTensor {
  Tensor tensor;
  void* manager;
  void (*deleter)(ManagedTensor* self);
};

// DLPack's name of an element type FERRY_...; nothing if DLPack has none.
inline std::optional<DataType> ToDlpack(int data_type) {
  enum : uint8_t { kInt, kUInt, kFloat, kBfloat = 4, kComplex, kBool };
  switch (data_type) {
    case FERRY_PRED:
      return DataType{kBool, 8, 1};
    case FERRY_S8:
      return DataType{kInt, 8, 1};
    case FERRY_S16:
      return DataType{kInt, 16, 1};
    case FERRY_S32:
      return DataType{kInt, 32, 1};
    case FERRY_S64:
      return DataType{kInt, 64, 1};
    case FERRY_U8:
      return DataType{kUInt, 8, 1};
    case FERRY_U16:
      return DataType{kUInt, 16, 1};
    case FERRY_U32:
      return DataType{kUInt, 32, 1};
    case FERRY_U64:
      return DataType{kUInt, 64, 1};
    case FERRY_F16:
      return DataType{kFloat, 16, 1};
    case FERRY_BF16:
      return DataType{kBfloat, 16, 1};
    case FERRY_F32:
      return DataType{kFloat, 32, 1};
    case FERRY_F64:
      return DataType{kFloat, 64, 1};
    case FERRY_C64:
      return DataType{kComplex, 64, 1};
    case FERRY_C128:
      return DataType{kComplex, 128, 1};
    case FERRY_F8E4M3FN:
      return DataType{10, 8, 1};
    case FERRY_F8E5M2:
      return DataType{12, 8, 1};
    case FERRY_F8E8M0FNU:
      return DataType{14, 8, 1};
    default:
      return std::nullopt;
  }
}
inline int FromDlpack(DataType type) {
  for (int known = FERRY_PRED; known <= FERRY_F4E2M1FN; ++known) {
    const std::optional<DataType> as = ToDlpack(known);
    if (as && as->code == type.code && as->bits == type.bits && type.lanes == 1) return known;
  }
  return FERRY_UNSPECIFIED;
}

// The tensor's size. Nothing for an impossible shape: a negative dimension, or more bytes than 64
// bits can count.
inline std::optional<uint64_t> Bytes(const Tensor& tensor) {
  uint64_t bits = uint64_t{tensor.dtype.bits} * tensor.dtype.lanes;
  for (int32_t i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] < 0 || __builtin_mul_overflow(bits, tensor.shape[i], &bits)) {
      return std::nullopt;
    }
  }
  return bits / 8 + (bits % 8 != 0);
}

// A row-major tensor over the arena from `offset`. It takes the arena: the deleter, which the
// consumer calls once, frees it. Null if DLPack has no name for the type or if the tensor does not
// fit the arena; the arena stays the caller's then.
inline ManagedTensor* Export(Arena& arena, int data_type, std::vector<int64_t> shape,
                             uint64_t offset = 0) {
  struct Owner {
    ManagedTensor managed;
    Arena arena;
    std::vector<int64_t> shape;
  };
  const std::optional<DataType> type = ToDlpack(data_type);
  if (!type) return nullptr;
  auto owner = std::make_unique<Owner>();
  owner->shape = std::move(shape);
  const int ordinal = cuda::Device(arena);
  Tensor& tensor = owner->managed.tensor;
  tensor.data = arena.data();
  tensor.device = ordinal < 0 ? Device{kCpu, 0} : Device{kCuda, ordinal};
  tensor.ndim = static_cast<int32_t>(owner->shape.size());
  tensor.dtype = *type;
  tensor.shape = owner->shape.data();
  tensor.strides = nullptr;
  tensor.byte_offset = offset;
  const std::optional<uint64_t> bytes = Bytes(tensor);
  if (!bytes || offset > arena.bytes() || *bytes > arena.bytes() - offset) return nullptr;
  owner->managed.manager = owner.get();
  owner->managed.deleter = [](ManagedTensor* self) { delete static_cast<Owner*>(self->manager); };
  owner->arena = std::move(arena);
  return &owner.release()->managed;
}

// True if the elements follow each other in memory, so that they are one range.
inline bool Compact(const Tensor& tensor) {
  if (tensor.strides == nullptr) return true;
  int64_t expected = 1;
  for (int32_t i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    if (__builtin_mul_overflow(expected, tensor.shape[i], &expected)) return false;
  }
  return true;
}

// A compact tensor on a GPU as an arena on `device`. The memory stays the tensor's, which must be
// kept until the arena is freed. INVALID_ARGUMENT for a tensor that is not compact or not on a GPU.
// ferry_arena_import_cuda says what memory can be shared.
inline Result<Arena> Import(Session& session, uint64_t device, const ManagedTensor& managed) {
  const Tensor& tensor = managed.tensor;
  // The library refuses a null pointer with a text that says so, and more bytes than are there.
  const bool fits = tensor.device.type == kCuda && Compact(tensor);
  void* data = fits ? static_cast<char*>(tensor.data) + tensor.byte_offset : nullptr;
  return cuda::ImportArena(session, device, data, Bytes(tensor).value_or(UINT64_MAX));
}

}  // namespace ferry::dlpack
