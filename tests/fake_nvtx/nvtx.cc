// SPDX-License-Identifier: Apache-2.0
// A profiler: appends each range of NVTX to the file FERRY_FAKE_NVTX, as "begin 7 ferry NAME" and
// "end 7". Loaded by NVTX_INJECTION64_PATH.
#include <fcntl.h>
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>

namespace {

std::atomic<uint64_t> last_range = 0;

void Append(const std::string& line) {
  static const int file =
      open(std::getenv("FERRY_FAKE_NVTX"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (write(file, line.data(), line.size()) < 0) abort();  // a test could not be believed
}

nvtxDomainHandle_t NVTX_API CreateDomain(const char* name) {
  return reinterpret_cast<nvtxDomainHandle_t>(new std::string(name));  // as long as the process
}

nvtxRangeId_t NVTX_API StartRange(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  const uint64_t id = ++last_range;
  Append("begin " + std::to_string(id) + " " + *reinterpret_cast<const std::string*>(domain) + " " +
         event->message.ascii + "\n");
  return id;
}

void NVTX_API EndRange(nvtxDomainHandle_t, nvtxRangeId_t id) {
  Append("end " + std::to_string(id) + "\n");
}

template <typename Function>
void Set(NvtxFunctionTable table, unsigned index, Function function) {
  *table[index] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0 ||
      size <= NVTX_CBID_CORE2_DomainCreateA) {
    return 0;
  }
  Set(table, NVTX_CBID_CORE2_DomainCreateA, CreateDomain);
  Set(table, NVTX_CBID_CORE2_DomainRangeStartEx, StartRange);
  Set(table, NVTX_CBID_CORE2_DomainRangeEnd, EndRange);
  return 1;
}
