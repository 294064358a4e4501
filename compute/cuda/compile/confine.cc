// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/compile/confine.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <vector>

#include "base/status.h"

namespace ferry::compute {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "which architecture's system calls are allowed is not known"
#endif

// Whatever their arguments are.
constexpr uint32_t kAllowed[] = {
    __NR_read,
    __NR_write,
    __NR_close,
    __NR_lseek,
    __NR_fstat,
    __NR_munmap,
    __NR_mremap,
    __NR_brk,
    __NR_madvise,
    __NR_futex,
    __NR_sched_yield,
    __NR_clock_gettime,
    __NR_gettimeofday,
    __NR_getrandom,
    __NR_getpid,
    __NR_gettid,
    __NR_rt_sigaction,
    __NR_rt_sigprocmask,
    __NR_rt_sigreturn,
    __NR_sigaltstack,
    __NR_getrusage,
    __NR_sysinfo,
    __NR_uname,
    __NR_sched_getaffinity,
    __NR_restart_syscall,
    __NR_exit,
    __NR_exit_group,
};

constexpr uint32_t kNumber = offsetof(seccomp_data, nr);
constexpr uint32_t LowOfArgument(int argument) {
  return offsetof(seccomp_data, args) + static_cast<uint32_t>(argument) * sizeof(uint64_t);
}

sock_filter Load(uint32_t offset) { return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset); }
sock_filter Return(uint32_t what) { return BPF_STMT(BPF_RET | BPF_K, what); }
// What is loaded is `value`: goes on; else skips `skipped`.
sock_filter IfEqual(uint32_t value, uint8_t skipped) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skipped);
}
// What is loaded has a bit of `bits`: goes on; else skips one.
sock_filter IfAnyOf(uint32_t bits) { return BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1); }

constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;

std::vector<sock_filter> Filter() {
  std::vector<sock_filter> filter = {
      Load(offsetof(seccomp_data, arch)),
      IfEqual(kArchitecture, 1),
      BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0),
      Return(SECCOMP_RET_KILL_PROCESS),
      Load(kNumber),
  };
  for (const uint32_t number : kAllowed) {
    filter.push_back(IfEqual(number, 1));
    filter.push_back(Return(SECCOMP_RET_ALLOW));
  }
  // Memory that can be executed is what was loaded before.
  for (const uint32_t number : {__NR_mmap, __NR_mprotect}) {
    filter.push_back(IfEqual(number, 4));
    filter.push_back(Load(LowOfArgument(2)));
    filter.push_back(IfAnyOf(PROT_EXEC));
    filter.push_back(Return(kRefuse));
    filter.push_back(Return(SECCOMP_RET_ALLOW));
  }
  // abort() signals its own process; nobody else is to be.
  filter.push_back(IfEqual(__NR_tgkill, 3));
  filter.push_back(Load(LowOfArgument(0)));
  filter.push_back(IfEqual(static_cast<uint32_t>(getpid()), 1));
  filter.push_back(Return(SECCOMP_RET_ALLOW));
  filter.push_back(Return(kRefuse));
  return filter;
}

absl::Status Limit(__rlimit_resource resource, uint64_t most, const char* doing) {
  const rlimit limit{most, most};
  if (setrlimit(resource, &limit) == 0) return absl::OkStatus();
  return ErrnoError(absl::StatusCode::kUnavailable, Reason::kNotReady, doing, errno);
}

}  // namespace

absl::Status LimitProcess(uint64_t memory_bytes) {
  RETURN_IF_ERROR(Limit(RLIMIT_CORE, 0, "forbid core dumps"));
  RETURN_IF_ERROR(Limit(RLIMIT_FSIZE, 0, "forbid files to grow"));
  if (kConfines) RETURN_IF_ERROR(Limit(RLIMIT_AS, memory_bytes, "bound the address space"));
  const pid_t parent = getppid();
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
    return ErrnoError(absl::StatusCode::kUnavailable, Reason::kNotReady,
                      "ask to end with the parent", errno);
  }
  if (getppid() != parent) {
    return Error(absl::StatusCode::kUnavailable, Reason::kNotReady, "the parent has ended");
  }
  return absl::OkStatus();
}

absl::Status Confine() {
  if (!kConfines) return absl::OkStatus();
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return ErrnoError(absl::StatusCode::kUnavailable, Reason::kNotReady, "give up privileges",
                      errno);
  }
  std::vector<sock_filter> filter = Filter();
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    return ErrnoError(absl::StatusCode::kUnavailable, Reason::kNotReady,
                      "give up system calls (seccomp)", errno);
  }
  return absl::OkStatus();
}

}  // namespace ferry::compute
