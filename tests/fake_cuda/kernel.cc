// SPDX-License-Identifier: Apache-2.0
// Modules and launches: of ferry_gather, and of kernels that the fake NVRTC has made.
#include <chrono>
#include <cstring>
#include <thread>

#include "machine_code.h"
#include "state.h"

using namespace fake_cuda;

namespace {

struct Task {  // as in device/cuda/gather.cu
  uint64_t to, from, bytes;
};
struct Table {
  uint64_t tasks, end, to_shift, from_shift;
};
struct Tables {
  Table tables[16];
};

constexpr uint32_t kFatbinMagic = 0xBA55ED50;

CUresult LaunchHostKernel(CUstream_st& stream, const std::shared_ptr<HostKernel>& kernel,
                          unsigned blocks, unsigned threads, void** arguments) {
  State& state = Get();
  Settings& settings = state.settings;
  if (settings.fail_copy > 0 && --settings.fail_copy == 0) {
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  }
  const bool fatal = settings.sticky > 0 && --settings.sticky == 0;
  ++state.launches;
  Enqueue(stream, [queue = stream.queue.get(), kernel, blocks, threads, fatal,
                   values = kernel->Take(arguments)]() mutable {
    State& state = Get();
    AwaitConnection(*queue);
    AwaitGate(*queue);
    if (queue->dropped || state.sticky != CUDA_SUCCESS) return;
    kernel->Run(blocks, threads, values);
    if (fatal || HasBadKernels()) state.sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
  });
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  CUcontext context = nullptr;
  if (const CUresult result = ReadyIn(&context); result != CUDA_SUCCESS) return result;
  uint32_t magic = 0;
  memcpy(&magic, image, sizeof(magic));
  std::shared_ptr<HostKernel> kernel;
  if (magic != kFatbinMagic) {
    const char* const code = static_cast<const char*>(image);
    if (strncmp(code, kMachineCode.data(), kMachineCode.size()) != 0) {
      return CUDA_ERROR_INVALID_IMAGE;
    }
    kernel = HostKernel::Make(code + kMachineCode.size());
    if (kernel == nullptr) return CUDA_ERROR_INVALID_SOURCE;
  }
  *module = new CUmod_st{context, kernel};
  state.modules[*module] = {*module};
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  if (state.modules.erase(module) == 0) return CUDA_ERROR_INVALID_HANDLE;
  delete module;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  const auto found = state.modules.find(module);
  if (found == state.modules.end()) return CUDA_ERROR_INVALID_HANDLE;
  const char* const has = module->kernel == nullptr ? "ferry_gather" : "ferry_kernel";
  if (strcmp(name, has) != 0) return CUDA_ERROR_NOT_FOUND;
  *function = &found->second;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (state.modules.count(function->module) == 0) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute != CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES) return CUDA_ERROR_NOT_SUPPORTED;
  *value = 0;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (state.modules.count(function->module) == 0) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_ERROR_NOT_SUPPORTED;
  if (value < 0 || value > (227 << 10)) return CUDA_ERROR_INVALID_VALUE;
  function->most_shared = static_cast<unsigned>(value);
  ++state.attributes;
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** arguments,
                          void** extra) {
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    if (attribute.id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (attribute.value.programmaticStreamSerializationAllowed != 0) ++Get().early_launches;
  }
  return cuLaunchKernel(function, config->gridDimX, config->gridDimY, config->gridDimZ,
                        config->blockDimX, config->blockDimY, config->blockDimZ,
                        config->sharedMemBytes, config->hStream, arguments, extra);
}

CUresult cuLaunchKernel(CUfunction function, unsigned blocks, unsigned, unsigned, unsigned threads,
                        unsigned, unsigned, unsigned shared, CUstream stream, void** arguments,
                        void**) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  CUstream_st* found = nullptr;
  if (const CUresult result = FindStream(stream, &found); result != CUDA_SUCCESS) return result;
  if (state.modules.count(function->module) == 0) return CUDA_ERROR_INVALID_HANDLE;
  if (function->module->context != found->context) return CUDA_ERROR_INVALID_CONTEXT;
  if (blocks == 0 || threads == 0 || threads > 1024) return CUDA_ERROR_INVALID_VALUE;
  if (shared > function->most_shared) return CUDA_ERROR_INVALID_VALUE;
  state.shared_bytes += shared;
  if (function->module->kernel != nullptr) {
    return LaunchHostKernel(*found, function->module->kernel, blocks, threads, arguments);
  }
  // Arguments are taken now, the tables are read when the kernel runs.
  const Tables tables = *static_cast<Tables*>(arguments[0]);
  const uint32_t count = *static_cast<uint32_t*>(arguments[1]);
  const int device = found->context->device;
  const auto slice = std::chrono::microseconds(state.settings.kernel_us);
  Settings& settings = state.settings;
  if (settings.fail_copy > 0 && --settings.fail_copy == 0) {
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  }
  const bool fatal = settings.sticky > 0 && --settings.sticky == 0;
  ++state.launches;
  Enqueue(*found, [queue = found->queue.get(), tables, count, device, slice, fatal] {
    State& state = Get();
    AwaitConnection(*queue);
    AwaitGate(*queue);
    if (slice.count() > 0) std::this_thread::sleep_for(slice);
    if (queue->dropped || state.sticky != CUDA_SUCCESS) return;
    const Table* table = tables.tables;
    uint64_t begin = 0;
    for (uint32_t i = 0; i < count; ++i) {
      while (i >= table->end) begin = table++->end;
      Task task = reinterpret_cast<const Task*>(table->tasks)[i - begin];
      task.to += table->to_shift;
      task.from += table->from_shift;
      {
        // As the real one: what a kernel may not touch ends the context.
        std::lock_guard lock(state.mutex);
        for (const uint64_t end : {task.to, task.from}) {
          const Mapping* const mapping = InRegion(end) ? FindMapping(end, nullptr) : nullptr;
          // Copies find a way to memory that another context has open, kernels do not.
          const bool foreign = mapping != nullptr && mapping->context != nullptr &&
                               mapping->context->device != device;
          if (foreign || !MayTouch(device, end, task.bytes) || Pageable(end, task.bytes)) {
            state.sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
            return;
          }
        }
      }
      memmove(reinterpret_cast<void*>(task.to), reinterpret_cast<const void*>(task.from),
              task.bytes);
      state.bytes_copied += task.bytes;
    }
    if (fatal) state.sticky = CUDA_ERROR_ECC_UNCORRECTABLE;
  });
  return CUDA_SUCCESS;
}

}  // extern "C"
