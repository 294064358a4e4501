// SPDX-License-Identifier: Apache-2.0
#include "compute/host/library_product.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <dnnl.hpp>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace ferry::compute {
namespace {

using Desc = dnnl::memory::desc;
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

class Matmul : public LibraryProduct {
 public:
  Matmul(const LibraryFactors& factors, DType result, bool packed, size_t parts, uint64_t launches)
      : left_type_(factors.left_type),
        left_bytes_(BytesOf(factors.left_type, 1)),
        out_bytes_(BytesOf(result, 1)),
        at_once_(parts),
        engine_(dnnl::engine::kind::cpu, 0) {
    const View& lhs = factors.left;
    const View& rhs = factors.right;
    const int64_t batches = lhs.dims[0], rows = lhs.dims[1], depth = lhs.dims[2];
    const int64_t columns = rhs.dims[1];
    const auto all = static_cast<int64_t>(parts * launches);
    const int64_t each = (rows + all - 1) / all;
    const OneThread one;
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    // One matrix has two dimensions: of three it would see strides of the first one that are none
    // of a dense tensor, for which it has slower code that also allocates.
    const auto of_matrices = [batches](dnnl::memory::dims matrix, int64_t all) {
      if (batches > 1) matrix.insert(matrix.begin(), all);
      return matrix;
    };
    const dnnl::memory::dims right_dims = of_matrices({depth, columns}, batches);
    plain_ = Desc(right_dims, TagOf(factors.right_type),
                  of_matrices({rhs.strides[2], rhs.strides[1]}, rhs.strides[0]));
    right_ = plain_;
    if (packed) {  // as the first part, which is the largest, would have it
      right_ = Desc(right_dims, TagOf(factors.right_type), dnnl::memory::format_tag::any);
    }
    for (int64_t first = 0; first < rows; first += each) {
      const int64_t some = std::min(each, rows - first);
      const Desc left(of_matrices({some, depth}, batches), TagOf(factors.left_type),
                      of_matrices({lhs.strides[1], lhs.strides[2]}, lhs.strides[0]));
      const Desc out(of_matrices({some, columns}, batches), TagOf(result),
                     of_matrices({columns, 1}, rows * columns));
      const dnnl::matmul::primitive_desc made(dnnl::matmul::desc(left, right_, out), attributes,
                                              engine_, true);
      if (!made || LosesTheLastGroup(made.impl_info_str(), factors.left_type, depth)) {
        parts_.clear();
        return;
      }
      implementations_.insert(made.impl_info_str());
      right_ = made.weights_desc();
      parts_.push_back({dnnl::matmul(made), left, out, made.scratchpad_desc(),
                        static_cast<uint64_t>(first), static_cast<uint64_t>(some),
                        static_cast<uint64_t>(first * lhs.strides[1]),
                        static_cast<uint64_t>(first * columns)});
      scratch_ = std::max(scratch_, Aligned(made.scratchpad_desc().get_size()));
    }
    if (packed && right_ != plain_) {
      dnnl::primitive_attr unaided;
      unaided.set_scratchpad_mode(dnnl::scratchpad_mode::user);
      const dnnl::reorder::primitive_desc made(engine_, plain_, engine_, right_, unaided, true);
      if (!made || made.scratchpad_desc().get_size() > 0) {
        parts_.clear();
        return;
      }
      reorder_ = dnnl::reorder(made);
      packed_bytes_ = Aligned(right_.get_size());
    }
  }

  bool ok() const { return !parts_.empty(); }
  // What the library calls the code that multiplies the parts.
  const std::set<std::string>& implementations() const { return implementations_; }
  bool drops_small() const override;
  uint64_t scratch_bytes() const override { return scratch_ * std::min(at_once_, parts_.size()); }
  uint64_t packed_bytes() const override { return packed_bytes_; }

  void Pack(const std::byte* right, std::byte* packed) const override {
    const OneThread one;
    dnnl::stream stream(engine_);
    dnnl::memory from(plain_, engine_, const_cast<std::byte*>(right));
    dnnl::memory to(right_, engine_, packed);
    reorder_.execute(stream, from, to);
    stream.wait();
  }

