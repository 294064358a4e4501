// SPDX-License-Identifier: Apache-2.0
// A fake libcublasLt: fake_cublaslt.h.
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "cublaslt_work.h"
#include "fake_cublaslt.h"

namespace {

using namespace fake_cublaslt;  // NOLINT: all of it is this file's

constexpr int kSuccess = 0;
constexpr int kNotInitialized = 1;
constexpr int kInvalidValue = 7;
constexpr int kExecutionFailed = 13;
constexpr int kNotSupported = 15;
constexpr uint64_t kFirstWithScales = 120800;  // versions
constexpr uint64_t kMark = 0xFE2247;           // of an algorithm that the fake has chosen
constexpr uint64_t kWorkspace = 4096;

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
    if (name == "no_blocks") settings.no_blocks = value;
    if (name == "drop_alpha") settings.drop_alpha = value;
    if (name == "ignore_scales") settings.ignore_scales = value;
    if (name == "plain_scales") settings.plain_scales = value;
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
  int on_device = 0;  // alpha and beta are the GPU's
  int modes[2] = {};  // of the scales of A and B
  const void* scales[2] = {};
  bool has_scales() const { return modes[0] != kNoScales || modes[1] != kNoScales; }
};
struct Layout : Counted, Shape {};
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
size_t EndOf(const Shape& layout) {
  const int64_t last = (layout.batches - 1) * layout.batch_stride +
                       (static_cast<int64_t>(layout.columns) - 1) * layout.stride +
                       static_cast<int64_t>(layout.rows);
  return (static_cast<size_t>(last) * BitsOf(layout.type) + 7) / 8;
}

// What an algorithm was chosen for.
uint64_t ShapeOf(const Product& product, const Shape& a, const Shape& b, const Shape& d) {
  uint64_t shape = static_cast<uint64_t>(product.compute);
  const auto mix = [&](uint64_t value) { shape = (shape ^ value) * 0x9E3779B97F4A7C15; };
  mix(static_cast<uint64_t>(product.transpose_a * 2 + product.transpose_b));
  mix(static_cast<uint64_t>(product.on_device * 100 + product.modes[0] * 10 + product.modes[1]));
  for (const Shape* layout : {&a, &b, &d}) {
    mix(static_cast<uint64_t>(layout->type));
    mix(layout->rows);
    mix(layout->columns);
    mix(static_cast<uint64_t>(layout->stride));
    mix(static_cast<uint64_t>(layout->batch_stride));
    mix(static_cast<uint64_t>(layout->batches));
  }
  return shape;
}

// Rows of whole blocks, in memory one after the other, and dimensions that are multiples of 16.
bool SupportedBlocks(const Product& product, const Layout& a, const Layout& b, const Layout& d) {
  if (SettingsNow().no_blocks != 0 || product.modes[0] != product.modes[1]) return false;
  const bool of_16 = product.modes[0] == kOf16;
  for (const Layout* side : {&a, &b}) {
    const bool small = side->type == kE2M1;
    if (small != of_16 || (!small && side->type != kE4M3 && side->type != kE5M2)) return false;
    if (side->rows % 32 != 0 || side->columns % 16 != 0 || side->batches != 1) return false;
  }
  return product.transpose_a == 1 && product.transpose_b == 0 &&
         (a.type != kE5M2 || b.type != kE5M2) &&
         (d.type == kF32 || d.type == kF16 || d.type == kBF16);
}

bool Supported(const Product& product, const Layout& a, const Layout& b, const Layout& d) {
  if (product.has_scales()) return SupportedBlocks(product, a, b, d);
  if (a.type != b.type || BitsOf(a.type) < 16) return false;
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
  auto& product = As<Product>(made);
  if (attribute == 2) {
    Read(value, bytes, product.on_device);
    return product.on_device == 0 || product.on_device == 1 ? kSuccess : kInvalidValue;
  }
  if (attribute == 3 || attribute == 4) {
    Read(value, bytes, attribute == 3 ? product.transpose_a : product.transpose_b);
    return kSuccess;
  }
  if (attribute == 17 || attribute == 18) {
    Read(value, bytes, product.scales[attribute - 17]);
    return kSuccess;
  }
  if ((attribute != 31 && attribute != 32) || SettingsNow().version < kFirstWithScales) {
    return kInvalidValue;
  }
  Read(value, bytes, product.modes[attribute - 31]);
  return kSuccess;
}

int cublasLtMatrixLayoutCreate(void** made, int type, uint64_t rows, uint64_t columns,
                               int64_t stride) {
  const bool eight = type == kE4M3 || type == kE5M2;
  if (type != kF32 && type != kF64 && type != kF16 && type != kBF16 && type != kE2M1 && !eight) {
    return kNotSupported;
  }
  if (type == kE2M1 && SettingsNow().version < kFirstWithScales) return kInvalidValue;
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
  work->a = {As<Layout>(a_layout), of.transpose_a != 0, static_cast<const std::byte*>(a),
             of.modes[0], static_cast<const std::byte*>(of.scales[0])};
  work->b = {As<Layout>(b_layout), of.transpose_b != 0, static_cast<const std::byte*>(b),
             of.modes[1], static_cast<const std::byte*>(of.scales[1])};
  work->settings = SettingsNow();
  work->result = As<Layout>(d_layout);
  work->to = static_cast<std::byte*>(d);
  work->workspace = static_cast<std::byte*>(workspace);
  work->workspace_bytes = algorithm[6];
  work->rough = algorithm[7] != 0;
  work->scale = of.compute == kComputeF64 ? kF64 : kF32;
  work->on_device = of.on_device != 0;
  if (alpha == nullptr || beta == nullptr) Story("no factors");
  if (work->on_device) {
    work->device_alpha = static_cast<const std::byte*>(alpha);
    work->device_beta = static_cast<const std::byte*>(beta);
  } else {
    work->alpha = ValueAt(work->scale, static_cast<const std::byte*>(alpha), 0);
    work->beta = ValueAt(work->scale, static_cast<const std::byte*>(beta), 0);
  }
  for (const void* scales : of.scales) {
    if (!of.has_scales()) break;
    if (scales == nullptr || reinterpret_cast<uintptr_t>(scales) % 16 != 0) {
      Story("scales that are nowhere, or not aligned");
    }
  }
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
