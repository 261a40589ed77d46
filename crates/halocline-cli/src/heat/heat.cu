// The stencil on a GPU: the same operations in the same order as `stencil.rs`, compiled without fused multiply-add, so that the
// result is the same to the last bit. `device.rs` has the structure of the argument.

typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int BOXES = 6;
// Planes that a thread of `march` goes through.
constexpr u64 DEPTH = 8;

struct Sweep {
  u64 from, to;           // for each field the address of its array
  u64 fields;
  u64 extents[3];         // of all arrays, in C order
  u64 boxes;
  u64 low[BOXES][3];      // first cell of a box
  u64 size[BOXES][3];     // its cells along each axis
  u64 gap[BOXES][2];      // after so many cells along z, so many are left out
  u64 begin[BOXES + 1];   // number of a box's first cell among the cells of all boxes
};

template <typename T> __device__ T step(T cell, T x0, T x1, T y0, T y1, T z0, T z1) {
  T around = ((x0 + x1) + (y0 + y1)) + (z0 + z1);
  return cell + T(0.125) * (around - T(6.0) * cell);
}

__device__ u64 divide(u64 a, u64 b) { return ((a | b) >> 32) == 0 ? u32(a) / u32(b) : a / b; }

template <typename T> __device__ T *array(u64 table, u64 field) {
  return reinterpret_cast<T *>(reinterpret_cast<const u64 *>(table)[field]);
}

// One large box. A thread goes along x with the cells before and after in registers; neighbouring threads lie along z.
template <typename T> __device__ void march(const Sweep &s) {
  u64 nz = s.extents[2], plane = s.extents[1] * nz;
  u64 chunks = (s.size[0][0] + DEPTH - 1) / DEPTH;
  u64 z = u64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (z >= s.size[0][2]) return;
  for (u64 part = blockIdx.z; part < chunks * s.fields; part += gridDim.z) {
    u64 field = part / chunks, x = part % chunks * DEPTH;
    u64 last = x + DEPTH < s.size[0][0] ? x + DEPTH : s.size[0][0];
    const T *from = array<const T>(s.from, field);
    T *to = array<T>(s.to, field);
    u64 stride = u64(gridDim.y) * blockDim.y;
    for (u64 y = u64(blockIdx.y) * blockDim.y + threadIdx.y; y < s.size[0][1]; y += stride) {
      u64 at = ((s.low[0][0] + x) * s.extents[1] + s.low[0][1] + y) * nz + s.low[0][2] + z;
      T before = from[at - plane], here = from[at];
      for (u64 now = x; now < last; ++now, at += plane) {
        T after = from[at + plane];
        to[at] = step(here, before, after, from[at - nz], from[at + nz], from[at - 1], from[at + 1]);
        before = here;
        here = after;
      }
    }
  }
}

// Several boxes, which may be thin along any axis: a thread for each cell.
template <typename T> __device__ void boxes(const Sweep &s) {
  u64 nz = s.extents[2], plane = s.extents[1] * nz, stride = u64(gridDim.x) * blockDim.x;
  for (u64 number = u64(blockIdx.x) * blockDim.x + threadIdx.x; number < s.begin[s.boxes]; number += stride) {
    u64 box = 0;
    while (number >= s.begin[box + 1]) ++box;
    u64 rest = number - s.begin[box], deep = s.size[box][2], wide = s.size[box][1];
    u64 row = divide(rest, deep), x = divide(row, wide);
    u64 y = row - x * wide, z = rest - row * deep;
    z += z < s.gap[box][0] ? 0 : s.gap[box][1];
    u64 at = ((s.low[box][0] + x) * s.extents[1] + s.low[box][1] + y) * nz + s.low[box][2] + z;
    for (u64 field = blockIdx.y; field < s.fields; field += gridDim.y) {
      const T *from = array<const T>(s.from, field);
      T *to = array<T>(s.to, field);
      to[at] = step(from[at], from[at - plane], from[at + plane], from[at - nz], from[at + nz], from[at - 1], from[at + 1]);
    }
  }
}

extern "C" __global__ void march_f64(const __grid_constant__ Sweep s) { march<double>(s); }
extern "C" __global__ void march_f32(const __grid_constant__ Sweep s) { march<float>(s); }
extern "C" __global__ void boxes_f64(const __grid_constant__ Sweep s) { boxes<double>(s); }
extern "C" __global__ void boxes_f32(const __grid_constant__ Sweep s) { boxes<float>(s); }
