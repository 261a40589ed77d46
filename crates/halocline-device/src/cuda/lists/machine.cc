// Runs the kernels of index lists on the CPU, with one fiber per thread of each block, in an order that a seed selects. The kernels are
// compiled with `-fsanitize=thread`, whose calls before every memory access this file implements. It checks:
//
//   shared memory: two accesses of different threads, one of them a write, have a barrier in between (of the block, or of the warp);
//   other memory: accesses lie within the ranges of the launch; what a thread writes no other thread accesses in that launch, except by
//   atomic operations on words that are accessed in no other way;
//   warps: all lanes call the same function.

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <ucontext.h>
#include <unordered_map>
#include <vector>

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;

constexpr u32 LANES = 32, RESIDENT = 3;
constexpr size_t STACK = 32 << 10;

struct Index { unsigned x, y, z; };
Index threadIdx, blockIdx, gridDim;
extern "C" u8 __start_shared_memory[], __stop_shared_memory[];

// Mirrors `on_host.rs`.
extern "C" {
struct Split { u64 words[145]; };
struct Range { u64 begin, end, is_written; };
struct Setting {
  u64 seed;
  void (*kernel)(Split);
  const Split *split;
  const Range *ranges;
  u32 range_count, threads, blocks, unused;
};
}

namespace {

struct Access { u32 thread = ~0u, phase = 0, warp_phase = 0; };
struct Cell { Access write, reads[2]; u32 more = 0; };
struct Block;

struct Fiber {
  ucontext_t context;
  Block *block;
  u32 thread;
  std::unique_ptr<u8[]> stack{new u8[STACK]};
};

struct Warp {
  u32 arrived = 0, turn = 0, phase = 0;
  const char *what = nullptr;
  u64 values[2][LANES];
  std::vector<Fiber *> waiting;
};

struct Block {
  u32 number, left, arrived = 0, phase = 0;
  std::vector<u8> shared;
  std::vector<Cell> cells; // of two bytes
  std::vector<Warp> warps;
  std::vector<Fiber *> waiting;
  std::vector<std::unique_ptr<Fiber>> fibers;
};

// The only thread that accesses a word of 4 bytes in a launch, or that only atomic operations do, or that threads read.
struct Owner { u64 thread; bool writes, is_atomic, is_shared; };

struct Machine {
  const Setting *setting;
  u64 random;
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<Fiber *> ready;
  std::unordered_map<u64, Owner> owners;
  Fiber *current = nullptr;
  Block *loaded = nullptr;
  ucontext_t home;
  std::string error;

