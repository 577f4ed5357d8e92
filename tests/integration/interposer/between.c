/* SPDX-License-Identifier: Apache-2.0
 *
 * A driver's libcuda.so.1 before the fake one, which it leads to. Between the
 * end of some calls' work and their return a test may do something, in the
 * caller's thread or in another one. */
#include <dlfcn.h>
#include <stddef.h>

static void (*between)(const char *symbol);

void driver_between(void (*act)(const char *symbol));
void driver_between(void (*act)(const char *symbol)) { between = act; }

static void *driver(const char *symbol) { return dlsym(dlopen(DRIVER, RTLD_LAZY), symbol); }

int driver_retains(int device);
int driver_retains(int device) {
  void *context;
  return ((int (*)(void **, int))driver("cuDevicePrimaryCtxRetain"))(&context, device);
}

#define CALL(symbol, parameters, arguments)              \
  int symbol parameters;                                 \
  int symbol parameters {                                \
    static int(*call) parameters;                        \
    if (call == NULL) *(void **)&call = driver(#symbol); \
    int result = call arguments;                         \
    if (between != NULL) between(#symbol);               \
    return result;                                       \
  }
CALL(cuCtxDestroy_v2, (void *context), (context))
CALL(cuDevicePrimaryCtxRelease_v2, (int device), (device))
CALL(cuDevicePrimaryCtxReset_v2, (int device), (device))
CALL(cuDevicePrimaryCtxGetState, (int device, unsigned *flags, int *active), (device, flags, active))
CALL(cuDeviceGetMemPool, (void **pool, int device), (pool, device))
CALL(cuDeviceSetMemPool, (int device, void *pool), (device, pool))
CALL(cuFuncLoad, (void *function), (function))
CALL(cuModuleUnload, (void *module), (module))
