// SPDX-License-Identifier: Apache-2.0
// A fake libcublasLt: fake_cublaslt.h.
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "fake_cublaslt.h"

namespace {

constexpr int kSuccess = 0;
constexpr int kNotInitialized = 1;
constexpr int kInvalidValue = 7;
constexpr int kExecutionFailed = 13;
constexpr int kNotSupported = 15;
enum Type : int { kF32 = 0, kF64 = 1, kF16 = 2, kBF16 = 14 };
constexpr int kComputeF32 = 68;
constexpr int kComputeF64 = 70;
constexpr uint64_t kMark = 0xFE2247;  // of an algorithm that the fake has chosen
constexpr uint64_t kWorkspace = 4096;

struct Settings {
  uint64_t version = 130100, cuda = 13000, no_choice = 0, fail_create = 0, fail_queue = 0;
  uint64_t no_type = ~uint64_t{0};
};
struct State {
  std::mutex mutex;  // guards `settings`
  Settings settings;
  std::atomic<uint64_t> handles{0}, objects{0}, asked{0}, products{0};
};

void Apply(Settings& settings, const std::string& text) {
  std::stringstream stream(text);
  for (std::string item; std::getline(stream, item, ';');) {
    const size_t at = item.find('=');
    const uint64_t value =
        at == std::string::npos ? 0 : strtoull(item.c_str() + at + 1, nullptr, 10);
    const std::string name = item.substr(0, at);
    if (name == "version") settings.version = value;
    if (name == "cuda") settings.cuda = value;
    if (name == "no_choice") settings.no_choice = value;
    if (name == "no_type") settings.no_type = value;
    if (name == "fail_create") settings.fail_create = value;
    if (name == "fail_queue") settings.fail_queue = value;
  }
}

State& Get() {
  static State* const state = [] {
    auto* made = new State;
    if (const char* text = getenv("FERRY_FAKE_CUBLASLT")) Apply(made->settings, text);
    return made;
  }();
  return *state;
}
Settings SettingsNow() {
  std::lock_guard lock(Get().mutex);
  return Get().settings;
}

[[noreturn]] void Story(const std::string& text) {
  fprintf(stderr, "fake cuBLASLt: %s\n", text.c_str());
  fflush(stderr);
  abort();
}

struct Counted {
  Counted() { ++Get().objects; }
  Counted(const Counted&) { ++Get().objects; }
  ~Counted() { --Get().objects; }
};
struct Handle {
  CUcontext context = nullptr;
};
struct Product : Counted {
  int compute = 0;
  int transpose_a = 0;
  int transpose_b = 0;
};
struct Layout : Counted {
  int type = 0;
  uint64_t rows = 0, columns = 0;
  int64_t stride = 0, batch_stride = 0;
  int batches = 1;
};
struct Preference : Counted {
  uint64_t workspace = 0;
  uint32_t reductions = 7;
  uint32_t alignments[4] = {256, 256, 256, 256};
};
struct Choice {
  uint64_t algorithm[8];
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

template <typename T>
void Read(const void* value, size_t bytes, T& to) {
  if (bytes != sizeof(T)) Story("an attribute of " + std::to_string(bytes) + " bytes");
  memcpy(&to, value, sizeof(T));
}

size_t SizeOf(int type) { return type == kF64 ? 8 : type == kF32 ? 4 : 2; }

double ValueAt(int type, const std::byte* memory, int64_t index) {
  const std::byte* const at = memory + index * static_cast<int64_t>(SizeOf(type));
  if (type == kF64) {
    double value;
    memcpy(&value, at, sizeof(value));
    return value;
  }
  if (type == kF16) {
    _Float16 value;
    memcpy(&value, at, sizeof(value));
    return static_cast<double>(value);
  }
  uint32_t bits = 0;
  memcpy(&bits, at, SizeOf(type));
  if (type == kBF16) bits <<= 16;
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

void Put(int type, double value, std::byte* memory, int64_t index) {
  std::byte* const at = memory + index * static_cast<int64_t>(SizeOf(type));
  if (type == kF64) {
    memcpy(at, &value, sizeof(value));
    return;
  }
  const auto narrow = static_cast<float>(value);
  uint32_t bits;
  memcpy(&bits, &narrow, sizeof(bits));
  if (type != kF32 && std::isnan(narrow)) {
    bits = 0x7FFF;
  } else if (type == kF16) {
    const auto half = static_cast<_Float16>(narrow);
    memcpy(&bits, &half, sizeof(half));
  } else if (type == kBF16) {
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  }
  memcpy(at, &bits, SizeOf(type));
}

// A sum that tensor cores make: two bits more than f32 has, and no rounding.
double Cut(double sum) {
  if (sum == 0 || !std::isfinite(sum)) return sum;
  int exponent = 0;
  std::frexp(sum, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - 26, -149));
  return std::trunc(sum / unit) * unit;
}

struct Side {
  Layout layout;
  bool transposed = false;
  const std::byte* memory = nullptr;

