// SPDX-License-Identifier: Apache-2.0
// All functions of libferry's C headers, as make_table.py found them, to be called with arguments
// that are known only at run time. Constant.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "ferry/ferry.hpp"
#include "ferry/ferry_cuda.h"

namespace ferry::testing {

struct Parameter {
  std::string type;  // "const ferry_batch*"
  std::string name;

  bool is_pointer() const {
    return type.find('*') != std::string::npos || type == "ferry_cuda_stream";
  }
};

// The arguments of a call, by position; pointers and numbers alike.
class Arguments {
 public:
  explicit Arguments(std::vector<uint64_t> values) : values_(std::move(values)) {}

  template <typename T>
  T Get(size_t index) const {
    if constexpr (std::is_pointer_v<T>) {
      return reinterpret_cast<T>(values_[index]);
    } else {
      return static_cast<T>(values_[index]);
    }
  }
  void Set(size_t index, uint64_t value) { values_[index] = value; }

 private:
  std::vector<uint64_t> values_;
};

struct Nothing {};

// What a call has returned. A new type of result needs a line here.
struct Outcome {
  explicit Outcome(ferry_status* owned) : is_status(true), status(owned) {}
  explicit Outcome(Nothing) : nothing(true) {}
  explicit Outcome(const char* text) : none(*text == '\0') {}
  explicit Outcome(const unsigned char* fingerprint) : none(*fingerprint == 0) {}
  explicit Outcome(const void* pointer) : none(pointer == nullptr) {}
  explicit Outcome(uint64_t value) : none(value == 0) {}
  explicit Outcome(uint32_t value) : none(value == 0) {}
  explicit Outcome(int value) : none(value == 0) {}
  explicit Outcome(const ferry_device& device)
      : none(device.global_device_id == 0 && device.kind == 0 && *device.name == '\0') {}
  explicit Outcome(const ferry_limits& limits)
      : none(limits.struct_size == sizeof(limits) && limits.bytes == 0 && limits.arenas == 0) {}
  explicit Outcome(const ferry_cluster_device& device)
      : none(device.global_device_id == 0 && *device.name == '\0' && *device.node == '\0') {}
  explicit Outcome(const ferry_program_buffer& buffer)
      : none(*buffer.name == '\0' && buffer.access == 0 && buffer.bytes == 0) {}
  explicit Outcome(const ferry_stream_counts&) {}

  bool is_status = false;
  Status status;
  bool none = true;      // the result is 0, NULL, "", or a struct of these
  bool nothing = false;  // the function returns nothing
};

struct Function {
  std::string name;
  std::vector<Parameter> parameters;
  Outcome (*call)(const Arguments& arguments);
};

const std::vector<Function>& AllFunctions();

}  // namespace ferry::testing
