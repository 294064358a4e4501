// SPDX-License-Identifier: Apache-2.0
#include "compute/host/library_product.h"

#include <omp.h>

#include <algorithm>
#include <dnnl.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "compute/host/view.h"

namespace ferry::compute {
namespace {

using A = Attribute;
using Tag = dnnl::memory::data_type;

constexpr uint64_t kAlignment = 64;
constexpr int64_t kLeastFlops = 1 << 20;  // below, making ready takes longer than the product

// [batches, rows, depth] of a side, if strides say it.
std::optional<View> MatricesOf(const TensorType& type, absl::Span<const int64_t> batch,
                               int64_t contract) {
  std::vector<size_t> order;
  std::vector<int64_t> dims = {1, 1, type.dims[static_cast<size_t>(contract)]};
  for (const int64_t d : batch) {
    order.push_back(static_cast<size_t>(d));
    dims[0] *= type.dims[static_cast<size_t>(d)];
  }
  for (size_t d = 0; d < type.dims.size(); ++d) {
    const auto at = static_cast<int64_t>(d);
    if (at == contract || std::count(batch.begin(), batch.end(), at) > 0) continue;
    order.push_back(d);
    dims[1] *= type.dims[d];
  }
  order.push_back(static_cast<size_t>(contract));
  Views views = {LinearView(type.dims)};
  Permute(order, type, views);
  if (!Reshape(views[0], dims)) return std::nullopt;
  View& view = views[0];
  for (size_t d = 0; d < 3; ++d) {
    if (view.dims[d] == 1) view.strides[d] = d == 2 ? 1 : view.dims[2];
  }
  const bool regular = view.strides[1] == 1 || view.strides[2] == 1;
  return regular ? std::optional<View>(view) : std::nullopt;
}

Tag TagOf(DType type) { return type == DType::kF32 ? Tag::f32 : Tag::bf16; }

// The smallest exponent of a value that is not 0, as f32 has it; 255 if all are 0.
template <typename Code>
int SmallestExponent(const std::byte* values, uint64_t count) {
  constexpr int kShift = sizeof(Code) * 8 - 9;
  constexpr Code kMagnitude = static_cast<Code>(~Code{0}) >> 1;
  Code least = kMagnitude;
  for (uint64_t i = 0; i < count; ++i) {
    Code code;
    std::copy_n(values + i * sizeof(Code), sizeof(Code), reinterpret_cast<std::byte*>(&code));
    code &= kMagnitude;
    // 0 becomes the largest there is.
    least = std::min<Code>(least, static_cast<Code>(code - 1) & kMagnitude);
  }
  return least == kMagnitude ? 255 : (least + 1) >> kShift;
}

class Matmul : public LibraryProduct {
 public:
  Matmul(const WholeOp& op, const View& lhs, const View& rhs, size_t parts, uint64_t launches)
      : type_(op.in_types[0].dtype),
        lhs_bytes_(BytesOf(type_, 1)),
        out_bytes_(BytesOf(op.out_types[0].dtype, 1)),
        lhs_elements_(ElementsOf(lhs)),
        rhs_elements_(ElementsOf(rhs)),
        at_once_(parts),
        engine_(dnnl::engine::kind::cpu, 0) {
    const int64_t batches = lhs.dims[0], rows = lhs.dims[1], depth = lhs.dims[2];
    const int64_t columns = rhs.dims[1];
    const auto all = static_cast<int64_t>(parts * launches);
    const int64_t each = (rows + all - 1) / all;
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    for (int64_t first = 0; first < rows; first += each) {
      const int64_t some = std::min(each, rows - first);
      const dnnl::memory::desc left({batches, some, depth}, TagOf(type_),
                                    {lhs.strides[0], lhs.strides[1], lhs.strides[2]});
      const dnnl::memory::desc right({batches, depth, columns}, TagOf(type_),
                                     {rhs.strides[0], rhs.strides[2], rhs.strides[1]});
      const dnnl::memory::desc result({batches, some, columns}, TagOf(op.out_types[0].dtype),
                                      {rows * columns, columns, 1});
      const dnnl::matmul::desc description(left, right, result);
      const dnnl::matmul::primitive_desc made(description, attributes, engine_, true);
      if (!made) {
        parts_.clear();
        break;
      }
      parts_.push_back({dnnl::matmul(made), left, right, result, made.scratchpad_desc(),
                        static_cast<uint64_t>(first * lhs.strides[1]),
                        static_cast<uint64_t>(first * columns)});
      const uint64_t bytes = made.scratchpad_desc().get_size();
      scratch_ = std::max(scratch_, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    }
    omp_set_num_threads(threads);
  }

  bool ok() const { return !parts_.empty(); }
  uint64_t scratch_bytes() const override { return scratch_ * std::min(at_once_, parts_.size()); }

  bool Run(const std::byte* lhs, const std::byte* rhs, std::byte* out, std::byte* scratch,
           Workers* workers, RunControl& control) const override {
    // What is less than the least normal number may be taken for 0, each factor or product.
    const auto least =
        type_ == DType::kF32 ? &SmallestExponent<uint32_t> : &SmallestExponent<uint16_t>;
    const int left = least(lhs, lhs_elements_);
    const int right = least(rhs, rhs_elements_);
    constexpr int kBias = 127;
    constexpr int kSpare = 24;  // what is dropped is no more than a rounding of what is not
    if (left == 0 || right == 0 || left + right - kBias < 1 + kSpare) return false;
    const auto run = [&](size_t index, std::byte* spare) {
      const Part& part = parts_[index];
      omp_set_num_threads(1);  // of this thread
      dnnl::stream stream(engine_);
      const auto memory = [&](const dnnl::memory::desc& desc, const std::byte* at) {
        return dnnl::memory(desc, engine_, const_cast<std::byte*>(at));
      };
      part.matmul.execute(stream,
                          {{DNNL_ARG_SRC, memory(part.left, lhs + part.lhs_offset * lhs_bytes_)},
                           {DNNL_ARG_WEIGHTS, memory(part.right, rhs)},
                           {DNNL_ARG_DST, memory(part.result, out + part.out_offset * out_bytes_)},
                           {DNNL_ARG_SCRATCHPAD, memory(part.scratch, spare)}});
      stream.wait();
    };
    for (size_t first = 0; first < parts_.size() && !control.Stops(); first += at_once_) {
      const size_t some = std::min(at_once_, parts_.size() - first);
      const auto launch = [&](size_t index) { run(first + index, scratch + index * scratch_); };
      if (workers != nullptr) {
        workers->Run(some, launch);
      } else {
        for (size_t i = 0; i < some; ++i) launch(i);
      }
    }
    return true;
  }

 private:
  struct Part {
    dnnl::matmul matmul;
    dnnl::memory::desc left, right, result, scratch;
    uint64_t lhs_offset = 0;  // in elements
    uint64_t out_offset = 0;
  };

  const DType type_;
  const uint64_t lhs_bytes_;
  const uint64_t out_bytes_;
  const uint64_t lhs_elements_;
  const uint64_t rhs_elements_;
  const size_t at_once_;  // parts that have scratch
  dnnl::engine engine_;
  std::vector<Part> parts_;
  uint64_t scratch_ = 0;  // of a part
};

}  // namespace

std::unique_ptr<LibraryProduct> LibraryProduct::Make(const WholeOp& op, size_t parts,
                                                     uint64_t launches) {
  if (op.node.op != Op::kDotGeneral) return nullptr;
  const DType type = op.in_types[0].dtype;
  const DType result = op.out_types[0].dtype;
  const bool types = op.in_types[1].dtype == type &&
                     ((type == DType::kF32 && result == DType::kF32) ||
                      (type == DType::kBF16 && (result == DType::kF32 || result == DType::kBF16)));
  const bool sums = !op.node.attributes.Has(A::kAccumulate) ||
                    op.node.attributes.Int(A::kAccumulate) != static_cast<int64_t>(DType::kF64);
  if (!types || !sums) return nullptr;
  const auto ints = [&](A attribute) { return op.node.attributes.Ints(attribute); };
  const auto lhs = MatricesOf(op.in_types[0], ints(A::kLhsBatch), ints(A::kLhsContract)[0]);
  const auto rhs = MatricesOf(op.in_types[1], ints(A::kRhsBatch), ints(A::kRhsContract)[0]);
  if (!lhs || !rhs) return nullptr;
  // It divides by dimensions of 0.
  const int64_t products = lhs->dims[0] * lhs->dims[1] * lhs->dims[2] * rhs->dims[1];
  if (products < kLeastFlops) return nullptr;
  try {  // the library's own way to say that it cannot, so in a process that may not make code
    auto made = std::make_unique<Matmul>(op, *lhs, *rhs, parts, launches);
    if (made->ok()) return made;
  } catch (const dnnl::error&) {
  }
  return nullptr;
}

}  // namespace ferry::compute
