/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that cost no system call: made some times, then a thousand times more where the kernel ends a process at
 * any but write and exit. (Not by seccomp's strict mode: that takes the clock away too.)
 *
 *   quiet */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef int result;
typedef uint64_t pointer;

extern result cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
extern result cuMemAlloc_v2(pointer *, size_t), cuMemFree_v2(pointer), cuMemGetInfo_v2(size_t *, size_t *);
extern result cuMemAllocAsync(pointer *, size_t, void *), cuMemFreeAsync(pointer, void *);
extern result cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *);
extern result cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             void *, void **, void **);
extern result cuCtxSynchronize(void);

static const char image[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry spin_ns(.param .u64 nanoseconds)\n{\n ret;\n}\n";
static void *function;

static void must(const char *what, int code) {
  if (code == 0) return;
  dprintf(2, "%s: %d\n", what, code);
  syscall(SYS_exit, 3);
}

static void each_once(void) {
  pointer address;
  size_t free_bytes, total_bytes;
  uint64_t nanoseconds = 0;
  void *parameters[] = {&nanoseconds};
  must("cuMemAlloc", cuMemAlloc_v2(&address, 1 << 20));
  must("cuMemFree", cuMemFree_v2(address));
  must("cuMemAllocAsync", cuMemAllocAsync(&address, 1 << 20, NULL));
  must("cuMemFreeAsync", cuMemFreeAsync(address, NULL));
  must("cuMemGetInfo", cuMemGetInfo_v2(&free_bytes, &total_bytes));
  must("cuLaunchKernel", cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
}

static void allow_none(void) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  must("PR_SET_NO_NEW_PRIVS", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
  must("PR_SET_SECCOMP", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

int main(void) {
  void *context, *module;
  must("cuInit", cuInit(0));
  must("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&context, 0));
  must("cuCtxSetCurrent", cuCtxSetCurrent(context));
  must("cuModuleLoadData", cuModuleLoadData(&module, image));
  must("cuModuleGetFunction", cuModuleGetFunction(&function, module, "spin_ns"));
  for (int i = 0; i < 10; i++) {
    each_once();
    must("cuCtxSynchronize", cuCtxSynchronize());
  }
  allow_none();
  for (int i = 0; i < 1000; i++) each_once();
  syscall(SYS_exit, 0);
}
