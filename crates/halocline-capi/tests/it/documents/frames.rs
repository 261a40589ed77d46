//! Declarations around the fragments of the guide.

/// For each fragment of the guide, in the order of the pages: its page, and the text before it, which opens a function. The text declares
/// what the fragment uses and its page does not show. Text that begins with `#include` begins a file; other text follows the
/// program of the page.
pub(super) const FRAMES: &[(&str, &str)] = &[
    (
        "assembling.md",
        "#include <halocline.h>\nvoid check(halocline_status);\nvoid reduce(halocline_halo_exchange halo) {",
    ),
    (
        "c.md",
        "void of_memory(double *t, const ptrdiff_t *strides, halocline_layout layout, halocline_field field) {",
    ),
    (
        "c.md",
        "void in_stream_order(halocline_halo_exchange halo, halocline_pending pending, void *cuda_stream) {",
    ),
    (
        "c.md",
        "void in_a_pool(halocline_comm comm, void *pool, halocline_neighbors ring, void *(*pool_take)(void *, size_t),
                       void (*pool_put)(void *, void *, size_t)) {",
    ),
    (
        "c.md",
        "#include <halocline.h>\n#include <mpi.h>\nvoid check(halocline_status);\nvoid with_mpi(halocline_comm comm) {",
    ),
    ("cpp.md", "void of_memory(std::size_t nx, std::size_t ny) {"),
    (
        "cpp.md",
        "void of_mesh(const halocline::comm &comm, std::size_t vertices, const std::vector<std::uint32_t> &triangles) {",
    ),
    (
        "cpp.md",
        "void finished(halocline_status, const char *) {}\nvoid of_packets(const halocline::comm &comm) {",
    ),
    (
        "cpp.md",
        "\n#include <memory_resource>\nvoid in_a_pool(const halocline::comm &comm) {",
    ),
    (
        "cpp.md",
        "void of_program(const halocline::array<double, 2> &t, const halocline::halo_exchange &halo, int steps) {",
    ),
    ("dace.md", DACE_BEGIN),
    ("dace.md", "void end(state *__state, void *__dace_current_stream) {"),
    ("fortran.md", FORTRAN_GRID),
    ("fortran.md", "module of_collective_calls\nuse of_grid\nimplicit none\ncontains\nsubroutine collect()"),
    ("fortran.md", "module of_messages\nuse of_grid\nimplicit none\ncontains\nsubroutine pack_by_hand()"),
    ("fortran.md", FORTRAN_MESH),
    ("fortran.md", FORTRAN_PACKETS),
    ("fortran.md", FORTRAN_REDISTRIBUTION),
    ("fortran.md", "module of_programs\nuse of_grid\ncontains\nsubroutine call_program()"),
    (
        "icon-grids.md",
        "#include <halocline.h>\nvoid check(halocline_status);\nvoid read_part(halocline_comm comm, size_t rank, size_t ranks) {",
    ),
    (
        "kokkos.md",
        "void packets(const halocline::comm &comm, const halocline::kokkos::stream<view> &stream,
                      const Kokkos::View<double *> &message) {",
    ),
    (
        "kokkos.md",
        "void pull(const halocline::comm &comm, const halocline::pattern &pattern, const halocline::kokkos::array<view> &t) {",
    ),
    (
        "measuring.md",
        "#include <halocline.h>\nvoid check(halocline_status);\nvoid trace(halocline_comm comm, halocline_halo_exchange halo) {",
    ),
    (
        "measuring.md",
        "void of_stream(halocline_comm comm, halocline_trace trace, halocline_halo_exchange halo, halocline_stream stream, halocline_pending pending) {",
    ),
    ("patches.md", FORTRAN_PATCHES),
    (
        "programs.md",
        "#include <halocline.h>\nvoid check(halocline_status);\nvoid call(double *memory, int steps, halocline_halo_exchange halo) {",
    ),
];

/// What DaCe declares in a tasklet of `examples/dace`.
const DACE_BEGIN: &str = "#include <halocline.hpp>
struct state { halocline_pending begun; };
void begin(state *__state, std::uint64_t exchange, void *__dace_current_stream) {";

const FORTRAN_GRID: &str = "module of_grid
use halocline
implicit none
type(halocline_comm) :: comm
type(halocline_decomposition) :: blocks
type(halocline_pattern) :: pattern
type(halocline_domain) :: domain
type(halocline_field) :: field
type(halocline_halo_exchange) :: halo
type(halocline_pending) :: pending
integer(c_size_t) :: ranks
integer(c_int32_t) :: status
integer :: step
contains
subroutine exchange()";

const FORTRAN_MESH: &str = "module of_mesh
use of_grid
use halocline_meshes
implicit none
type(halocline_mesh) :: mesh
type(halocline_partition) :: partition
type(halocline_mesh_halos) :: halos
integer(c_size_t) :: vertices, triangles, levels, rank, capacity, count, owned
integer(c_int32_t), allocatable :: corners(:)
integer(c_int64_t), allocatable :: ids(:)
contains
subroutine make_field()";

const FORTRAN_PACKETS: &str = "module of_packets
use of_grid
use halocline_packets
implicit none
type(halocline_neighbors) :: ring
contains
subroutine pass_on()";

const FORTRAN_PATCHES: &str = "module of_patches
use halocline
implicit none
type(halocline_comm) :: comm
integer(c_size_t) :: ranks
integer(c_int32_t) :: status
contains
subroutine exchange_across_a_fold()";

const FORTRAN_REDISTRIBUTION: &str = "module of_redistribution
use of_grid
implicit none
type(halocline_decomposition) :: slabs_x, slabs_y
type(halocline_field) :: along_x, along_y
type(halocline_halo_exchange) :: turn
contains
subroutine redistribute()";
