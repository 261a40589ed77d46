// Executes a copy table in one launch. `table.rs` builds the table and documents its fields; the structures
// here mirror its structures.
//
// A table consists of items of similar numbers of accesses. A block of threads executes one item after
// another; after the first item, each of its warps proceeds independently:
//
//   block 0, if there are parts without copies: they wait and raise flags, one part per thread;
//   then carriers: blocks of one part that waits or raises flags; together they execute its items, and the
//   last one raises;
//   then one block for each item of the other parts.
//
// A table may have one work for even epochs and another for odd ones. If both have the same shape, the arrays of the second lie at one
// distance behind those of the first, and one launch serves either.
//
// The epoch of a launch is an argument, or the next one of a counter in device memory. Each block of a counted launch reads the counter when it
// begins and adds to it when it ends. The sum of all additions is one epoch, so that the number of whole epochs stays the same as long as a
// block has not ended.
//
// The carriers of waiting parts are few enough to be resident all at once. An item contains everything that
// its block needs: each dependent memory access costs a block about as long as the copying.
//
// Memory ordering: source data may become visible while the kernel runs (after a wait), so it is never read
// through the non-coherent path. A polling thread acquires, and a barrier extends that to its block. At the
// end of a carrier, a barrier and a fence of one thread, followed by a count, publish the block's stores to
// the thread that counts last. That thread fences and raises the flags (fences are cumulative). Stores of
// earlier stream work became visible when that ended.
//
// A table with bases counts some addresses from bases that each launch gives, or from one that the receiver announces: their upper bits
// name the base. A part with an announcement reads it once its waits are over. If the receiver expects another message, the part copies
// nothing and says so. Blocks of such a table may execute several parts, one after the other.
//
// LL slots and bases have kernels of their own, so that other tables do not pay for them. Each 8-byte word holds 4
// bytes of a message in its lower half, and the lower half of the epoch in its upper half. A word is stored
// and loaded atomically, so no other ordering is needed. A warp polls the words of its units until all
// carry the epoch, and checks the guard now and then.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

static_assert(sizeof(u32) == 4 && sizeof(u64) == 8, "sizes of the host");

constexpr u32 THREADS = 512;
constexpr u32 LANES = 32;
constexpr u32 LOOPS = 4;

// A nest of loops around contiguous units of 1, 2, 4, 8 or 16 bytes. Loop 0 iterates over the units of a
// block, loop 4 is the outermost. Units are numbered in that order, below 2^31.
struct __align__(16) Region {
  u64 source, target;
  i64 source_step[LOOPS], target_step[LOOPS]; // bytes, of loops 1 to 4
  u32 count[LOOPS];                           // of loops 0 to 3
  u32 multiplier[LOOPS];                      // for divisions by them
  u8 shift[LOOPS];
  u8 log_unit;                                // units have 2^log_unit bytes; or a code of slots, below
  u8 loops;                                   // number of loops, including loop 0
  u8 cell_loop;                               // the loop over listed cells; 0: none
  u8 ends;                                    // for 16-byte units: 4-byte words left out of a block's first unit, plus 4 times those of its last
                                              // unit, plus 16 times its spare units, which align the others with target lines
  union {
    const uint2 *cells;                       // cell numbers in source and target
    u64 signs;                                // without listed cells: the sign bits that change, in 8 bytes that are aligned at the target
  };
};

// Codes for units of 4 or 8 bytes that are written to, or read from, a slot, where they have twice the
// size.
constexpr u8 WRITTEN = 5, AWAITED = 7;

// Where the units of a gather lie in one buffer: at `first`, moved by the steps of all loops. In a loop over a list, a step counts from a number
// of the list.
struct __align__(16) Listed {
  u64 first;
  i64 step[LOOPS];
  const u32 *numbers;
  u64 is_cleared; // as a source: becomes zero once it is read
  u64 signs;      // as a source: the sign bits that change first, in 8 bytes
};

// The loop of a gather that goes over lists of numbers.
enum List : u8 { NONE, INNERMOST, OUTERMOST };

// Elements of one buffer and those that are combined with them, in the place of a region in tables that combine. Units are elements, or the elements of 16 bytes; they
// are numbered in the order of the loops, the innermost first, below 2^31.
struct __align__(16) Gather {
  Listed target;
  const Listed *source; // in the order of combination
  u32 sources;          // 0: targets become zero
  u32 bytes;            // of an element
  u32 count[LOOPS - 1];
  u32 op;
  u32 multiplier[LOOPS - 1]; // for divisions by the counts
  u32 type;
  u8 shift[LOOPS - 1];
  u8 list;
  u8 code; // where a region has its `log_unit`
  u8 access;
  u8 unused[10];
};

struct Wait {
  const u64 *flag;
  u64 lag;
};

// Where the receiver announces the base of the message and what it expects, and what this side sends.
struct Announced {
  const u64 *words;
  u64 sent;
  u64 *differs; // becomes the address of `words` if the two differ
  u64 unused;
};

// Units of one region and, for a block's first item, the flags to wait for and to raise.
struct __align__(16) Item {
  Region region;
  u32 first, units;
  u32 next;  // next item of the block, or 0
  u32 part;  // index of its counter
  Wait awaited;
  u32 wait, waits; // the first of them is `awaited`
  u32 raise, raises; // the first of them is `raised`
  u32 blocks; // that execute the part; 0: it neither waits nor raises
  u32 early;  // its sources may be read before its waits
  u64 *raised;
  const Announced *announced; // or null
  u64 then; // the first item of the part that the block executes next, or 0
};

// A part without copies.
struct Part {
  u32 wait, waits, raise, raises;
};

constexpr u32 RAISES = 8;

struct Table {
  u64 *first[RAISES]; // flags raised by parts that neither wait nor copy, up to the capacity
  const Item *items;  // first items of the blocks, then the others
  const Part *parts;
  const Wait *waits;
  u64 *const *raises;
  const u64 *guard;
  u64 *done; // for each part with carriers: number finished, and from bit 32 number that copied nothing because of the guard
  u32 bare;  // parts without copies
  u32 first_count;
  u32 tied; // number of counters
  u32 odd;  // distance of the arrays for odd epochs from those for even epochs, in units of 16 bytes; 0: they are the same
};

// Offsets that a launch adds to addresses, by the number of their base.
constexpr u32 BASES = 64;
struct Bases {
  u64 added[BASES];
};

static_assert(sizeof(Gather) == sizeof(Region) && sizeof(Listed) == 64, "one takes the place of the other");
static_assert(sizeof(Region) == 128 && sizeof(Item) == 208 && sizeof(Part) == 16, "as on the host");
static_assert(sizeof(Wait) == 16 && sizeof(Announced) == 32 && sizeof(Table) == 128, "as on the host");

// The abilities of a kernel beside plain copies.
enum Kind { PLAIN, SLOTS, BASED, COMBINING };
