// The C++ interface of Halocline, header only: owners of the handles of halocline.h, with exceptions. C++17.
//
//     auto comm = halocline::comm::init();
//     auto pattern = halocline::regular_grid({1000, 500}).periodic({true, false}).decompose(comm.size()).pattern(comm, 1);
//     halocline::array<double, 2> t(comm, pattern.domain().shape<2>());
//     halocline::halo_exchange halo(comm, {{pattern, t}});
//     auto pending = halo.exchange();
//     ... compute the interior ...
//     pending.wait();
//
// Functions are those of halocline.h, which has their contracts. A call that fails throws halocline::error with the message and the status. Objects
// free their handles when they are destroyed. `get()` gives the handle for calls of halocline.h.
#ifndef HALOCLINE_HPP
#define HALOCLINE_HPP

#if __cplusplus < 201703L
#error "halocline.hpp needs C++17: compile with -std=c++17 (CMake: target_compile_features(TARGET PRIVATE cxx_std_17))"
#endif

#include "halocline/cpp/core.hpp"
#include "halocline/cpp/comm.hpp"
#include "halocline/cpp/grid.hpp"
#include "halocline/cpp/patches.hpp"
#include "halocline/cpp/field.hpp"
#include "halocline/cpp/exchange.hpp"
#include "halocline/cpp/mesh.hpp"
#include "halocline/cpp/icon.hpp"
#include "halocline/cpp/index_lists.hpp"
#include "halocline/cpp/packet.hpp"
#include "halocline/cpp/neighbors.hpp"
#include "halocline/cpp/sparse.hpp"
#include "halocline/cpp/program.hpp"
#include "halocline/cpp/trace.hpp"

#endif
