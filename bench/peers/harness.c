/* What every peer's measurement does around its exchange: rewrite the owned cells, meet, read the halo, take the time.
 *
 * It is C so that a peer that is called from Python does not pay for it, and it does what `halocline bench halo` does:
 * the same rewriting, the same order of reading, the same kind of barrier. Compiled without -march=native, as
 * Halocline is.
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

enum { MAX_FIELDS = 64, MAX_BLOCK = 1 << 16, PINGS = 300, PING_TRIES = 5 };

#if defined(__x86_64__)
#define RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define RELAX() __asm__ volatile("yield")
#else
#define RELAX()
#endif

typedef struct {
    _Alignas(128) _Atomic uint64_t value;
} Counter;

/* The memory that the two ranks share. Each counter has one writer: the rank whose index it has. */
typedef struct {
    Counter arrived[2];
    Counter ping[2];
    double ns[2][MAX_BLOCK];
} Shared;

/* Runs of cells in memory, lowest address first. */
typedef struct {
    size_t first, cells;
} Run;

/* The same for all fields: what of a field is rewritten, and what of it is read. */
typedef struct {
    const Run *rewritten, *halo;
    size_t rewritten_runs, halo_runs;
    size_t fields;
    double *field[MAX_FIELDS];
} Fields;

static Shared *shared;
static Fields f;
static int me;
static uint64_t meetings, pings;
static size_t taken;
static double began;
/* Where the sums go, so that the reading is not optimised away. */
static volatile uint64_t sink;

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void raise_to(Counter *counter, uint64_t value) {
    atomic_store_explicit(&counter->value, value, memory_order_release);
}

static void wait_for(Counter *counter, uint64_t value) {
    while (atomic_load_explicit(&counter->value, memory_order_acquire) < value)
        RELAX();
}

static void meet(void) {
    meetings++;
    raise_to(&shared->arrived[me], meetings);
    wait_for(&shared->arrived[1 - me], meetings);
}

static uint64_t read_halo(const double *field) {
    const uint64_t *bits = (const uint64_t *)field;
    uint64_t sum = 0;
    for (size_t i = 0; i < f.halo_runs; i++) {
        const uint64_t *cells = bits + f.halo[i].first;
        for (size_t j = 0; j < f.halo[i].cells; j++)
            sum += cells[j];
    }
    return sum;
}

static void rewrite(double *field) {
    for (size_t i = 0; i < f.rewritten_runs; i++) {
        double *cells = field + f.rewritten[i].first;
        for (size_t j = 0; j < f.rewritten[i].cells; j++)
            cells[j] += 1.0;
    }
}

size_t shared_bytes(void) { return sizeof(Shared); }

size_t max_fields(void) { return MAX_FIELDS; }

size_t max_block(void) { return MAX_BLOCK; }

void open_shared(void *memory, int rank) {
    shared = memory;
    me = rank;
}

/* The runs stay where they are; the caller keeps them. */
void describe(const Run *rewritten, size_t rewritten_runs, const Run *halo, size_t halo_runs) {
    f.rewritten = rewritten;
    f.rewritten_runs = rewritten_runs;
    f.halo = halo;
    f.halo_runs = halo_runs;
}

void add_field(void *memory) { f.field[f.fields++] = memory; }

/* A limit for all exchanges: plain C that copies as many cells between the same places, within the rank's own fields. */
typedef struct {
    uint32_t to, from, cells;
} Piece;

static const Piece *pieces;
static size_t piece_count, single;

/* The pieces stay where they are; the caller keeps them. The first `single_cells` of them have one cell. */
void describe_gather(const Piece *of_each_field, size_t count, size_t single_cells) {
    pieces = of_each_field;
    piece_count = count;
    single = single_cells;
}

void gather(void) {
    for (size_t i = 0; i < f.fields; i++) {
        double *field = f.field[i];
        for (const Piece *p = pieces; p < pieces + single; p++)
            field[p->to] = field[p->from];
        for (const Piece *p = pieces + single; p < pieces + piece_count; p++)
            memcpy(field + p->to, field + p->from, p->cells * sizeof(double));
    }
}

/* The three parts of a timed unit: what comes before it, the peer's exchange, what belongs to it and ends it. */
void unit_begin(void) {
    for (size_t i = 0; i < f.fields; i++)
        rewrite(f.field[i]);
    meet();
    began = now_ns();
}

void unit_end(void) {
    uint64_t sum = 0;
    for (size_t i = 0; i < f.fields; i++)
        sum += read_halo(f.field[i]);
    sink = sum;
    shared->ns[me][taken++] = now_ns() - began;
}

/* The same without rewriting and reading: what the calls from Python cost by themselves. */
void empty_begin(void) {
    meet();
    began = now_ns();
}

void empty_end(void) { shared->ns[me][taken++] = now_ns() - began; }

/* Forgets the times taken so far. */
void restart(void) {
    meet();
    taken = 0;
}

/* The time of each unit so far, over the slower rank; both ranks call it. */
size_t collect(double *ns) {
    meet();
    for (size_t i = 0; i < taken; i++) {
        double a = shared->ns[0][i], b = shared->ns[1][i];
        ns[i] = a > b ? a : b;
    }
    meet();
    return taken;
}

/* The time of a cache line's way to the other core and back: the best of a few tries. */
double ping_ns(void) {
    double best = 1e18;
    meet();
    for (int try = 0; try < PING_TRIES; try++) {
        double start = now_ns();
        for (int i = 0; i < PINGS; i++) {
            pings++;
            if (me == 0)
                raise_to(&shared->ping[0], pings);
            wait_for(&shared->ping[1 - me], pings);
            if (me == 1)
                raise_to(&shared->ping[1], pings);
        }
        double each = (now_ns() - start) / PINGS;
        best = each < best ? each : best;
    }
    return best;
}
