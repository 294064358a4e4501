// SPDX-License-Identifier: Apache-2.0
// No argument ends the application: whatever pointer of whatever function is null, or a handle that
// was freed, or whatever number is none that it takes, the call says so, and of which argument.
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "tests/client/api/function_table.h"
#include "tests/client/cuda/cuda_fixture.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;

// Null means something there.
const std::set<std::string> kMayBeNull = {
    "ferry_session_open.options",
    "ferry_session_watch.argument",
    "ferry_cross_host_send.options",
    "ferry_cross_host_receive.options",
    "ferry_cross_host_receive_new.options",
    "ferry_prepare_send.options",
    "ferry_prepare_receive.options",
    "ferry_prepare_programs.options",
    "ferry_run_programs.options",
    "ferry_batch_poison.why",
    "ferry_batch_on_over.argument",
    "ferry_prepared_fire.firing",
    "ferry_stream_define.stream",
    "ferry_stream_wait_over.stream",
    "ferry_stream_wait_batch.stream",
    "ferry_stream_wait_prepared.stream",
    "ferry_stream_fire.stream",
    "ferry_stream_fire.firing",
    "ferry_wait_all.index",
    "ferry_over_failures.count",
    "ferry_over_failures.first_failed",
    "ferry_cuda_malloc.stream",
    "ferry_cuda_free.pointer",
    "ferry_cuda_free.stream",
    "ferry_cuda_arena.offset",
};
// What they return then is something all the same; of a status that was freed all but one do.
const std::set<std::string> kSaySomething = {
    "ferry_status_code_name",   // "OK"
    "ferry_batch_over",         // 1: there is nothing to wait for
    "ferry_prepared_ended",     // 1: nor anything to fire
    "ferry_arena_cuda_device",  // -1
};

// What they refuse cannot be told, and need not be.
const std::set<std::string> kReturnNothing = {
    "ferry_session_close", "ferry_arena_free",   "ferry_batch_free",
    "ferry_prepared_free", "ferry_program_free", "ferry_device_list_free",
    "ferry_status_free",   "ferry_cuda_free",    "ferry_over_failures",
};

bool ReadsStatus(const Function& function) {
  return function.name.rfind("ferry_status_", 0) == 0 && function.name != "ferry_status_free";
}

// One of each kind of handle.
struct Handles {
  ferry_status* status = nullptr;
  ferry_session* session = nullptr;
  ferry_arena* arena = nullptr;
  ferry_batch* batch = nullptr;
  ferry_prepared* prepared = nullptr;
  ferry_program* program = nullptr;
  ferry_device_list* devices = nullptr;

  void Free() {
    ferry_status_free(status);
    ferry_device_list_free(devices);
    ferry_prepared_free(prepared);
    ferry_batch_free(batch);
    ferry_program_free(program);
    ferry_arena_free(arena);
    ferry_session_close(session);
  }
};

