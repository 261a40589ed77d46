// The functions of CUDA's driver, which are looked up, so that no CUDA is needed to compile a test.
#ifndef DRIVER_HPP
#define DRIVER_HPP

#include "check.hpp"

#include <dlfcn.h>

#include <cstddef>
#include <cstring>

#define CUDA(call) TRUE((call) == 0)

using address = unsigned long long;

static struct {
  int (*init)(unsigned), (*count)(int *), (*get)(int *, int), (*retain)(void **, int), (*current)(void *);
  int (*allocate)(address *, std::size_t), (*create)(void **, unsigned), (*synchronise)(void *);
  int (*to_device)(address, const void *, std::size_t, void *), (*to_host)(void *, address, std::size_t, void *);
} cuda;

static bool open_driver() {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return false;
  const auto find = [library](auto &function, const char *name) {
    void *symbol = dlsym(library, name);
    TRUE(symbol != nullptr);
    std::memcpy(&function, &symbol, sizeof symbol);
  };
  find(cuda.init, "cuInit"), find(cuda.count, "cuDeviceGetCount"), find(cuda.get, "cuDeviceGet");
  find(cuda.retain, "cuDevicePrimaryCtxRetain"), find(cuda.current, "cuCtxSetCurrent");
  find(cuda.allocate, "cuMemAlloc_v2"), find(cuda.create, "cuStreamCreate"), find(cuda.synchronise, "cuStreamSynchronize");
  find(cuda.to_device, "cuMemcpyHtoDAsync_v2"), find(cuda.to_host, "cuMemcpyDtoHAsync_v2");
  int devices = 0;
  return cuda.init(0) == 0 && cuda.count(&devices) == 0 && devices > 0;
}

#endif
