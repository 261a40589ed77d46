// Runs the kernel of copy tables on the CPU, with one fiber per thread of each block, in an order that a
// seed selects, and checks it.
//
// The kernel is compiled with `-fsanitize=thread`. That inserts calls before every memory access, which
// this file implements (the sanitizer's library is not linked). Other fibers may run before each access,
// and each access is checked:
//
//   shared memory: two accesses of different threads, one of them a write, must have a barrier in between;
//   the table: is only read, except for its counters;
//   sources: are read after the waits of the part, unless it is early;
//   targets: each byte is written once per launch, after the waits of the part;
//   flags: become the epoch once per launch, after all bytes of the part are written; a barrier, or a fence
//   and the part's counter, must separate each write from the flag, with a fence after the write;
//   announcements: what the receiver does not expect is not written, and no flag of that part is raised;
//   slots: each word is loaded and stored atomically, in any order, as a source or a target, with the epoch
//   of the launch.
//
// A device runs a limited number of blocks, which start in order; launches on different streams interleave.
// If no fiber can run, the error lists what each waits for.
//
// Included after `state.h` (the state) and `checks.h`.

namespace {

void begin_block(u32 device, Launch &launch);

void run_thread() {
  Fiber *const me = machine->current;
  const Op &op = *me->block->launch->op;
  if (op.kind == BUSY) {
    for (u64 turn = machine->below(60); turn > 0; turn--) {
      happened();
      yield();
    }
  } else {
    const Table &table = *me->block->launch->table;
    const u64 counter = op.counter | op.later;
    if (table.kind == 3) {
      if (op.counter) halocline_combine_counted(op.argument, counter);
      else halocline_combine(op.argument, op.value);
    } else if (table.kind == 2) {
      if (op.counter) halocline_copy_based_counted(op.argument, counter, table.bases);
      else halocline_copy_based(op.argument, op.value, table.bases);
    } else {
      if (op.counter) (table.kind ? halocline_copy_ll_counted : halocline_copy_counted)(op.argument, counter);
      else (table.kind ? halocline_copy_ll : halocline_copy)(op.argument, op.value);
    }
  }
  happened();
  me->block->left--;
  me->at = nullptr;
  leave();
}

void begin_block(u32 device, Launch &launch) {
  auto block = std::make_unique<Block>();
  block->launch = &launch;
  block->device = device;
  block->number = launch.begun++;
  const u32 threads = launch.is_busy() ? 1 : machine->setting->threads;
  block->left = threads;
  const size_t shared = __stop_shared_memory - __start_shared_memory;
  block->shared.assign(shared, 0xA5);
  block->cells.resize((shared + 3) / 4);
  block->warps.resize((threads + LANES - 1) / LANES);
  for (u32 thread = 0; thread < threads; thread++) {
    auto fiber = std::make_unique<Fiber>();
    fiber->block = block.get();
    fiber->thread = thread;
    fiber->priority = machine->below(1 << 16);
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack.get();
    fiber->context.uc_stack.ss_size = STACK;
    fiber->context.uc_link = nullptr;
    makecontext(&fiber->context, run_thread, 0);
    machine->ready.push_back(fiber.get());
    block->fibers.push_back(std::move(fiber));
  }
  machine->used[device]++;
  machine->blocks.push_back(std::move(block));
}

void end_launch(Queue &queue) {
  Launch &launch = *queue.running;
  if (!launch.is_busy()) {
    const Table &table = *launch.table;
    // If the guard was set, parts that read it earlier may have copied, and a part that copied everything
    // may have raised its flags.
    for (u32 part = 0; part < table.part_count && !launch.was_guarded; part++) {
      if (!is_expected(table.parts[part])) continue;
      for (u32 at = 0; at < table.parts[part].raises; at++) {
        if (!launch.raised[table.parts[part].raise + at]) fail("epoch %llu: part %u has not raised a flag", (unsigned long long)launch.op->value, part);
      }
    }
    for (u32 of = 0; of < table.target_count && !launch.was_guarded; of++) {
      const Interval &interval = table.targets[of];
      const bool is_wanted = is_expected(table.parts[interval.part]);
      for (u64 byte = 0; byte < interval.end - interval.begin; byte++) {
        const bool is_written = launch.bytes[launch.offsets[of] + byte].block != 0;
        if (is_written != is_wanted) fail("epoch %llu: a byte of a target of part %u is %s", (unsigned long long)launch.op->value, interval.part, is_written ? "written" : "not written");
      }
    }
  }
  const Op &op = *launch.op;
  if (op.counter && *(volatile u64 *)op.counter != op.value - op.later << 20) fail("after epoch %llu the counter is %#llx", (unsigned long long)op.value, (unsigned long long)*(u64 *)op.counter);
  queue.running.reset();
  queue.ops.pop_front();
}

// Advances the first operation of a stream, if possible.
bool step_stream(u32 stream) {
  Queue &queue = machine->queues[stream];
  if (queue.ops.empty()) return false;
  const Op &op = *queue.ops.front();
  const u32 device = machine->setting->on[stream].device;
  switch (op.kind) {
  case CALL:
    if (const char *wrong = machine->setting->call(machine->setting->context, (u32)(&op - machine->setting->ops))) fail("%s", wrong);
    queue.ops.pop_front();
    return true;
  case WRITE:
    *(volatile u64 *)op.word = op.value;
    queue.ops.pop_front();
    for (Queue &other : machine->queues) {
      if (other.running && other.running->table && other.running->table->guard == op.word) other.running->was_guarded = true;
    }
    return true;
  default:
    break;
  }
  if (!queue.running) {
    queue.running = std::make_unique<Launch>();
    Launch &launch = *queue.running;
    launch.op = &op;
    if (op.kind == LAUNCH) {
      launch.table = &machine->setting->of[op.table];
      u32 bytes = 0;
      for (u32 at = 0; at < launch.table->target_count; at++) {
        launch.offsets.push_back(bytes);
        bytes += launch.table->targets[at].end - launch.table->targets[at].begin;
      }
      launch.bytes.resize(bytes);
      u32 raises = 0;
      for (u32 at = 0; at < launch.table->part_count; at++) raises += launch.table->parts[at].raises;
      launch.raised.resize(raises);
      launch.was_guarded = launch.table->guard != 0 && *(volatile u64 *)launch.table->guard != 0;
    }
    return true;
  }
  Launch &launch = *queue.running;
  if (launch.begun < op.blocks) {
    if (machine->used[device] >= machine->setting->max_blocks[device]) return false;
    begin_block(device, launch);
    return true;
  }
  if (launch.over < op.blocks) return false;
  end_launch(queue);
  return true;
}

void load(Block *block) {
  if (machine->loaded == block) return;
  const size_t shared = __stop_shared_memory - __start_shared_memory;
  if (machine->loaded) memcpy(machine->loaded->shared.data(), __start_shared_memory, shared);
  if (block) memcpy(__start_shared_memory, block->shared.data(), shared);
  machine->loaded = block;
}

// Runs a fiber until it yields.
void step_thread() {
  std::vector<Fiber *> &ready = machine->ready;
  size_t at = machine->below((u32)ready.size());
  if (machine->mode == 1) at = ready.size() - 1 - (machine->below(4) == 0 ? at : 0);
  if (machine->mode == 2) {
    // The highest priority among some; priorities change at random moments, so that no fiber waits forever.
    if (machine->below(8) == 0) ready[machine->below((u32)ready.size())]->priority = machine->below(1 << 16);
    for (u32 tries = 0; tries < 8; tries++) {
      const size_t other = machine->below((u32)ready.size());
      if (ready[other]->priority > ready[at]->priority) at = other;
    }
  }
  Fiber *const fiber = ready[at];
  ready[at] = ready.back();
  ready.pop_back();
  Block *const block = fiber->block;
  load(block);
  threadIdx = {fiber->thread, 0, 0};
  blockIdx = {block->number, 0, 0};
  gridDim = {block->launch->op->blocks, 1, 1};
  machine->current = fiber;
  swapcontext(&machine->home, &fiber->context);
  machine->current = nullptr;
  if (block->left > 0) return;
  machine->loaded = machine->loaded == block ? nullptr : machine->loaded;
  machine->used[block->device]--;
  block->launch->over++;
  for (size_t of = 0; of < machine->blocks.size(); of++) {
    if (machine->blocks[of].get() != block) continue;
    std::swap(machine->blocks[of], machine->blocks.back());
    machine->blocks.pop_back();
    break;
  }
}

void say_stuck() {
  std::string text = "deadlock:";
  char line[200];
  for (size_t stream = 0; stream < machine->queues.size(); stream++) {
    const Queue &queue = machine->queues[stream];
    if (queue.ops.empty()) continue;
    const Op &op = *queue.ops.front();
    snprintf(line, sizeof line, "\n  stream %zu of device %u: operation of kind %u, value %llu, %u of %u blocks begun, %u over", stream,
             machine->setting->on[stream].device, op.kind, (unsigned long long)op.value, queue.running ? queue.running->begun : 0, op.blocks,
             queue.running ? queue.running->over : 0);
    text += line;
  }
  u32 said = 0;
  for (const auto &block : machine->blocks) {
    std::map<std::pair<std::string, u64>, u32> at;
    for (const auto &fiber : block->fibers) {
      if (fiber->at) at[{fiber->at, fiber->word}]++;
    }
    for (const auto &[where, count] : at) {
      const u64 value = where.second ? *(u64 *)where.second : 0;
      snprintf(line, sizeof line, "\n  device %u, epoch %llu, block %u: %u threads at %s %#llx (%llu)", block->device,
               (unsigned long long)block->launch->op->value, block->number, count, where.first.c_str(), (unsigned long long)where.second,
               (unsigned long long)value);
      if (said++ < 30) text += line;
    }
  }
  machine->current = nullptr;
  machine->error = text;
}

} // namespace

