// Checks of each memory access and of each raised flag. Included after `state.h`.

namespace {

bool reached(u64 flag, u64 at_least) { return (int64_t)(*(volatile u64 *)flag - at_least) >= 0; }

// Whether the receiver expects what the part sends.
bool is_expected(const Part &part) { return part.announced == 0 || ((volatile u64 *)part.announced)[1] == part.sent; }

bool may_go(const Launch &launch, const Part &part) {
  for (u32 at = 0; at < part.waits; at++) {
    const Signal wait = launch.table->waits[part.wait + at];
    const u64 epoch = launch.op->value;
    if (!reached(wait.flag, epoch > wait.lag ? epoch - wait.lag : 0)) return false;
  }
  return true;
}

bool is_before(const Access &access, const Fiber &fiber) {
  const Block &block = *fiber.block;
  return access.thread == fiber.thread || access.phase < block.phase ||
         (access.thread / LANES == fiber.thread / LANES && access.warp_phase < block.warps[fiber.thread / LANES].phase);
}

void shared_access(Fiber &fiber, u64 address, u32 bytes, bool writes) {
  Block &block = *fiber.block;
  const u64 first = address - (u64)__start_shared_memory;
  const Access now{fiber.thread, block.phase, block.warps[fiber.thread / LANES].phase};
  for (u64 at = first / 4; at <= (first + bytes - 1) / 4; at++) {
    Cell &cell = block.cells[at];
    if (cell.write.thread != ~0u && !is_before(cell.write, fiber)) {
      return fail("shared memory: word %llu is %s while thread %u writes it", (unsigned long long)at, writes ? "written" : "read", cell.write.thread);
    }
    if (!writes) {
      if (!cell.reads.empty() && cell.reads.back().phase < block.phase) cell.reads.clear();
      // Record a read in a loop only once.
      bool is_known = false;
      for (Access &read : cell.reads) {
        if (read.thread != now.thread) continue;
        read = now;
        is_known = true;
      }
      if (!is_known) cell.reads.push_back(now);
      continue;
    }
    for (const Access &read : cell.reads) {
      if (!is_before(read, fiber)) return fail("shared memory: word %llu is written while thread %u reads it", (unsigned long long)at, read.thread);
    }
    cell.reads.clear();
    cell.write = now;
  }
}

void write_target(Fiber &fiber, Launch &launch, u64 address, u32 bytes) {
  const Table &table = *launch.table;
  u32 low = 0, high = table.target_count;
  while (low < high) {
    const u32 middle = (low + high) / 2;
    if (table.targets[middle].end <= address) low = middle + 1;
    else high = middle;
  }
  if (low == table.target_count || address < table.targets[low].begin || address + bytes > table.targets[low].end) {
    return fail("%u bytes are written at %#llx, outside the targets", bytes, (unsigned long long)address);
  }
  const Interval &interval = table.targets[low];
  if (!is_expected(table.parts[interval.part])) return fail("part %u writes a message that is not expected", interval.part);
  if (!may_go(launch, table.parts[interval.part])) return fail("part %u writes before what it waits for is there", interval.part);
  fiber.writes++;
  for (u32 at = 0; at < bytes; at++) {
    Byte &byte = launch.bytes[launch.offsets[low] + (address - interval.begin) + at];
    if (byte.block != 0) return fail("part %u writes %#llx twice", interval.part, (unsigned long long)address + at);
    byte = {fiber.block->number + 1, fiber.block->phase, fiber.thread, fiber.writes};
  }
}

void read_source(const Launch &launch, u64 address, u32 bytes) {
  const Table &table = *launch.table;
  for (u32 at = 0; at < table.part_count; at++) {
    const Part &part = table.parts[at];
    if (address < part.source_begin || address + bytes > part.source_end) continue;
    if (!part.early && !may_go(launch, part)) fail("part %u reads before what it waits for is there", at);
    return;
  }
  fail("%u bytes are read at %#llx, outside the sources", bytes, (unsigned long long)address);
}

void check_access(const void *where, u32 bytes, bool writes) {
  Fiber *const fiber = machine->current;
  const u64 address = (u64)where;
  // The fiber's own stack and built-in variables.
  if (address - (u64)fiber->stack.get() < STACK || address - (u64)&threadIdx < sizeof threadIdx || address - (u64)&blockIdx < sizeof blockIdx || address - (u64)&gridDim < sizeof gridDim) return;
  maybe_yield();
  if (address - (u64)__start_shared_memory < (u64)(__stop_shared_memory - __start_shared_memory)) return shared_access(*fiber, address, bytes, writes);
  Launch &launch = *fiber->block->launch;
  const Table &table = *launch.table;
  if (address >= table.begin && address + bytes <= table.end) {
    if (!writes) return;
    if (address < table.counters || address + bytes > table.counters_end) return fail("the table is written at %llu", (unsigned long long)(address - table.begin));
    machine->counters.erase(address);
    return happened();
  }
  if (!writes) return read_source(launch, address, bytes);
  happened();
  write_target(*fiber, launch, address, bytes);
}

void accessed(const void *where, u32 bytes, bool writes) {
  check_access(where, bytes, writes);
  leave_if_wrong();
}

void join(Clock &clock, const Clock &other) {
  if (clock.size() < other.size()) clock.resize(other.size());
  for (size_t at = 0; at < other.size(); at++) clock[at] = clock[at] < other[at] ? other[at] : clock[at];
}

// Whether a store precedes the thread's last fence.
bool is_fenced(const Fiber &fiber, const Byte &byte) {
  const u32 block = byte.block - 1;
  const bool is_own = block == fiber.block->number && byte.thread == fiber.thread && byte.at <= fiber.fenced_writes;
  return is_own || (block < fiber.fenced.size() && byte.phase < fiber.fenced[block]);
}

void raise(Fiber &fiber, u64 flag, u64 value) {
  Launch &launch = *fiber.block->launch;
  const Table &table = *launch.table;
  for (u32 part = 0; part < table.part_count; part++) {
    const Part &own = table.parts[part];
    if (own.announced && own.differs == flag && own.announced == value && !is_expected(own) && may_go(launch, own)) return;
  }
  if (value != launch.op->value) return fail("a flag becomes %llu", (unsigned long long)value);
  for (u32 part = 0; part < table.part_count; part++) {
    for (u32 at = 0; at < table.parts[part].raises; at++) {
      const u32 raise = table.parts[part].raise + at;
      if (table.raises[raise] != flag) continue;
      if (!is_expected(table.parts[part])) return fail("part %u raises a flag of a message that is not expected", part);
      if (launch.raised[raise]++) return fail("part %u raises a flag twice", part);
      if (!may_go(launch, table.parts[part])) return fail("part %u raises a flag before what it waits for is there", part);
      for (u32 of = 0; of < table.target_count; of++) {
        const Interval &interval = table.targets[of];
        if (interval.part != part) continue;
        for (u64 byte = 0; byte < interval.end - interval.begin; byte++) {
          const Byte &written = launch.bytes[launch.offsets[of] + byte];
          if (written.block == 0) return fail("part %u raises a flag before %#llx is written", part, (unsigned long long)(interval.begin + byte));
          if (!is_fenced(fiber, written)) return fail("part %u raises a flag without a fence behind what thread %u of block %u has written", part, written.thread, written.block - 1);
        }
      }
      return;
    }
  }
  fail("a flag is raised that no part raises: %#llx", (unsigned long long)flag);
}

} // namespace
