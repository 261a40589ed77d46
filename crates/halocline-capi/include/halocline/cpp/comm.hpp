// Communicators. Included by halocline.hpp.
#ifndef HALOCLINE_CPP_COMM_HPP
#define HALOCLINE_CPP_COMM_HPP

#include "core.hpp"

namespace halocline {

// How `comm::all_reduce` (`sum`, `min`, `max`) and `halo_exchange::reduce` (all) combine.
enum class reduce : std::int32_t {
  sum = HALOCLINE_SUM,
  min = HALOCLINE_MIN,
  max = HALOCLINE_MAX,
  product = HALOCLINE_PRODUCT,
  replace = HALOCLINE_REPLACE,
  bit_and = HALOCLINE_AND,
  bit_or = HALOCLINE_OR,
  bit_xor = HALOCLINE_XOR
};

// A group of ranks. The rank leaves its group once all its communicators are gone.
class comm : public owner<halocline_comm, halocline_comm_free> {
 public:
  using owner::owner;

  // That of this process: halocline_init.
  static comm init() {
    halocline_comm handle;
    check(halocline_init(&handle));
    return comm(handle);
  }
  // The same by the name of the transport: "auto", "thread", "shm" or "mpi".
  static comm init(const char *transport) {
    halocline_comm handle;
    check(halocline_init_by_name(transport, &handle));
    return comm(handle);
  }
  // Ranks that are threads of this process: move each into its thread.
  static std::vector<comm> threads(std::size_t size) {
    std::vector<halocline_comm> handles(size);
    check(halocline_comm_threads(size, handles.data()));
    return std::vector<comm>(std::make_move_iterator(handles.begin()), std::make_move_iterator(handles.end()));
  }
  // The ranks of an MPI_Comm: halocline_comm_from_mpi.
  template <typename MpiComm>
  static comm from_mpi(MpiComm mpi_comm, const halocline_mpi_options *options = nullptr) {
    halocline_comm handle;
    check(halocline_comm_from_mpi(HALOCLINE_MPI_COMM(mpi_comm), options, &handle));
    return comm(handle);
  }

  // The same by an MPI_Fint: halocline_comm_from_fortran.
  static comm from_fortran(std::int32_t mpi_comm, const halocline_mpi_options *options = nullptr) {
    halocline_comm handle;
    check(halocline_comm_from_fortran(mpi_comm, options, &handle));
    return comm(handle);
  }

  comm duplicate() const {
    halocline_comm handle;
    check(halocline_comm_duplicate(get(), &handle));
    return comm(handle);
  }
  // The ranks of the same color; an empty communicator for HALOCLINE_NO_COLOR.
  comm split(std::int64_t color, std::int64_t key = 0) const {
    halocline_comm handle;
    check(halocline_comm_split(get(), color, key, &handle));
    return comm(handle);
  }
  // The same with a deadline for collective calls, in seconds; 0: none.
  comm with_deadline(double seconds) const {
    halocline_comm handle;
    check(halocline_comm_with_deadline(get(), seconds, &handle));
    return comm(handle);
  }

  // The deadline of collective calls in seconds; 0: none.
  double deadline() const {
    double seconds;
    check(halocline_comm_deadline(get(), &seconds));
    return seconds;
  }

  std::size_t rank() const {
    std::size_t rank;
    check(halocline_comm_rank(get(), &rank));
    return rank;
  }
  std::size_t size() const {
    std::size_t size;
    check(halocline_comm_size(get(), &size));
    return size;
  }
  std::string transport() const {
    const char *name;
    check(halocline_comm_transport(get(), &name));
    return name;
  }

  // What this rank has mapped of the memory of others, and they of its own.
  halocline_mapping_statistics mappings() const {
    halocline_mapping_statistics found = HALOCLINE_MAPPING_STATISTICS_INIT;
    check(halocline_comm_mappings(get(), &found));
    return found;
  }
  // Throws on all ranks if a rank passes a message: that of the rank itself, or of the lowest one. Collective.
  void agree(const char *error = nullptr) const { check(halocline_comm_agree(get(), error)); }

  void barrier() const { check(halocline_comm_barrier(get())); }
  // Copies the elements of rank `root` to all ranks. All ranks pass as many.
  template <typename T>
  void broadcast(std::size_t root, span<T> data) const {
    static_assert(std::is_trivially_copyable<T>::value, "elements are copied as bytes");
    check(halocline_comm_broadcast(get(), root, data.data(), data.size() * sizeof(T)));
  }
  template <typename T>
  T broadcast(std::size_t root, T value) const {
    broadcast(root, span<T>(&value, 1));
    return value;
  }
  // The values of all ranks, in the order of ranks.
  template <typename T>
  std::vector<T> all_gather(const T &value) const {
    static_assert(std::is_trivially_copyable<T>::value, "elements are copied as bytes");
    std::vector<T> all(size());
    check(halocline_comm_all_gather(get(), &value, sizeof(T), all.data()));
    return all;
  }
  // Combines numbers of all ranks, element by element, in place.
  template <typename T>
  void all_reduce(span<T> values, reduce operation) const {
    check(halocline_comm_all_reduce(get(), values.data(), values.size(), element_of<T>(),
                                    static_cast<std::int32_t>(operation)));
  }
  template <typename T>
  T all_reduce(T value, reduce operation) const {
    all_reduce(span<T>(&value, 1), operation);
    return value;
  }
};

}  // namespace halocline

#endif
