// A time step of the ocean on a GPU: the same operations in the same order as `physics.rs`, compiled without fused
// multiply-add, so that the result is the same to the last bit. `device.rs` has the structure of the argument.
//
// A thread does one layer of a triangle or a node; neighbouring threads do neighbouring layers, which lie beside each other.

typedef unsigned int u32;
typedef unsigned long long u64;

struct Sea {
  u64 layers;
  const u32 *items;        // the owned triangles, or nodes, that are computed
  u64 count;               // how many
  const double *temperature;
  double *later;
  double *east, *north;    // gradient
  const u32 *nodes;        // three for each triangle
  const u32 *wet;          // layers above the bottom at each triangle
  const u32 *node_wet;     // and at each owned node
  const double *diffusivity;
  const double *slopes;    // four for each triangle: gradients of the functions that are 1 at the second and third corner
  const double *faces;     // six for each triangle
  const double *u, *v, *thickness, *area, *rise;
  const u64 *around_begin; // of each owned node, in `around`
  const u32 *around;       // pairs: a triangle, ascending in global order, and which of its corners the node is
  double seconds, mixing;
};

// Which item and which layer a thread does.
struct Place {
  u64 item, layer;
};

__device__ bool place(const Sea &s, Place &p) {
  u64 number = u64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (number >= s.count * s.layers) return false;
  u64 item = number >> 32 == 0 ? u32(number) / u32(s.layers) : number / s.layers;
  p = {s.items[item], number - item * s.layers};
  return true;
}

extern "C" __global__ void gradients(const __grid_constant__ Sea s) {
  Place p;
  if (!place(s, p) || p.layer >= s.wet[p.item]) return;
  const u32 *nodes = s.nodes + 3 * p.item;
  const double *slopes = s.slopes + 4 * p.item;
  double a = s.temperature[nodes[0] * s.layers + p.layer];
  double b = s.temperature[nodes[1] * s.layers + p.layer], c = s.temperature[nodes[2] * s.layers + p.layer];
  double ab = b - a, ac = c - a;
  s.east[p.item * s.layers + p.layer] = ab * slopes[0] + ac * slopes[2];
  s.north[p.item * s.layers + p.layer] = ab * slopes[1] + ac * slopes[3];
}

// What flows through the face of a triangle from a corner to the next one.
__device__ double flux(const Sea &s, u64 triangle, u32 corner, u64 layer) {
  u64 at = triangle * s.layers + layer;
  double x = s.faces[6 * triangle + 2 * corner], y = s.faces[6 * triangle + 2 * corner + 1];
  double speed = s.u[at] * x + s.v[at] * y;
  u64 from = s.nodes[3 * triangle + (speed > 0.0 ? corner : (corner + 1) % 3)];
  double carried = speed * s.temperature[from * s.layers + layer];
  double mixed = s.diffusivity[triangle] * (s.east[at] * x + s.north[at] * y);
  return (carried - mixed) * s.thickness[layer];
}

// What comes through the bottom of a layer of a node.
__device__ double through_bottom(const Sea &s, u64 node, u64 layer) {
  if (layer + 1 >= s.node_wet[node]) return 0.0;
  u64 at = node * s.layers + layer;
  double above = s.temperature[at], below = s.temperature[at + 1], rise = s.rise[at + 1];
  double carried = rise * (rise > 0.0 ? below : above);
  double distance = 0.5 * (s.thickness[layer] + s.thickness[layer + 1]);
  double mixing = s.mixing * s.area[at + 1] / distance;
  return carried + mixing * (below - above);
}

extern "C" __global__ void advance(const __grid_constant__ Sea s) {
  Place p;
  if (!place(s, p)) return;
  u64 node = p.item, layer = p.layer, at = node * s.layers + layer;
  double gain = 0.0;
  for (u64 pair = s.around_begin[node]; pair < s.around_begin[node + 1]; ++pair) {
    u64 triangle = s.around[2 * pair];
    u32 corner = s.around[2 * pair + 1];
    if (layer < s.wet[triangle]) {
      double out = flux(s, triangle, corner, layer), into = flux(s, triangle, (corner + 2) % 3, layer);
      gain += into - out;
    }
  }
  if (layer < s.node_wet[node]) {
    double top = layer == 0 ? 0.0 : through_bottom(s, node, layer - 1);
    double volume = s.area[at] * s.thickness[layer];
    double total = gain + (through_bottom(s, node, layer) - top);
    gain = s.temperature[at] + s.seconds * total / volume;
  }
  s.later[at] = gain;
}