  void Run(const std::byte* lhs, const std::byte* rhs, std::byte* out, std::byte* scratch,
           Workers* workers, RunControl& control,
           absl::FunctionRef<void(uint64_t first, uint64_t end)> over) const override {
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

 private:
  struct Part {
    dnnl::matmul matmul;
    Desc left, out, scratch;
    uint64_t first = 0;
    uint64_t rows = 0;
    uint64_t left_offset = 0;  // in elements
    uint64_t out_offset = 0;
  };

  const DType left_type_;
  const uint64_t left_bytes_;
  const uint64_t out_bytes_;
  const size_t at_once_;  // parts that have scratch
  dnnl::engine engine_;
  Desc plain_, right_;  // the right side, as it is and as the product has it
  dnnl::reorder reorder_;
  uint64_t packed_bytes_ = 0;
  std::vector<Part> parts_;
  std::set<std::string> implementations_;
  uint64_t scratch_ = 0;  // of a part
};

std::unique_ptr<Matmul> MakeMatmul(const LibraryFactors& factors, DType result, bool packed,
                                   size_t parts, uint64_t launches) {
  try {  // the library's own way to say that it cannot, so in a process that may not make code
    auto made = std::make_unique<Matmul>(factors, result, packed, parts, launches);
    if (made->ok()) return made;
  } catch (const dnnl::error&) {
  }
  return nullptr;
}

std::byte* AlignedIn(std::byte* memory) {
  return memory + (kAlignment - reinterpret_cast<uintptr_t>(memory) % kAlignment);
}

View DenseView(int64_t rows, int64_t depth) {
  return {0, {1, rows, depth}, {rows * depth, depth, 1}};
}

// What a product is tried with: all elements are the same.
template <typename Left, typename Right, typename Sum>
struct Trial {
  DType left_type, right_type, sum_type;
  Left left;
  Right right;
  int64_t depth;
  Sum sum;                          // that it should come to
  int64_t rows = 37, columns = 45;  // parts of blocks too
};

// Of such factors.
template <typename Left, typename Right, typename Sum>
bool ComesTo(const Trial<Left, Right, Sum>& trial, const Matmul& product) {
  const std::vector<Left> lhs(static_cast<size_t>(trial.rows * trial.depth), trial.left);
  const std::vector<Right> rhs(static_cast<size_t>(trial.columns * trial.depth), trial.right);
  std::vector<Sum> sums(static_cast<size_t>(trial.rows * trial.columns));
  std::vector<std::byte> scratch(product.scratch_bytes() + kAlignment);
  std::vector<std::byte> order(product.packed_bytes() + kAlignment);
  const auto* weights = reinterpret_cast<const std::byte*>(rhs.data());
  if (product.packed_bytes() > 0) {
    product.Pack(weights, AlignedIn(order.data()));
    weights = AlignedIn(order.data());
  }
  RunControl control;
  product.Run(reinterpret_cast<const std::byte*>(lhs.data()), weights,
              reinterpret_cast<std::byte*>(sums.data()), AlignedIn(scratch.data()), nullptr,
              control, [](uint64_t, uint64_t) {});
  return std::all_of(sums.begin(), sums.end(), [&](Sum sum) { return sum == trial.sum; });
}

template <typename Left, typename Right, typename Sum>
std::unique_ptr<Matmul> MakeTrial(const Trial<Left, Right, Sum>& trial, bool packed) {
  return MakeMatmul({trial.left_type, trial.right_type, DenseView(trial.rows, trial.depth),
                     DenseView(trial.columns, trial.depth)},
                    trial.sum_type, packed, 1, 1);
}

// Up to this depth every sum of products of 8-bit integers is an integer that an f32 holds.
constexpr int64_t kFewProducts = 512;

// Which sums of an implementation of the library's are exact modulo 2^32; empty: none was tried.
struct Exact {
  std::optional<bool> few;   // of at most kFewProducts
  std::optional<bool> many;  // of more
};
using ExactBy = std::map<std::string, Exact>;  // by the implementation's name

// Whether integers are exact here: by trying, once, whatever the CPU says it has. CPUs that have no
// instruction for it add two products as 16 bits first, and keep the largest of what does not fit;
// and oneDNN 2.6 has sums of some small products with VNNI go through f32.
template <typename Left>
ExactBy TryIntegers(DType type, std::array<Left, 2> most) {
  ExactBy exact;
  // The sums of the last but one are more than an f32 holds, those of the last more than an i32.
  for (const int64_t depth :
       {int64_t{7}, int64_t{64}, kFewProducts, int64_t{1051}, int64_t{150001}}) {
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{8, 8}, {37, 45}}) {
      for (const Left left : most) {
        for (const int8_t right : {-128, 127}) {
          const auto sum = static_cast<int32_t>(static_cast<uint32_t>(left * right * depth));
          const Trial<Left, int8_t, int32_t> trial = {type,  DType::kI8, DType::kI32, left,   right,
                                                      depth, sum,        rows,        columns};
          for (const bool packed : {false, true}) {
            const auto product = MakeTrial(trial, packed);
            if (product == nullptr) continue;
            const bool right_sums = ComesTo(trial, *product);
            for (const std::string& name : product->implementations()) {
              std::optional<bool>& so_far =
                  depth <= kFewProducts ? exact[name].few : exact[name].many;
              so_far = so_far.value_or(true) && right_sums;
            }
          }
        }
      }
    }
  }
  return exact;
}

