// SPDX-License-Identifier: Apache-2.0
#include "tests/compute/cuda/runs/gpu_run.h"

#include <gtest/gtest.h>

#include <utility>

#include "compute/numerics/scale_layout.h"

namespace ferry::compute::testing {
namespace {

class GpuRun {
 public:
  GpuRun(const GpuPlan& plan, const std::vector<Bytes>& buffers, GpuMachine& machine)
      : plan_(plan), machine_(machine) {
    for (const Bytes& buffer : buffers) buffers_.push_back(machine.Allocate(buffer));
    scratch_ =
        machine.Allocate(Bytes(plan.scratch_bytes, std::byte{0xA5}));  // nothing is 0 by luck
  }

  void Run(const std::vector<GpuCommand>& commands) {
    for (const GpuCommand& command : commands) {
      switch (command.kind) {
        case GpuCommand::Kind::kLaunch: {
          std::vector<std::pair<uint64_t, uint32_t>> arguments{{0, 8}, {0, 8}};  // tells nobody
          for (const GpuArgument& argument : command.arguments) {
            arguments.emplace_back(argument.place ? AddressOf(*argument.place)
                                                  : static_cast<uint64_t>(argument.number),
                                   argument.bytes);
          }
          machine_.Launch(plan_.kernels[command.kernel].name, command.blocks, command.threads,
                          arguments);
          break;
        }
        case GpuCommand::Kind::kCopy:
          machine_.Copy(AddressOf(command.to), AddressOf(command.from), command.bytes);
          break;
        case GpuCommand::Kind::kRepeat:
          for (int64_t trip = 0; trip < command.trips; ++trip) {
            if (command.count) {
              const std::vector<int32_t> count = {static_cast<int32_t>(trip)};
              machine_.Write(AddressOf(*command.count), BytesOfValues(count));
            }
            Run(command.body);
          }
          break;
        case GpuCommand::Kind::kProduct:
          Multiply(command.product);
          break;
        default:
          ADD_FAILURE() << "a command that tests do not carry out";
      }
    }
  }

  std::vector<Bytes> Buffers() {
    std::vector<Bytes> made;
    for (size_t i = 0; i < buffers_.size(); ++i) {
      made.push_back(machine_.Read(buffers_[i], plan_.plan.buffers[i].bytes));
    }
    machine_.FreeAll();
    return made;
  }

 private:
  // In place of the library: sums in f64.
  void Multiply(const GpuProduct& product) {
    const auto read = [&](const GpuMatrix& matrix, int64_t rows, int64_t columns) {
      const int64_t last = (product.batches - 1) * matrix.batch_stride +
                           (rows - 1) * matrix.row_stride + (columns - 1) * matrix.column_stride;
      const auto count = static_cast<uint64_t>(last) + 1;
      const Bytes bytes = machine_.Read(AddressOf(matrix.place), BytesOf(matrix.type, count));
      Bytes wide(count * sizeof(double));
      Convert(matrix.type, bytes.data(), DType::kF64, wide.data(), count);
      std::vector<double> values = ValuesOfBytes<double>(wide);
      if (!matrix.scales) return values;
      const auto of_row = static_cast<uint64_t>(columns / product.block);
      const Bytes scales = machine_.Read(AddressOf(*matrix.scales),
                                         SwizzledScaleBytes(static_cast<uint64_t>(rows), of_row));
      for (uint64_t i = 0; i < count; ++i) {
        const uint64_t row = i / static_cast<uint64_t>(columns);
        const uint64_t block =
            i % static_cast<uint64_t>(columns) / static_cast<uint64_t>(product.block);
        const auto code = static_cast<uint32_t>(scales[SwizzledScaleOffset(row, block, of_row)]);
        values[i] *= DecodeFloat(matrix.scale_type, code);
      }
      return values;
    };
    const std::vector<double> left = read(product.left, product.m, product.k);
    const std::vector<double> right = read(product.right, product.n, product.k);
    std::vector<double> sums;
    for (int64_t batch = 0; batch < product.batches; ++batch) {
      for (int64_t i = 0; i < product.m; ++i) {
        for (int64_t j = 0; j < product.n; ++j) {
          double sum = 0;
          for (int64_t k = 0; k < product.k; ++k) {
            const auto at = [&](const GpuMatrix& matrix, int64_t row) {
              return static_cast<size_t>(batch * matrix.batch_stride + row * matrix.row_stride +
                                         k * matrix.column_stride);
            };
            sum += left[at(product.left, i)] * right[at(product.right, j)];
          }
          sums.push_back(sum);
        }
      }
    }
    if (product.factors) {
      const Bytes factors = machine_.Read(AddressOf(*product.factors), 3 * sizeof(float));
      const std::vector<float> numbers = ValuesOfBytes<float>(factors);
      for (double& sum : sums) sum *= static_cast<double>(numbers[0]);
      if (numbers[1] != 0 || numbers[2] != 1) std::abort();  // what the library would add
    }
    // Results are dense, and so are its batches.
    if (product.adds) {
      const std::vector<double> before = read(product.result, product.m, product.n);
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += before[i];
    }
    Bytes made(BytesOf(product.result.type, sums.size()));
    Convert(DType::kF64, BytesOfValues(sums).data(), product.result.type, made.data(), sums.size());
    machine_.Write(AddressOf(product.result.place), made);
  }

  uint64_t AddressOf(const GpuPlace& place) const {
    if (place.kind == GpuPlace::Kind::kBuffer) return buffers_[place.index] + place.offset;
    return scratch_ + ScratchOffsetOf(plan_, place);
  }

  const GpuPlan& plan_;
  GpuMachine& machine_;
  std::vector<uint64_t> buffers_;
  uint64_t scratch_ = 0;
};

}  // namespace

std::vector<Bytes> RunGpuPlan(const GpuPlan& plan, const std::vector<Bytes>& buffers,
                              GpuMachine& machine) {
  GpuRun run(plan, buffers, machine);
  run.Run(plan.commands);
  return run.Buffers();
}

}  // namespace ferry::compute::testing
