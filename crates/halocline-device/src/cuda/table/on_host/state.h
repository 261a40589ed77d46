// State of the machine: the structures of `mod.rs`, the fibers, and the accesses. `machine.cc` documents
// its purpose.

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <ucontext.h>
#include <vector>

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;

constexpr u32 LANES = 32;
constexpr size_t STACK = 16 << 10;

struct Index { unsigned x, y, z; };
Index threadIdx, blockIdx, gridDim;

struct alignas(16) Argument { u8 bytes[128]; };
struct Bases { u64 added[64]; };
extern "C" void halocline_copy(Argument table, u64 epoch);
extern "C" void halocline_copy_ll(Argument table, u64 epoch);
extern "C" void halocline_copy_based(Argument table, u64 epoch, Bases bases);
extern "C" void halocline_copy_based_counted(Argument table, u64 counter, Bases bases);
extern "C" void halocline_copy_counted(Argument table, u64 counter);
extern "C" void halocline_copy_ll_counted(Argument table, u64 counter);
extern "C" void halocline_combine(Argument table, u64 epoch);
extern "C" void halocline_combine_counted(Argument table, u64 counter);
extern "C" u8 __start_shared_memory[], __stop_shared_memory[];

// Mirrors `mod.rs`.
extern "C" {
struct Interval { u64 begin, end; u32 part, unused; };
struct Signal { u64 flag, lag; };
struct Part {
  u64 source_begin, source_end;
  u32 wait, waits, raise, raises;
  u32 early, copies;
  u64 announced, sent, differs;
};
struct Table {
  u64 begin, end, counters, counters_end;
  const Part *parts;
  const Interval *targets; // ascending
  const Signal *waits;
  const u64 *raises;
  u64 guard;
  u32 part_count, target_count, blocks, kind;
  Bases bases;
};
enum Kind : u32 { LAUNCH, CALL, WRITE, BUSY };
struct Op {
  u32 kind, stream;
  u32 table, blocks; // of a launch; blocks that are busy
  u64 word, value;   // of a write; the epoch
  u64 counter, later; // of a launch, if it has one; whether a later launch counts the epoch
  Argument argument;
};
struct Stream { u32 device, unused; };
struct Setting {
  u64 seed;
  u32 threads, devices, streams, tables;
  const u32 *max_blocks; // resident blocks of each device
  const Stream *on;
  const Table *of;
  const Op *ops;   // those of a stream in their order
  u32 op_count, unused;
  const char *(*call)(void *context, u32 op); // what is wrong, or null
  void *context;
};
}

namespace {

struct Fiber;
struct Block;

// The writer of a byte of a target.
struct Byte { u32 block, phase, thread, at; };

struct Launch {
  const Op *op = nullptr;
  const Table *table = nullptr;
  u32 begun = 0, over = 0;
  bool was_guarded = false;
  std::vector<u32> offsets;   // of each interval among `bytes`
  std::vector<Byte> bytes;    // block: from 1
  std::vector<u8> raised;
  bool is_busy() const { return op->kind == BUSY; }
};

struct Access { u32 thread, phase, warp_phase; };
struct Cell { std::vector<Access> reads; Access write{~0u, 0, 0}; };

struct Block {
  Launch *launch;
  u32 device, number, phase = 0, arrived = 0, left;
  bool all = true, last = true;
  std::vector<u8> shared;
  std::vector<Cell> cells;
  std::vector<Fiber *> waiting;
  struct Warp { u32 arrived = 0, phase = 0; bool all = true, last = true; std::vector<Fiber *> waiting; };
  std::vector<Warp> warps;
  std::vector<std::unique_ptr<Fiber>> fibers;
};

typedef std::vector<u32> Clock; // for each block of a launch: its stores before this phase are seen

struct Fiber {
  ucontext_t context;
  Block *block;
  u32 thread;
  std::unique_ptr<u8[]> stack{new u8[STACK]};
  u32 writes = 0, fenced_writes = 0;
  Clock known, pending, fenced;
  const char *at = "begin";
  u64 word = 0;
  u32 priority = 0;
};

struct Queue { std::deque<const Op *> ops; std::unique_ptr<Launch> running; };

struct Machine {
  const Setting *setting;
  u64 random;
  u32 mode;
  std::vector<Queue> queues;
  std::vector<u32> used; // resident blocks of each device
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<Fiber *> ready;
  std::map<u64, Clock> counters;
  Fiber *current = nullptr;
  Block *loaded = nullptr;
  ucontext_t home;
  u64 idle = 0; // choices since anything happened
  std::string error;

  u32 below(u32 limit) {
    random = random * 6364136223846793005ull + 1442695040888963407ull;
    return (u32)((random >> 33) % limit);
  }
};

Machine *machine;

void fail(const char *format, ...) {
  if (!machine->error.empty()) return;
  char text[400];
  va_list values;
  va_start(values, format);
  vsnprintf(text, sizeof text, format, values);
  va_end(values);
  machine->error = text;
  if (const Fiber *fiber = machine->current) {
    snprintf(text, sizeof text, " (thread %u of block %u of %u, epoch %llu)", fiber->thread, fiber->block->number,
             fiber->block->launch->op->blocks, (unsigned long long)fiber->block->launch->op->value);
    machine->error += text;
  }
}

// Yields; a runnable fiber continues at some time.
void leave() {
  Fiber *const me = machine->current;
  swapcontext(&me->context, &machine->home);
}

void yield() {
  machine->ready.push_back(machine->current);
  leave();
}

void happened() { machine->idle = 0; }

void maybe_yield() {
  const u32 one_in = machine->mode == 0 ? 8 : machine->mode == 1 ? 100 : 30;
  if (machine->below(one_in) == 0) yield();
}

// Suppresses effects after an error.
void leave_if_wrong() {
  if (!machine->error.empty()) leave();
}

} // namespace