// What no trial of the implementation was like is not believed.
bool IsExact(const Matmul& product, DType left_type, int64_t depth) {
  static const ExactBy of_signed = TryIntegers(DType::kI8, std::array<int8_t, 2>{-128, 127});
  static const ExactBy of_unsigned = TryIntegers(DType::kU8, std::array<uint8_t, 2>{1, 255});
  const ExactBy& tried = left_type == DType::kI8 ? of_signed : of_unsigned;
  const auto& names = product.implementations();
  return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    const auto found = tried.find(name);
    if (found == tried.end()) return false;
    return (depth <= kFewProducts ? found->second.few : found->second.many) == true;
  });
}

// Whether f32 below the least normal number count, as factors and as products: by trying, once.
bool AreSmallF32Exact() {
  static const bool exact = [] {
    constexpr DType kType = DType::kF32;
    for (const int64_t depth : {7, 64, 1051}) {
      const float sum = static_cast<float>(depth) * 0x1p-140f;
      for (const auto& [left, right] :
           {std::pair(0x1p-140f, 1.0f), {1.0f, 0x1p-140f}, {0x1p-70f, 0x1p-70f}}) {
        const Trial<float, float, float> trial = {kType, kType, kType, left, right, depth, sum};
        for (const bool packed : {false, true}) {
          const auto product = MakeTrial(trial, packed);
          if (product == nullptr || !ComesTo(trial, *product)) return false;
        }
      }
    }
    return true;
  }();
  return exact;
}

bool Matmul::drops_small() const {
  return InfoOf(left_type_).floating && (left_type_ != DType::kF32 || !AreSmallF32Exact());
}

}  // namespace

std::unique_ptr<LibraryProduct> LibraryProduct::Make(const LibraryFactors& factors, DType result,
                                                     bool packed, size_t parts, uint64_t launches) {
  const DType left = factors.left_type;
  const DType right = factors.right_type;
  const bool integers =
      (left == DType::kI8 || left == DType::kU8) && right == DType::kI8 && result == DType::kI32;
  const bool floats = left == right &&
                      ((left == DType::kF32 && result == DType::kF32) ||
                       (left == DType::kBF16 && (result == DType::kF32 || result == DType::kBF16)));
  if ((!floats && !integers) || !LibraryProblem().empty()) return nullptr;
  // It divides by dimensions of 0.
  const auto empty = [](const View& view) { return ElementsOf(view) == 0; };
  if (empty(factors.left) || empty(factors.right)) return nullptr;
  auto made = MakeMatmul(factors, result, packed, parts, launches);
  if (made == nullptr || (integers && !IsExact(*made, left, factors.left.dims[2]))) return nullptr;
  return made;
}

const std::string& LibraryProblem() {
  static const std::string problem = [] {
    try {  // to make one is not enough: some code is made by the first run
      constexpr int64_t kSide = 64;
      const View view = DenseView(kSide, kSide);
      const Matmul matmul({DType::kF32, DType::kF32, view, view}, DType::kF32, false, 1, 1);
      if (!matmul.ok()) return std::string("it has no product of f32 here");
      const std::vector<float> ones(kSide * kSide, 1.0f);
      std::vector<float> sums(kSide * kSide);
      std::vector<float> scratch((matmul.scratch_bytes() + kAlignment) / sizeof(float));
      RunControl control;
      const auto* factor = reinterpret_cast<const std::byte*>(ones.data());
      matmul.Run(factor, factor, reinterpret_cast<std::byte*>(sums.data()),
                 AlignedIn(reinterpret_cast<std::byte*>(scratch.data())), nullptr, control,
                 [](uint64_t, uint64_t) {});
      if (sums.back() != static_cast<float>(kSide)) return std::string("its products are wrong");
      return std::string();
    } catch (const dnnl::error& why) {
      return absl::StrCat("it cannot make code in this process: ", why.what());
    }
  }();
  return problem;
}

}  // namespace ferry::compute