  int64_t rows() const { return static_cast<int64_t>(transposed ? layout.columns : layout.rows); }
  int64_t columns() const {
    return static_cast<int64_t>(transposed ? layout.rows : layout.columns);
  }
  double At(int64_t batch, int64_t row, int64_t column) const {
    if (transposed) std::swap(row, column);
    return ValueAt(layout.type, memory, batch * layout.batch_stride + column * layout.stride + row);
  }
};

struct Work {
  int compute = 0;
  bool rough = false;  // partial sums may be of the result's type
  double alpha = 0, beta = 0;
  Side a, b;
  Layout result;
  std::byte* to = nullptr;
  std::byte* workspace = nullptr;
  size_t workspace_bytes = 0;
};

double SumOf(const Work& work, int64_t batch, int64_t i, int64_t j) {
  const int64_t depth = work.a.columns();
  const bool narrow = SizeOf(work.a.layout.type) == 2;
  double sum = 0;
  for (int64_t k = 0; k < depth;) {
    double terms = 0;
    const int64_t end = narrow ? std::min<int64_t>(k + 16, depth) : k + 1;
    for (; k < end; ++k) terms += work.a.At(batch, i, k) * work.b.At(batch, k, j);
    sum += terms;
    if (work.compute == kComputeF32) sum = narrow ? Cut(sum) : static_cast<float>(sum);
    if (work.rough && k % 256 == 0) {
      std::byte partial[sizeof(double)];
      Put(work.result.type, sum, partial, 0);
      sum = ValueAt(work.result.type, partial, 0);
    }
  }
  return sum;
}

void Multiply(const Work& work) {
  memset(work.workspace, 0x5A, work.workspace_bytes);
  for (int batch = 0; batch < work.result.batches; ++batch) {
    for (int64_t j = 0; j < static_cast<int64_t>(work.result.columns); ++j) {
      for (int64_t i = 0; i < static_cast<int64_t>(work.result.rows); ++i) {
        const int64_t at = batch * work.result.batch_stride + j * work.result.stride + i;
        double made = work.alpha * SumOf(work, batch, i, j);
        if (work.beta != 0) made += work.beta * ValueAt(work.result.type, work.to, at);
        Put(work.result.type, made, work.to, at);
      }
    }
  }
}

void CheckLayout(const Layout& layout, const char* name) {
  if (layout.stride < static_cast<int64_t>(layout.rows)) {
    Story(std::string(name) + " has columns of " + std::to_string(layout.rows) + " elements, " +
          std::to_string(layout.stride) + " apart");
  }
  if (layout.rows == 0 || layout.columns == 0 || layout.batches < 1) {
    Story(std::string(name) + " is empty");
  }
}

// Where the last element of the matrices ends, in bytes.
size_t EndOf(const Layout& layout) {
  const int64_t last = (layout.batches - 1) * layout.batch_stride +
                       (static_cast<int64_t>(layout.columns) - 1) * layout.stride +
                       static_cast<int64_t>(layout.rows);
  return static_cast<size_t>(last) * SizeOf(layout.type);
}

// What an algorithm was chosen for.
uint64_t ShapeOf(const Product& product, const Layout& a, const Layout& b, const Layout& d) {
  uint64_t shape = static_cast<uint64_t>(product.compute);
  const auto mix = [&](uint64_t value) { shape = (shape ^ value) * 0x9E3779B97F4A7C15; };
  mix(static_cast<uint64_t>(product.transpose_a * 2 + product.transpose_b));
  for (const Layout* layout : {&a, &b, &d}) {
    mix(static_cast<uint64_t>(layout->type));
    mix(layout->rows);
    mix(layout->columns);
    mix(static_cast<uint64_t>(layout->stride));
    mix(static_cast<uint64_t>(layout->batch_stride));
    mix(static_cast<uint64_t>(layout->batches));
  }
  return shape;
}

bool Supported(const Product& product, const Layout& a, const Layout& b, const Layout& d) {
  if (a.type != b.type) return false;
  if (product.compute == kComputeF64) return a.type == kF64 && d.type == kF64;
  return a.type != kF64 && (d.type == kF32 || d.type == a.type);
}

template <typename T>
T& As(void* object) {
  if (object == nullptr) Story("nothing where an object should be");
  return *static_cast<T*>(object);
}

}  // namespace

extern "C" {

void fake_cublaslt_configure(const char* settings) {
  std::lock_guard lock(Get().mutex);
  Apply(Get().settings, settings);
}

void fake_cublaslt_get_counts(fake_cublaslt_counts* counts) {
  *counts = {Get().handles, Get().objects, Get().asked, Get().products};
}

size_t cublasLtGetVersion() { return SettingsNow().version; }
size_t cublasLtGetCudartVersion() { return SettingsNow().cuda; }

const char* cublasLtGetStatusName(int status) {
  switch (status) {
    case kSuccess:
      return "CUBLAS_STATUS_SUCCESS";
    case kNotInitialized:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case kInvalidValue:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case kNotSupported:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
  }
}

int cublasLtCreate(void** handle) {
  CUcontext context = nullptr;
  if (cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr) {
    Story("a handle is made without a context");
  }
  if (SettingsNow().fail_create != 0) return kNotInitialized;
  ++Get().handles;
  *handle = new Handle{context};
  return kSuccess;
}

int cublasLtDestroy(void* handle) {
  CUcontext context = nullptr;
  cuCtxGetCurrent(&context);
  if (context != As<Handle>(handle).context) Story("a handle ends in another context");
  --Get().handles;
  delete &As<Handle>(handle);
  return kSuccess;
}

int cublasLtMatmulDescCreate(void** made, int compute, int scale) {
  if (scale != (compute == kComputeF64 ? kF64 : kF32)) Story("factors of another type than sums");
  if (compute != kComputeF32 && compute != kComputeF64) return kNotSupported;
  auto product = std::make_unique<Product>();
  product->compute = compute;
  *made = product.release();
  return kSuccess;
}

int cublasLtMatmulDescDestroy(void* made) {
  delete &As<Product>(made);
  return kSuccess;
}

int cublasLtMatmulDescSetAttribute(void* made, int attribute, const void* value, size_t bytes) {
  if (attribute != 3 && attribute != 4) return kInvalidValue;
  Read(value, bytes,
       attribute == 3 ? As<Product>(made).transpose_a : As<Product>(made).transpose_b);
  return kSuccess;
}

int cublasLtMatrixLayoutCreate(void** made, int type, uint64_t rows, uint64_t columns,
                               int64_t stride) {
  if (type != kF32 && type != kF64 && type != kF16 && type != kBF16) return kNotSupported;
  auto layout = std::make_unique<Layout>();
  layout->type = type;
  layout->rows = rows;
  layout->columns = columns;
  layout->stride = stride;
  *made = layout.release();
  return kSuccess;
}

int cublasLtMatrixLayoutDestroy(void* made) {
  delete &As<Layout>(made);
  return kSuccess;
}

int cublasLtMatrixLayoutSetAttribute(void* made, int attribute, const void* value, size_t bytes) {
  if (attribute == 5) {
    Read(value, bytes, As<Layout>(made).batches);
  } else if (attribute == 6) {
    Read(value, bytes, As<Layout>(made).batch_stride);
  } else {
    return kInvalidValue;
  }
  return kSuccess;
}

int cublasLtMatmulPreferenceCreate(void** made) {
  *made = new Preference;
  return kSuccess;
}

int cublasLtMatmulPreferenceDestroy(void* made) {
  delete &As<Preference>(made);
  return kSuccess;
}

int cublasLtMatmulPreferenceSetAttribute(void* made, int attribute, const void* value,
                                         size_t bytes) {
  auto& preference = As<Preference>(made);
  if (attribute == 1) {
    Read(value, bytes, preference.workspace);
  } else if (attribute == 3) {
    Read(value, bytes, preference.reductions);
  } else if (attribute >= 5 && attribute <= 8) {
    Read(value, bytes, preference.alignments[attribute - 5]);
  } else {
    return kInvalidValue;
  }
  return kSuccess;
}

int cublasLtMatmulAlgoGetHeuristic(void* handle, void* product, void* a, void* b, void* c, void* d,
                                   void* preference, int wanted, Choice* choices, int* found) {
  (void)As<Handle>(handle);
  ++Get().asked;
  *found = 0;
  if (wanted < 1) return kInvalidValue;
  for (const auto& [layout, name] : {std::pair(a, "A"), {b, "B"}, {c, "C"}, {d, "D"}}) {
    CheckLayout(As<Layout>(layout), name);
  }
  const auto& wants = As<Preference>(preference);
  if (SettingsNow().no_choice != 0 ||
      SettingsNow().no_type == static_cast<uint64_t>(As<Layout>(d).type) ||
      !Supported(As<Product>(product), As<Layout>(a), As<Layout>(b), As<Layout>(d))) {
    return kNotSupported;
  }
  *choices = {};
  choices->algorithm[0] = kMark;
  choices->algorithm[1] =
      ShapeOf(As<Product>(product), As<Layout>(a), As<Layout>(b), As<Layout>(d));
  for (int i = 0; i < 4; ++i) choices->algorithm[2 + i] = wants.alignments[i];
  choices->workspace = std::min(wants.workspace, kWorkspace);
  choices->algorithm[6] = choices->workspace;
  choices->algorithm[7] = (wants.reductions & 5) != 0 ? 1 : 0;
  *found = 1;
  return kSuccess;
}

int cublasLtMatmul(void* handle, void* product, const void* alpha, const void* a, void* a_layout,
                   const void* b, void* b_layout, const void* beta, const void* c, void* c_layout,
                   void* d, void* d_layout, const uint64_t* algorithm, void* workspace,
                   size_t workspace_bytes, void* stream) {
  {
    std::lock_guard lock(Get().mutex);
    uint64_t& fail = Get().settings.fail_queue;
    if (fail > 0 && --fail == 0) return kExecutionFailed;
  }
  CUcontext context = nullptr;
  if (cuStreamGetCtx(static_cast<CUstream>(stream), &context) != CUDA_SUCCESS ||
      context != As<Handle>(handle).context) {
    Story("a product on a stream of another GPU");
  }
  const auto& of = As<Product>(product);
  auto work = std::make_unique<Work>();
  work->compute = of.compute;
  work->a = {As<Layout>(a_layout), of.transpose_a != 0, static_cast<const std::byte*>(a)};
  work->b = {As<Layout>(b_layout), of.transpose_b != 0, static_cast<const std::byte*>(b)};
  work->result = As<Layout>(d_layout);
  work->to = static_cast<std::byte*>(d);
  work->workspace = static_cast<std::byte*>(workspace);
  work->workspace_bytes = algorithm[6];
  work->rough = algorithm[7] != 0;
  const int scale = of.compute == kComputeF64 ? kF64 : kF32;
  work->alpha = ValueAt(scale, static_cast<const std::byte*>(alpha), 0);
  work->beta = ValueAt(scale, static_cast<const std::byte*>(beta), 0);
  if (algorithm[0] != kMark ||
      algorithm[1] != ShapeOf(of, work->a.layout, work->b.layout, work->result)) {
    Story("an algorithm that was not chosen for this product");
  }
  if (c != d || c_layout != d_layout) Story("only what the result has is added to");
  const void* const addresses[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i) {
    if (reinterpret_cast<uintptr_t>(addresses[i]) % algorithm[2 + i] != 0) {
      Story("a matrix that is less aligned than was said");
    }
  }
  if (algorithm[6] > workspace_bytes || reinterpret_cast<uintptr_t>(workspace) % 256 != 0) {
    Story("a workspace that is too small, or not aligned");
  }
  if (work->a.columns() != work->b.rows() ||
      work->a.rows() != static_cast<int64_t>(work->result.rows) ||
      work->b.columns() != static_cast<int64_t>(work->result.columns) ||
      work->a.layout.batches != work->result.batches ||
      work->b.layout.batches != work->result.batches) {
    return kInvalidValue;
  }
  for (const Side* side : {&work->a, &work->b}) {
    if (work->to < side->memory + EndOf(side->layout) &&
        side->memory < work->to + EndOf(work->result)) {
      Story("a product over its own factor");
    }
  }
  ++Get().products;
  const CUhostFn run = [](void* data) {
    const std::unique_ptr<Work> mine(static_cast<Work*>(data));
    Multiply(*mine);
  };
  if (cuLaunchHostFunc(static_cast<CUstream>(stream), run, work.get()) != CUDA_SUCCESS) {
    return kExecutionFailed;
  }
  work.release();
  return kSuccess;
}

}  // extern "C"