// Runs all streams to their ends. Returns the error, or null; the text is valid until the next run.
extern "C" const char *run_machine(const Setting *setting) {
  static std::string error;
  Machine all;
  machine = &all;
  all.setting = setting;
  all.random = setting->seed * 2654435761u + 1;
  all.mode = all.below(3);
  all.queues.resize(setting->streams);
  all.used.resize(setting->devices);
  for (u32 at = 0; at < setting->op_count; at++) all.queues[setting->ops[at].stream].ops.push_back(&setting->ops[at]);
  while (all.error.empty()) {
    u32 open = 0;
    for (const Queue &queue : all.queues) open += !queue.ops.empty();
    if (open == 0) break;
    const bool streams = all.ready.empty() || all.below(10) == 0;
    bool stepped = false;
    if (streams) {
      const u32 first = all.below(setting->streams);
      for (u32 at = 0; at < setting->streams && !stepped; at++) stepped = step_stream((first + at) % setting->streams);
    }
    if (stepped) {
      happened();
    } else if (!all.ready.empty()) {
      step_thread();
    }
    if (++all.idle > 20000 + 500 * all.ready.size()) say_stuck();
  }
  error = all.error;
  load(nullptr);
  machine = nullptr;
  return error.empty() ? nullptr : error.c_str();
}