class NullTest : public CudaTest, public ::testing::WithParamInterface<size_t> {
 protected:
  NullTest() {
    Restart(GpuBehaviour());
    setenv("FERRY_CLIENT_DIR", dir_.c_str(), 1);
    memfd_ = memfd_create("null-test", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(memfd_, kBytes), 0);
    EXPECT_EQ(fcntl(memfd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    own_ = MapOwn({kGranule});
    const CUmemGenericAllocationHandle handle = MakeOwn(kGranule, true, 0);
    EXPECT_CUDA(cuMemExportToShareableHandle(&gpu_fd_, handle,
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    EXPECT_CUDA(cuMemRelease(handle));
    std::fill(fds_.begin(), fds_.end(), gpu_fd_);
    transfer_.remote_device = kOtherGpu;
    transfer_.key = "echo";
    transfer_.key_bytes = 4;
  }
  ~NullTest() override {
    FreeLiving();
    close(memfd_);
    close(gpu_fd_);
  }

  const Function& function() const { return AllFunctions()[GetParam()]; }

  // On the GPU, so that streams can be used with them.
  void Make(Handles* handles) {
    const auto ok = [](ferry_status* status) { ASSERT_OK(Status(status)); };
    handles->status = ferry_session_health(nullptr);
    ok(ferry_session_open(nullptr, &handles->session));
    ok(ferry_arena_create(handles->session, kGpu, kBytes, 0, &handles->arena));
    ok(ferry_cross_host_send(handles->session, kGpu, &transfer_, 1, nullptr, &handles->batch));
    ok(ferry_prepare_send(handles->session, kGpu, &transfer_, 1, nullptr, &handles->prepared));
    ok(ferry_program_compile(handles->session, 0, "text", 4, &handles->program));
    ok(ferry_cluster_devices(handles->session, &handles->devices));
  }

  // What the function was given and what it made; streams must not need it any more.
  void FreeLiving() {
    EXPECT_CUDA(cuCtxSynchronize());
    made_.Free();
    living_.Free();
    made_ = living_ = {};
  }

  // Arguments that the function can do with; none if this does not know any for one of them.
  std::optional<Arguments> Valid() {
    FreeLiving();
    Make(&living_);
    if (HasFatalFailure()) return std::nullopt;
    range_ = {living_.arena, 0, kBytes};
    run_ = {};
    run_.program = living_.program;
    std::vector<uint64_t> values;
    for (const Parameter& parameter : function().parameters) {
      const std::optional<uint64_t> value = ValueOf(parameter);
      EXPECT_TRUE(value.has_value())
          << function().name << ": what is a valid " << parameter.name << " of type "
          << parameter.type << "? NullTest::ValueOf must know one";
      if (!value.has_value()) return std::nullopt;
      values.push_back(*value);
    }
    return Arguments(std::move(values));
  }
  std::optional<uint64_t> ValueOf(const Parameter& parameter) {
    const auto address = [](const auto* pointer) { return reinterpret_cast<uint64_t>(pointer); };
    const std::map<std::string, uint64_t> by_place = {
        {"ferry_arena_create.bytes", kBytes},
        {"ferry_arena_import.bytes", kBytes},
        {"ferry_arena_import.device", 0},
        {"ferry_arena_import_cuda.bytes", kGranule},
        {"ferry_arena_import_cuda.pointer", own_},
        {"ferry_arena_import_cuda_fds.fds", address(fds_.data())},
        {"ferry_arena_import_cuda_fds.segment_bytes", address(segments_.data())},
        {"ferry_arena_read.to", address(buffer_)},
        {"ferry_arena_write.from", address(buffer_)},
        {"ferry_batch_poison.why", address("why")},
        {"ferry_batch_routes.routes", address(buffer_)},
        {"ferry_batch_on_over.done",
         reinterpret_cast<uint64_t>(static_cast<void (*)(void*)>([](void*) {}))},
        {"ferry_session_watch.ended",
         reinterpret_cast<uint64_t>(static_cast<void (*)(void*, uint64_t, const ferry_status*)>(
             [](void*, uint64_t, const ferry_status*) {}))},
        {"ferry_cuda_free.pointer", 0},
        {"ferry_cuda_arena.pointer", address(buffer_)},
        {"ferry_cuda_malloc.device", 0},
        {"ferry_cuda_free.device", 0},
        {"ferry_program_compile.device", 0},
        {"ferry_program_compile.text", address("text")},
        {"ferry_domain_join.domain", address("job")},
        {"ferry_domain_join.domain_bytes", 3},
        {"ferry_domain_join.name", address("trainer-0")},
    };
    const std::map<std::string, uint64_t> by_type = {
        {"ferry_status*", address(living_.status)},
        {"ferry_session*", address(living_.session)},
        {"ferry_arena*", address(living_.arena)},
        {"ferry_batch*", address(living_.batch)},
        {"ferry_prepared*", address(living_.prepared)},
        {"ferry_program*", address(living_.program)},
        {"ferry_device_list*", address(living_.devices)},
        {"ferry_session**", address(&made_.session)},
        {"ferry_arena**", address(&made_.arena)},
        {"ferry_batch**", address(&made_.batch)},
        {"ferry_prepared**", address(&made_.prepared)},
        {"ferry_program**", address(&made_.program)},
        {"ferry_device_list**", address(&made_.devices)},
        {"ferry_session_options*", 0},
        {"ferry_post_options*", 0},
        {"ferry_transfer*", address(&transfer_)},
        {"ferry_run*", address(&run_)},
        {"ferry_range*", address(&range_)},
        {"ferry_batch* const*", address(&living_.batch)},
        {"ferry_cuda_stream", 0},
        {"uint64_t*", address(&bytes_)},
        {"size_t*", address(&index_)},
        {"void*", 0},
    };
    const std::map<std::string, uint64_t> by_name = {
        {"device", kGpu},  {"bytes", sizeof(buffer_)},
        {"flags", 0},      {"offset", 0},
        {"count", 1},      {"index", 0},
        {"id", 1},         {"timeout_ns", UINT64_MAX},
        {"timeline", 0},   {"value", 0},
        {"firing", 0},     {"memfd", memfd_},
        {"text_bytes", 4}, {"size", 0},
    };
    std::string type = parameter.type;
    if (type.rfind("const ", 0) == 0) type.erase(0, 6);
    if (const auto at = by_place.find(function().name + "." + parameter.name); at != by_place.end())
      return at->second;
    const auto& rest = parameter.is_pointer() ? by_type : by_name;
    const auto at = rest.find(parameter.is_pointer() ? type : parameter.name);
    return at == rest.end() ? std::nullopt : std::optional(at->second);
  }

  // The call says of the argument that it cannot be used.
  void ExpectRefuses(const Outcome& outcome, const std::string& argument) {
    SCOPED_TRACE(function().name + ", " + argument);
    if (!outcome.is_status) {
      EXPECT_TRUE(outcome.none || kSaySomething.count(function().name) != 0);
      return;
    }
    EXPECT_EQ(outcome.status.reason(), "FIELD_INVALID") << outcome.status.ToString();
    EXPECT_THAT(std::string(outcome.status.message()), HasSubstr(function().name));
    const auto violations = outcome.status.violations();
    ASSERT_EQ(violations.size(), 1u) << outcome.status.ToString();
    EXPECT_EQ(violations[0].field, argument);
  }

  static constexpr uint64_t kBytes = 4096;
  static constexpr size_t kTooManyFds = 300;
  int memfd_ = -1;
  int gpu_fd_ = -1;
  CUdeviceptr own_ = 0;
  char buffer_[kBytes] = {};
  uint64_t bytes_ = kGranule;
  // More than one arena may have.
  std::vector<int> fds_ = std::vector<int>(kTooManyFds);
  std::vector<uint64_t> segments_ = std::vector<uint64_t>(kTooManyFds, kGranule);
  size_t index_ = 0;
  ferry_transfer transfer_ = {};
  ferry_range range_ = {};
  ferry_run run_ = {};
  Handles living_;
  Handles made_;  // by the function
};

TEST_P(NullTest, TheArgumentsThatTheTestKnowsAreGood) {
  const std::optional<Arguments> arguments = Valid();
  ASSERT_TRUE(arguments.has_value());
  const Outcome outcome = function().call(*arguments);
  if (outcome.is_status) ASSERT_OK(outcome.status);
  EXPECT_EQ(outcome.nothing, kReturnNothing.count(function().name) != 0);
}

TEST_P(NullTest, ANullPointerIsRefusedByItsName) {
  for (size_t i = 0; i < function().parameters.size(); ++i) {
    const Parameter& parameter = function().parameters[i];
    if (!parameter.is_pointer()) continue;
    std::optional<Arguments> arguments = Valid();
    ASSERT_TRUE(arguments.has_value());
    arguments->Set(i, 0);
    const Outcome outcome = function().call(*arguments);
    if (kMayBeNull.count(function().name + "." + parameter.name) == 0) {
      ExpectRefuses(outcome, parameter.name);
    } else if (outcome.is_status) {
      ASSERT_OK(outcome.status);
    }
  }
}

TEST_P(NullTest, AHandleThatWasFreedIsRefusedByItsName) {
  for (size_t i = 0; i < function().parameters.size(); ++i) {
    const Parameter& parameter = function().parameters[i];
    const std::string& type = parameter.type;
    std::optional<Arguments> arguments = Valid();
    ASSERT_TRUE(arguments.has_value());
    Handles dead;
    Make(&dead);
    const std::map<std::string, const void*> handles = {
        {"ferry_session*", dead.session}, {"ferry_arena*", dead.arena},
        {"ferry_batch*", dead.batch},     {"ferry_prepared*", dead.prepared},
        {"ferry_program*", dead.program}, {"ferry_device_list*", dead.devices},
        {"ferry_status*", dead.status}};
    dead.Free();
    const auto handle = handles.find(type.rfind("const ", 0) == 0 ? type.substr(6) : type);
    if (handle == handles.end()) continue;
    arguments->Set(i, reinterpret_cast<uint64_t>(handle->second));
    const Outcome outcome = function().call(*arguments);
    if (ReadsStatus(function())) {
      EXPECT_EQ(outcome.none, function().name == "ferry_status_retry_after_ns");
    } else {
      ExpectRefuses(outcome, parameter.name);
    }
    if (function().name == "ferry_over_failures") {  // what returns nothing says zeros
      EXPECT_EQ(bytes_, 0u);
    }
  }
}

// Whatever is refused as FIELD_INVALID names an argument.
void ExpectNames(const Status& status, const Function& function) {
  if (status.reason() != "FIELD_INVALID") return;
  ASSERT_GE(status.violations().size(), 1u) << status.ToString();
  const std::string_view field = status.violations()[0].field;
  EXPECT_TRUE(std::any_of(function.parameters.begin(), function.parameters.end(),
                          [&](const Parameter& one) {
                            const std::string_view rest = field.substr(0, one.name.size());
                            return rest == one.name &&
                                   (field.size() == rest.size() || field[rest.size()] == '[');
                          }))
      << field << ": " << status.ToString();
}

TEST_P(NullTest, ABadNumberIsRefusedByItsName) {
  // Of other values something is read, or waited for.
  const std::map<std::string, std::vector<uint64_t>> tried = {
      {"count", {0}}, {"domain_bytes", {0}}, {"text_bytes", {0}},   {"value", {}},
      {"firing", {}}, {"timeout_ns", {}},    {"size", {UINT64_MAX}}};
  const std::vector<uint64_t> others = {0, 1, 64, 99, UINT64_MAX};
  const std::set<std::string> never = {"timeline", "index", "flags"};  // is 64 one of these
  for (size_t i = 0; i < function().parameters.size(); ++i) {
    const Parameter& parameter = function().parameters[i];
    if (parameter.is_pointer()) continue;
    const auto of = tried.find(parameter.name);
    std::vector<uint64_t> values = of != tried.end() ? of->second : others;
    if (function().name == "ferry_arena_import_cuda_fds" && parameter.name == "count")
      values.push_back(kTooManyFds);
    for (const uint64_t value : values) {
      SCOPED_TRACE(parameter.name + " is " + std::to_string(value));
      std::optional<Arguments> arguments = Valid();
      ASSERT_TRUE(arguments.has_value());
      arguments->Set(i, value);
      const Outcome outcome = function().call(*arguments);
      if (function().name == "ferry_cuda_malloc") {
        ExpectNames(Status(ferry_cuda_malloc_status()), function());
      }
      if (!outcome.is_status) continue;
      ExpectNames(outcome.status, function());
      if (value >= 64 && never.count(parameter.name) != 0) {
        EXPECT_EQ(outcome.status.reason(), "FIELD_INVALID") << outcome.status.ToString();
      }
    }
  }
}

// Success is what nobody may read of it.
TEST(FreedStatusTest, SaysThatItWasFreed) {
  ferry_status* const status = ferry_session_wait(nullptr, 0);
  ferry_status_free(status);
  EXPECT_EQ(ferry_status_code(status), 3);
  EXPECT_STREQ(ferry_status_code_name(status), "INVALID_ARGUMENT");
  EXPECT_STREQ(ferry_status_reason(status), "FIELD_INVALID");
  EXPECT_THAT(ferry_status_message(status), HasSubstr("status was freed"));
  ASSERT_EQ(ferry_status_violations(status), 1u);
  EXPECT_STREQ(ferry_status_violation_field(status, 0), "status");
  EXPECT_STREQ(ferry_status_violation_text(status, 1), "");
  ferry_status_free(status);
  // Neither was it put aside for two.
  ferry_status* const first = ferry_session_wait(nullptr, 0);
  ferry_status* const second = ferry_session_wait(nullptr, 0);
  EXPECT_NE(first, second);
  ferry_status_free(first);
  ferry_status_free(second);
}

std::vector<size_t> Indices() {
  std::vector<size_t> indices(AllFunctions().size());
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = i;
  return indices;
}
INSTANTIATE_TEST_SUITE_P(Api, NullTest, ::testing::ValuesIn(Indices()),
                         [](const auto& info) { return AllFunctions()[info.param].name; });

}  // namespace
}  // namespace ferry::testing