  u32 below(u32 limit) {
    random = random * 6364136223846793005ull + 1442695040888963407ull;
    return (u32)((random >> 33) % limit);
  }
};

Machine *machine;

void leave() { swapcontext(&machine->current->context, &machine->home); }

void fail(const char *format, ...) {
  char text[400];
  va_list values;
  va_start(values, format);
  const int length = vsnprintf(text, sizeof text, format, values);
  va_end(values);
  snprintf(text + length, sizeof text - length, " (thread %u of block %u)", machine->current->thread, machine->current->block->number);
  if (machine->error.empty()) machine->error = text;
  leave();
}

void yield() {
  machine->ready.push_back(machine->current);
  leave();
}

Warp &warp_of(Fiber &fiber) { return fiber.block->warps[fiber.thread / LANES]; }

bool is_before(const Access &access, Fiber &me) {
  if (access.thread == ~0u || access.thread == me.thread || access.phase < me.block->phase) return true;
  return access.thread / LANES == me.thread / LANES && access.warp_phase < warp_of(me).phase;
}

void shared_access(Fiber &me, u64 first, u32 bytes, bool writes) {
  const Access now{me.thread, me.block->phase, warp_of(me).phase};
  for (u64 at = first / 2; at <= (first + bytes - 1) / 2; at++) {
    Cell &cell = me.block->cells[at];
    if (!is_before(cell.write, me)) return fail("shared memory at %llu: accessed while thread %u writes it", (unsigned long long)at * 2, cell.write.thread);
    if (writes) {
      for (Access &read : cell.reads) {
        if (!is_before(read, me)) return fail("shared memory at %llu: written while thread %u reads it", (unsigned long long)at * 2, read.thread);
        read = Access();
      }
      cell.write = now;
    } else if (cell.reads[0].thread == ~0u || cell.reads[0].thread == me.thread || is_before(cell.reads[0], me)) {
      cell.reads[0] = now;
    } else {
      // The latest reader of another thread: enough to find a missing barrier.
      cell.reads[1] = now;
    }
  }
}

void global_access(Fiber &me, u64 address, u32 bytes, bool writes, bool is_atomic) {
  const Setting &setting = *machine->setting;
  const Range *found = nullptr;
  for (u32 at = 0; at < setting.range_count; at++) {
    if (address >= setting.ranges[at].begin && address + bytes <= setting.ranges[at].end) found = &setting.ranges[at];
  }
  if (!found || (writes && !found->is_written)) return fail("%u bytes at %#llx are %s", bytes, (unsigned long long)address, writes ? "written" : "read");
  if (!found->is_written) return;
  const u64 me_all = (u64)me.block->number << 32 | me.thread;
  for (u64 word = address / 4; word <= (address + bytes - 1) / 4; word++) {
    const auto [entry, is_new] = machine->owners.insert({word, {me_all, writes, is_atomic, false}});
    Owner &owner = entry->second;
    if (is_new || (is_atomic && owner.is_atomic)) continue;
    const bool is_other = owner.thread != me_all || owner.is_shared;
    if ((is_other && (writes || owner.writes)) || is_atomic != owner.is_atomic) {
      return fail("%#llx is accessed by this thread and by thread %u of block %u", (unsigned long long)address, (u32)owner.thread, (u32)(owner.thread >> 32));
    }
    owner.writes |= writes;
    owner.is_shared |= is_other;
  }
}

void accessed(const void *where, u32 bytes, bool writes) {
  Fiber &me = *machine->current;
  const u64 address = (u64)where;
  const auto is_in = [&](const void *begin, u64 size) { return address - (u64)begin < size; };
  if (is_in(me.stack.get(), STACK) || is_in(&threadIdx, sizeof threadIdx) || is_in(&blockIdx, sizeof blockIdx) || is_in(&gridDim, sizeof gridDim)) return;
  if (machine->below(24) == 0) yield();
  if (is_in(__start_shared_memory, __stop_shared_memory - __start_shared_memory)) return shared_access(me, address - (u64)__start_shared_memory, bytes, writes);
  global_access(me, address, bytes, writes, false);
}

// What the lanes of the warp give to one call.
const u64 *exchange(const char *what, u64 value, bool orders) {
  Fiber &me = *machine->current;
  Warp &warp = warp_of(me);
  if (warp.arrived > 0 && warp.what != what) fail("%s, while other lanes of the warp call %s", what, warp.what);
  warp.what = what;
  u64 *const values = warp.values[warp.turn % 2];
  values[me.thread % LANES] = value;
  if (++warp.arrived < LANES) {
    warp.waiting.push_back(&me);
    leave();
    return values;
  }
  warp.arrived = 0;
  warp.turn++;
  warp.phase += orders;
  machine->ready.insert(machine->ready.end(), warp.waiting.begin(), warp.waiting.end());
  warp.waiting.clear();
  yield();
  return values;
}

void run_thread() {
  Fiber &me = *machine->current;
  machine->setting->kernel(*machine->setting->split);
  me.block->left--;
  leave();
}

void begin_block(u32 number) {
  auto block = std::make_unique<Block>();
  const u32 threads = machine->setting->threads;
  const size_t shared = __stop_shared_memory - __start_shared_memory;
  block->number = number;
  block->left = threads;
  block->shared.assign(shared, 0xA5);
  block->cells.resize((shared + 1) / 2);
  block->warps.resize(threads / LANES);
  for (u32 thread = 0; thread < threads; thread++) {
    auto fiber = std::make_unique<Fiber>();
    fiber->block = block.get();
    fiber->thread = thread;
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack.get();
    fiber->context.uc_stack.ss_size = STACK;
    fiber->context.uc_link = nullptr;
    makecontext(&fiber->context, run_thread, 0);
    machine->ready.push_back(fiber.get());
    block->fibers.push_back(std::move(fiber));
  }
  machine->blocks.push_back(std::move(block));
}

void load(Block *block) {
  if (machine->loaded == block) return;
  const size_t shared = __stop_shared_memory - __start_shared_memory;
  if (machine->loaded) memcpy(machine->loaded->shared.data(), __start_shared_memory, shared);
  if (block) memcpy(__start_shared_memory, block->shared.data(), shared);
  machine->loaded = block;
}

// Runs a fiber until it yields; prefers the block that ran before, whose shared memory is in place.
void step() {
  std::vector<Fiber *> &ready = machine->ready;
  size_t at = machine->below((u32)ready.size());
  for (u32 tries = 0; tries < 4 && ready[at]->block != machine->loaded; tries++) at = machine->below((u32)ready.size());
  Fiber *const fiber = ready[at];
  ready[at] = ready.back();
  ready.pop_back();
  Block *const block = fiber->block;
  load(block);
  threadIdx = {fiber->thread, 0, 0};
  blockIdx = {block->number, 0, 0};
  gridDim = {machine->setting->blocks, 1, 1};
  machine->current = fiber;
  swapcontext(&machine->home, &fiber->context);
  if (block->left > 0) return;
  if (machine->loaded == block) machine->loaded = nullptr;
  for (auto &other : machine->blocks) {
    if (other.get() != block) continue;
    std::swap(other, machine->blocks.back());
    machine->blocks.pop_back();
    break;
  }
}

} // namespace