// Functions that the kernel calls.
extern "C" {

int __syncthreads_and(int predicate) {
  Fiber *const me = machine->current;
  Block &block = *me->block;
  me->at = "__syncthreads", me->word = 0;
  block.all = block.all && predicate;
  if (++block.arrived < block.fibers.size()) {
    block.waiting.push_back(me);
    leave();
    return block.last;
  }
  block.arrived = 0;
  block.phase++;
  block.last = block.all;
  block.all = true;
  happened();
  machine->ready.insert(machine->ready.end(), block.waiting.begin(), block.waiting.end());
  block.waiting.clear();
  yield();
  return block.last;
}

void __syncthreads() { __syncthreads_and(1); }

int __all_sync(unsigned, int predicate) {
  Fiber *const me = machine->current;
  Block &block = *me->block;
  Block::Warp &warp = block.warps[me->thread / LANES];
  me->at = "__syncwarp", me->word = 0;
  warp.all = warp.all && predicate;
  if (++warp.arrived < LANES) {
    warp.waiting.push_back(me);
    leave();
    return warp.last;
  }
  warp.arrived = 0;
  warp.phase++;
  warp.last = warp.all;
  warp.all = true;
  machine->ready.insert(machine->ready.end(), warp.waiting.begin(), warp.waiting.end());
  warp.waiting.clear();
  yield();
  return warp.last;
}

void __syncwarp() { __all_sync(~0u, 1); }

void __nanosleep(unsigned) { yield(); }

u64 load_flag(const u64 *flag) {
  machine->current->at = "load_flag", machine->current->word = (u64)flag;
  yield();
  return *(const volatile u64 *)flag;
}

void store_flag(u64 *flag, u64 value) {
  machine->current->at = "store_flag", machine->current->word = (u64)flag;
  yield();
  raise(*machine->current, (u64)flag, value);
  leave_if_wrong();
  *(volatile u64 *)flag = value;
  happened();
}

unsigned any_of_two() { return machine->below(2); }

u64 load_slot(u64 from) {
  Fiber &me = *machine->current;
  me.at = "load_slot", me.word = from;
  yield();
  read_source(*me.block->launch, from, 8);
  leave_if_wrong();
  return *(const volatile u64 *)from;
}

void store_slot(u64 to, u64 word) {
  Fiber &me = *machine->current;
  me.at = "store_slot", me.word = to;
  yield();
  Launch &launch = *me.block->launch;
  if (word >> 32 != (u32)launch.op->value) fail("a word has the flag %llu", (unsigned long long)(word >> 32));
  write_target(me, launch, to, 8);
  leave_if_wrong();
  *(volatile u64 *)to = word;
  happened();
}

void fence_system() {
  Fiber &me = *machine->current;
  yield();
  join(me.known, me.pending);
  me.fenced = me.known;
  const u32 own = me.block->number;
  if (me.fenced.size() <= own) me.fenced.resize(own + 1);
  me.fenced[own] = me.block->phase;
  me.fenced_writes = me.writes;
}

u64 atomicAdd(u64 *word, u64 value) {
  Fiber &me = *machine->current;
  me.at = "atomicAdd", me.word = (u64)word;
  yield();
  const Table &table = *me.block->launch->table;
  if ((u64)word == me.block->launch->op->counter) {
    const u64 before = *(volatile u64 *)word;
    *(volatile u64 *)word = before + value;
    happened();
    return before;
  }
  if ((u64)word < table.counters || (u64)word >= table.counters_end) fail("%#llx is no counter", (unsigned long long)(u64)word);
  leave_if_wrong();
  Clock &clock = machine->counters[(u64)word];
  join(me.pending, clock);
  join(clock, me.fenced);
  const u64 before = *(volatile u64 *)word;
  *(volatile u64 *)word = before + value;
  happened();
  return before;
}

#define ACCESS(bytes)                                                                                                                             \
  void __tsan_read##bytes(void *at) { accessed(at, bytes, false); }                                                                               \
  void __tsan_write##bytes(void *at) { accessed(at, bytes, true); }                                                                               \
  void __tsan_unaligned_read##bytes(void *at) { accessed(at, bytes, false); }                                                                     \
  void __tsan_unaligned_write##bytes(void *at) { accessed(at, bytes, true); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
void __tsan_read_range(void *at, unsigned long bytes) { accessed(at, bytes, false); }
void __tsan_write_range(void *at, unsigned long bytes) { accessed(at, bytes, true); }
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
}
