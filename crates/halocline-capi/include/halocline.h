/*
 * The C interface of Halocline: halo exchange of distributed arrays. C11 and C++.
 *
 *     halocline_comm comm;
 *     halocline_init(&comm);
 *     size_t ranks, extents[2] = {1000, 500};
 *     halocline_comm_size(comm, &ranks);
 *
 *     halocline_grid grid = HALOCLINE_GRID_INIT;
 *     grid.axes = 2, grid.extents = extents;
 *     halocline_decomposition blocks;
 *     halocline_decompose(&grid, ranks, &blocks);
 *     halocline_halo width = HALOCLINE_HALO_INIT;
 *     width.width = 1;
 *     halocline_pattern pattern;
 *     halocline_pattern_regular(comm, blocks, &width, &pattern);
 *
 *     halocline_domain domain = HALOCLINE_DOMAIN_INIT;
 *     halocline_pattern_domain(pattern, 0, &domain);
 *     halocline_layout layout = HALOCLINE_LAYOUT_INIT;
 *     layout.dimensions = 2, layout.extents = domain.extents, layout.element = HALOCLINE_F64;
 *     halocline_field t;
 *     halocline_field_allocate(comm, &layout, &t);
 *
 *     halocline_binding binding = {pattern, t};
 *     halocline_halo_exchange halo;
 *     halocline_bind(comm, &binding, 1, NULL, &halo);
 *     halocline_pending pending;
 *     halocline_exchange(halo, &pending);
 *     ... compute the interior ...
 *     halocline_wait(pending);
 *
 * STATUS. Every call that can fail returns a halocline_status: HALOCLINE_OK (0) or an error, whose message
 * halocline_error_message() returns. A call that fails stores no results, unless its comment says otherwise. No call
 * throws or unwinds, and none ends the process, with one exception: if the allocator of the process fails within the library, the process
 * is aborted with a message. Large requests of the program, such as fields and payloads, are HALOCLINE_ERROR_MEMORY instead.
 *
 * HANDLES. Objects are named by handles, which are structs with one number. {0} is the null handle. Handles are values:
 * copies name the same object. Freeing an object makes all copies of its handle invalid. A handle that is null, freed, of another
 * type or made up is refused with HALOCLINE_ERROR_HANDLE. Objects hold what they need of each other: a bound exchange
 * works after its fields, its patterns and its communicator were freed.
 *
 * FREE. Each halocline_..._free(&handle) sets the handle to null and does nothing for a null handle. If another thread is
 * in a call with the object, that call completes and then drops the object.
 *
 * THREADS. Any thread may call any function at any time, also with the same handles, unless a comment says otherwise. Ranks that are
 * threads (halocline_comm_threads) each use their own communicator. With MPI below MPI_THREAD_MULTIPLE see
 * halocline_comm_from_mpi.
 *
 * COLLECTIVE calls: all ranks of the communicator call them in the same order; each blocks until all ranks have called it. If a
 * rank's arguments are refused, all ranks get an error: that rank the reason, the others HALOCLINE_ERROR_ELSEWHERE with its message.
 * A refused communicator is the rank's own error, which the others do not learn; so is a refused handle that stands for it in a call
 * without a communicator, such as the pattern of halocline_save. Two threads of a rank do not make collective calls of one communicator at
 * the same time, nor calls that all ranks make in the same order: each thread uses a duplicate of its own (halocline_comm_duplicate).
 *
 * OPTION STRUCTS begin with their size. Initialise them with their _INIT macro; fields that you leave are the defaults. A library that
 * is newer or older than the program accepts them, unless the program sets a field that an older library does not know.
 *
 * CALLBACKS are documented with the thread that runs them. They must not throw. A call of this library from a callback
 * returns HALOCLINE_ERROR_CALLBACK, except halocline_error_message and the version calls.
 *
 * FORK. In a child forked after the first object was made, every call returns HALOCLINE_ERROR_FORKED.
 *
 * ARRAYS. Where a call stores an array or text of unknown length, pass the array and its capacity, in elements. The call
 * stores the number of elements that are needed. Pass NULL for the array to learn only that number.
 *
 * POINTERS must be valid for the access that a comment describes. NULL and misaligned pointers are refused.
 */
#ifndef HALOCLINE_H
#define HALOCLINE_H

#include "halocline/core.h"
#include "halocline/comm.h"
#include "halocline/grid.h"
#include "halocline/pattern.h"
#include "halocline/patches.h"
#include "halocline/field.h"
#include "halocline/exchange.h"
#include "halocline/mesh.h"
#include "halocline/icon.h"
#include "halocline/index_lists.h"
#include "halocline/message.h"
#include "halocline/redistribute.h"
#include "halocline/packet.h"
#include "halocline/neighbors.h"
#include "halocline/sparse.h"
#include "halocline/program.h"
#include "halocline/trace.h"

#endif
