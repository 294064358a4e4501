// SPDX-License-Identifier: Apache-2.0
#include "compute/host/onednn_matmul.h"

#include <omp.h>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace ferry::compute {
namespace {

using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;
using Tag = dnnl::memory::data_type;

constexpr uint64_t kAlignment = 64;

uint64_t Aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

Tag TagOf(DType type) {
  switch (type) {
    case DType::kF32:
      return Tag::f32;
    case DType::kBF16:
      return Tag::bf16;
    case DType::kI8:
      return Tag::s8;
    case DType::kU8:
      return Tag::u8;
    case DType::kI32:
      return Tag::s32;
    default:
      return Tag::undef;
  }
}

// The library has one thread where it is called with this, whatever the environment says.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const int before_;
};

// Whether an implementation of the library's, by its name, is wrong for factors so deep. Those that
// use AMX read a row of a tile in groups of 4 bytes; where the rest of the depth (beyond whole
// tiles of 64 bytes) fills the last group of a tile but in part, oneDNN 2.6 keeps one tile
// configuration for two sizes: with more than 32 rows results are wrong or the CPU refuses the
// instruction.
bool LosesTheLastGroup(absl::string_view implementation, DType type, int64_t depth) {
  constexpr int64_t kTile = 64, kGroup = 4;  // bytes
  const auto rest = static_cast<int64_t>(BytesOf(type, static_cast<uint64_t>(depth))) % kTile;
  return absl::StrContains(implementation, "amx") && rest > kTile - kGroup;
}

// One matrix has two dimensions: of three the library would see strides of the first one that are
// none of a dense tensor, for which it has slower code that also allocates.
Dims OfMatrices(Dims matrix, int64_t batches, int64_t all) {
  if (batches > 1) matrix.insert(matrix.begin(), all);
  return matrix;
}

}  // namespace

std::unique_ptr<OnednnMatmul> OnednnMatmul::Make(const LibraryFactors& factors,
                                                 const Options& options) {
  try {  // the library's own way to say that it cannot, so in a process that may not make code
    auto made = std::make_unique<OnednnMatmul>(factors, options);
    if (made->ok()) return made;
  } catch (const dnnl::error&) {
  }
  return nullptr;
}

OnednnMatmul::OnednnMatmul(const LibraryFactors& factors, const Options& options)
    : left_bytes_(BytesOf(factors.left_type, 1)),
      out_bytes_(BytesOf(options.result, 1)),
      at_once_(options.parts),
      engine_(dnnl::engine::kind::cpu, 0) {
  const View& right = factors.right;
  const int64_t batches = right.dims[0], rows = factors.left.dims[1];
  const Dims dims = OfMatrices({right.dims[2], right.dims[1]}, batches, batches);
  const auto all = static_cast<int64_t>(options.parts * options.launches);
  const int64_t each = (rows + all - 1) / all;
  const OneThread one;
  plain_ = Desc(dims, TagOf(factors.right_type),
                OfMatrices({right.strides[2], right.strides[1]}, batches, right.strides[0]));
  right_ = plain_;
  if (options.packed) {  // as the first part, which is the largest, would have it
    right_ = options.packed_as != nullptr
                 ? options.packed_as->right_
                 : Desc(dims, TagOf(factors.right_type), dnnl::memory::format_tag::any);
  }
  for (int64_t first = 0; first < rows; first += each) {
    if (AddPart(factors, options, first, std::min(each, rows - first))) continue;
    parts_.clear();
    return;
  }
  if (options.packed && right_ != plain_ && !PlanPacking()) parts_.clear();
}

bool OnednnMatmul::AddPart(const LibraryFactors& factors, const Options& options, int64_t first,
                           int64_t rows) {
  const View& lhs = factors.left;
  const int64_t batches = lhs.dims[0], all_rows = lhs.dims[1], depth = lhs.dims[2];
  const int64_t columns = factors.right.dims[1];
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (options.adds) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  const Desc left(OfMatrices({rows, depth}, batches, batches), TagOf(factors.left_type),
                  OfMatrices({lhs.strides[1], lhs.strides[2]}, batches, lhs.strides[0]));
  const Desc out(OfMatrices({rows, columns}, batches, batches), TagOf(options.result),
                 OfMatrices({columns, 1}, batches, all_rows * columns));
  const dnnl::matmul::primitive_desc made(dnnl::matmul::desc(left, right_, out), attributes,
                                          engine_, true);
  if (!made || LosesTheLastGroup(made.impl_info_str(), factors.left_type, depth)) return false;
  implementations_.insert(made.impl_info_str());
  right_ = made.weights_desc();
  parts_.push_back({dnnl::matmul(made), left, out, made.scratchpad_desc(),
                    static_cast<uint64_t>(first), static_cast<uint64_t>(rows),
                    static_cast<uint64_t>(first * lhs.strides[1]),
                    static_cast<uint64_t>(first * columns)});
  scratch_ = std::max(scratch_, Aligned(made.scratchpad_desc().get_size()));
  return true;
}

bool OnednnMatmul::PlanPacking() {
  dnnl::primitive_attr unaided;
  unaided.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::reorder::primitive_desc made(engine_, plain_, engine_, right_, unaided, true);
  if (!made || made.scratchpad_desc().get_size() > 0) return false;
  reorder_ = dnnl::reorder(made);
  packed_bytes_ = Aligned(right_.get_size());
  return true;
}

void OnednnMatmul::Pack(const std::byte* right, std::byte* packed) const {
  const OneThread one;
  dnnl::stream stream(engine_);
  dnnl::memory from(plain_, engine_, const_cast<std::byte*>(right));
  dnnl::memory to(right_, engine_, packed);
  reorder_.execute(stream, from, to);
  stream.wait();
}

void OnednnMatmul::Run(const std::byte* lhs, const std::byte* rhs, std::byte* out,
                       std::byte* scratch, Workers* workers, RunControl& control,
                       absl::FunctionRef<void(uint64_t first, uint64_t end)> over) const {
  const auto run = [&](size_t index, std::byte* spare) {
    const Part& part = parts_[index];
    const OneThread one;
    dnnl::stream stream(engine_);
    const auto memory = [&](const Desc& desc, const std::byte* at) {
      return dnnl::memory(desc, engine_, const_cast<std::byte*>(at));
    };
    part.matmul.execute(stream,
                        {{DNNL_ARG_SRC, memory(part.left, lhs + part.left_offset * left_bytes_)},
                         {DNNL_ARG_WEIGHTS, memory(right_, rhs)},
                         {DNNL_ARG_DST, memory(part.out, out + part.out_offset * out_bytes_)},
                         {DNNL_ARG_SCRATCHPAD, memory(part.scratch, spare)}});
    stream.wait();
    over(part.first, part.first + part.rows);
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
}

}  // namespace ferry::compute
