! Fields from one distribution of the cells to another, in Fortran: the functions of halocline/redistribute.h, which has their
! contracts. halocline_gather_to and halocline_save belong to the module `halocline`. Compile it after halocline.f90 and
! halocline_meshes.f90.
!
!   status = halocline_redistribute_regular(comm, slabs_x, width, slabs_y, width, move)
!   status = halocline_redistribute_bind(comm, move, [along_x], 1_c_size_t, [along_y], 1_c_size_t, halo=turn)
!   status = halocline_exchange_and_wait(turn)
module halocline_redistribution
  use halocline
  use halocline_meshes
  implicit none
  public

  type, bind(c) :: halocline_redistribute
    integer(c_int64_t) :: id = 0
  end type

  interface
    function halocline_redistribute_regular(comm, from, from_halo, to, to_halo, redistribute) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      type(halocline_decomposition), value :: from
      type(halocline_halo), intent(in) :: from_halo
      type(halocline_decomposition), value :: to
      type(halocline_halo), intent(in) :: to_halo
      type(halocline_redistribute), intent(out) :: redistribute
      integer(c_int32_t) :: status
    end function

    function halocline_redistribute_unstructured(comm, from, from_count, to, to_count, redistribute) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      type(halocline_cells), intent(in) :: from(*)
      integer(c_size_t), value :: from_count
      type(halocline_cells), intent(in) :: to(*)
      integer(c_size_t), value :: to_count
      type(halocline_redistribute), intent(out) :: redistribute
      integer(c_int32_t) :: status
    end function

    function halocline_redistribute_back(redistribute, back) bind(c) result(status)
      import
      type(halocline_redistribute), value :: redistribute
      type(halocline_redistribute), intent(out) :: back
      integer(c_int32_t) :: status
    end function

    function halocline_redistribute_bind(comm, redistribute, from, from_count, to, to_count, options, halo) bind(c) &
      result(status)
      import
      type(halocline_comm), value :: comm
      type(halocline_redistribute), value :: redistribute
      type(halocline_field), intent(in) :: from(*)
      integer(c_size_t), value :: from_count
      type(halocline_field), intent(in) :: to(*)
      integer(c_size_t), value :: to_count
      type(halocline_bind_options), intent(in), optional :: options
      type(halocline_halo_exchange), intent(out) :: halo
      integer(c_int32_t) :: status
    end function

    function halocline_redistribute_free(handle) bind(c) result(status)
      import
      type(halocline_redistribute), intent(inout) :: handle
      integer(c_int32_t) :: status
    end function
  end interface
end module
