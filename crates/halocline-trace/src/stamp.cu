// When a stream has come to where this is launched, by the GPU's clock, in nanoseconds. One thread. `device.rs` launches it.

extern "C" __global__ void stamp(unsigned long long *at) {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  *at = now;
}