// Runs a launch. Returns the error, or null; the text is valid until the next run.
extern "C" const char *run_launch(const Setting *setting) {
  static std::string error;
  Machine all;
  machine = &all;
  all.setting = setting;
  all.random = setting->seed * 2654435761u + 1;
  u32 begun = 0;
  while (all.error.empty()) {
    if (begun < setting->blocks && all.blocks.size() < RESIDENT && (all.ready.empty() || all.below(1000) == 0)) begin_block(begun++);
    else if (!all.ready.empty()) step();
    else if (all.blocks.empty()) break;
    else all.error = "deadlock: some threads of a block wait at a barrier that others do not reach";
  }
  error = all.error;
  load(nullptr);
  machine = nullptr;
  return error.empty() ? nullptr : error.c_str();
}

// Functions that the kernels call.
extern "C" {

void __syncthreads() {
  Fiber &me = *machine->current;
  Block &block = *me.block;
  if (++block.arrived < block.fibers.size()) {
    block.waiting.push_back(&me);
    return leave();
  }
  block.arrived = 0;
  block.phase++;
  machine->ready.insert(machine->ready.end(), block.waiting.begin(), block.waiting.end());
  block.waiting.clear();
  yield();
}

void __syncwarp() { exchange("__syncwarp", 0, true); }

unsigned __ballot_sync(unsigned, int predicate) {
  const u64 *const all = exchange("__ballot_sync", predicate != 0, false);
  unsigned bits = 0;
  for (u32 lane = 0; lane < LANES; lane++) bits |= (unsigned)all[lane] << lane;
  return bits;
}

// The value of the lane so many lanes away, or this lane's own.
u64 shuffle(u64 value, int distance) {
  const u64 *const all = exchange("__shfl_sync", value, false);
  const int lane = (int)(machine->current->thread % LANES), from = lane + distance;
  return all[from < 0 || from >= (int)LANES ? lane : from];
}

static void atomic(u64 *word) {
  yield();
  global_access(*machine->current, (u64)word, 8, true, true);
}

u64 atomicMax(unsigned long long *word, unsigned long long value) {
  atomic((u64 *)word);
  const u64 before = *word;
  if (value > before) *word = value;
  return before;
}

u64 atomicOr(unsigned long long *word, unsigned long long value) {
  atomic((u64 *)word);
  const u64 before = *word;
  *word = before | value;
  return before;
}

#define ACCESS(bytes)                                                          \
  void __tsan_read##bytes(void *at) { accessed(at, bytes, false); }            \
  void __tsan_write##bytes(void *at) { accessed(at, bytes, true); }            \
  void __tsan_unaligned_read##bytes(void *at) { accessed(at, bytes, false); }  \
  void __tsan_unaligned_write##bytes(void *at) { accessed(at, bytes, true); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
void __tsan_read_range(void *at, unsigned long bytes) { accessed(at, (u32)bytes, false); }
void __tsan_write_range(void *at, unsigned long bytes) { accessed(at, (u32)bytes, true); }
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
}
